/** While nobody answers for the DNS proxy: table `proxyFaults` says so of the policies that need it. */
import type { WriteTxn } from '@weir/statedb';
import type { Core } from '../core.ts';
import type { ProxyFaultRow } from '../tables.ts';

/** A proxy that is restarted is back sooner. Milliseconds. */
const FAULT_AFTER_MS = 5_000;
const PROXY = 'dns';
export const PROXY_FAILING = 'DnsProxyFailing';

export class ProxyFault {
  readonly #core: Pick<Core, 'db' | 'tables'>;
  readonly #now: () => number;
  /** Since when there is a problem, in milliseconds. */
  #since: number | undefined;

  /** @param now milliseconds, of a clock that only grows */
  constructor(core: Pick<Core, 'db' | 'tables'>, now: () => number = () => performance.now()) {
    this.#core = core;
    this.#now = now;
  }

  /** `problem`: why pods get no answers now. */
  look(problem: string | undefined): void {
    if (problem === undefined) {
      this.#since = undefined;
      this.#put(undefined);
      return;
    }
    this.#since ??= this.#now();
    if (this.#now() - this.#since >= FAULT_AFTER_MS)
      this.say(`DNS rules let nothing pass, and no address of a name is learned, as the DNS proxy fails: ${problem}`);
  }

  /** At once. */
  say(message: string): void {
    this.#put({ proxy: PROXY, reason: PROXY_FAILING, message });
  }

  #put(row: ProxyFaultRow | undefined): void {
    const { db, tables } = this.#core;
    {
      using snapshot = db.read();
      if (snapshot.get(tables.proxyFaults, PROXY)?.message === row?.message) return;
    }
    db.write([tables.proxyFaults], (txn: WriteTxn) =>
      row === undefined ? txn.delete(tables.proxyFaults, PROXY) : txn.upsert(tables.proxyFaults, row),
    );
  }
}
