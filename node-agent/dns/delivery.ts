/** How packets that the datapath marks for a proxy are delivered on this node (bpf/proxy.h), whatever their destination: rules, and a route of its own table. */
import { join } from 'node:path';
import { MARK_ANSWER, MARK_PROXY, MARK_TO_PROXY } from '@weir/bpf';
import { messageOf } from '@weir/process/errors';
import { CommandError, type RunCommand } from '../host/command.ts';
import { type Settings, settings } from '../host/setting.ts';

/** What is in place is looked at again after so long: each look starts five processes. */
const AGAIN_AFTER_MS = 5000;
/** Of Weir alone. */
const TABLE = '2005';

interface Rule {
  readonly mark: number;
  readonly mask: number;
  readonly iif?: 'lo';
  readonly table: string;
  /** Before those that the system makes and those of other programs that end a look-up. */
  readonly pref: number;
}

const DELIVER: Rule = {
  mark: MARK_TO_PROXY,
  // Those bits that both have.
  mask: MARK_PROXY & ~(MARK_TO_PROXY ^ MARK_ANSWER),
  table: TABLE,
  pref: 9,
};
/**
 * The way back to the pod that rp_filter asks for, which it looks up as if the packet came by the loopback: with the packet's mark where the node has
 * net.ipv4.conf.all.src_valid_mark, as WireGuard's tools set it.
 */
const WAY_BACK: Rule = { mark: MARK_TO_PROXY, mask: MARK_PROXY, iif: 'lo', table: 'main', pref: 8 };
const RULES = [
  ['-4', WAY_BACK],
  ['-4', DELIVER],
  ['-6', DELIVER],
] as const;

function words({ mark, mask, iif, table, pref }: Rule): string {
  const from = iif === undefined ? '' : `iif ${iif} `;
  return `${from}fwmark 0x${mark.toString(16)}/0x${mask.toString(16)} lookup ${table} pref ${pref}`;
}

/**
 * Of /proc/sys/net. Answers come back by the loopback with a server's address as their source: accept_local where that is one of this node, and with
 * src_valid_mark the way back that rp_filter asks for is the route here. What a server sends finds the proxy's socket early, before it is routed to the pod's
 * interface where it is judged, and would not be forwarded.
 */
const SETTINGS = [
  ['ipv4/conf/lo/accept_local', '1'],
  ['ipv4/conf/lo/src_valid_mark', '1'],
  ['ipv4/ip_early_demux', '0'],
] as const;

export class ProxyDelivery {
  readonly #run: RunCommand;
  readonly #procSys: string;
  readonly #settings: Settings;
  #problem: string | undefined;
  #removed = false;
  /** When all of it was last seen in place, in milliseconds of a clock that only grows. */
  #seenAt = Number.NEGATIVE_INFINITY;
  #looking: Promise<void> = Promise.resolve();

  constructor(run: RunCommand, procSys: string, of: Settings = settings) {
    this.#run = run;
    this.#procSys = procSys;
    this.#settings = of;
  }

  /** Why nothing is delivered. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Makes what is missing, until `remove`. Never throws. */
  look(): Promise<void> {
    this.#looking = this.#looking.then(() => this.#make());
    return this.#looking;
  }

  async #make(): Promise<void> {
    if (this.#removed || performance.now() - this.#seenAt < AGAIN_AFTER_MS) return;
    try {
      for (const [name, value] of SETTINGS) this.#settings.set(join(this.#procSys, 'net', name), value);
      for (const [family, rule] of RULES)
        if (!(await this.#has(family, rule))) await this.#run('ip', [family, 'rule', 'add', ...words(rule).split(' ')]);
      for (const family of ['-4', '-6'])
        await this.#run('ip', [family, 'route', 'replace', 'local', 'default', 'dev', 'lo', 'table', TABLE]);
      this.#problem = undefined;
      this.#seenAt = performance.now();
    } catch (error) {
      this.#problem = `packets for the DNS proxy are not delivered: ${messageOf(error)}`;
    }
  }

  /** Takes all of it away; returns that, in words. The settings stay, as a node's forwarding does. */
  async remove(): Promise<readonly string[]> {
    this.#removed = true;
    await this.#looking;
    const gone: string[] = [];
    for (const [family, rule] of RULES)
      while (await this.#has(family, rule)) {
        await this.#run('ip', [family, 'rule', 'delete', ...words(rule).split(' ')]);
        gone.push(`rule ${words(rule)} (IPv${family[1]})`);
      }
    for (const family of ['-4', '-6']) {
      try {
        await this.#run('ip', [family, 'route', 'flush', 'table', TABLE]);
      } catch (error) {
        // There is no such table.
        if (!(error instanceof CommandError)) throw error;
      }
    }
    return gone;
  }

  async #has(family: string, { mark, table, pref }: Rule): Promise<boolean> {
    const text = await this.#run('ip', [family, '-json', 'rule', 'show', 'pref', String(pref)]);
    const rules = JSON.parse(text.trim() === '' ? '[]' : text) as readonly { table?: string; fwmark?: string }[];
    return rules.some((rule) => rule.table === table && rule.fwmark === `0x${mark.toString(16)}`);
  }
}
