import { CT_CELLS, CT_KEYS, type CtKey, type CtValue, ctAge, ctValue, isHalfOpen, PROTOCOL, ticksAt } from '@weir/bpf';
import type { BpfMap } from 'libbpf-ts';
import type { SpentShares } from '../core.ts';
import type { CountedFlows, CtFamily, CtShares } from './ct-shares.ts';

const STEP = 512;
/** A handshake that has been silent for longer, in conntrack ticks of 1.07 s, makes room when there is none. */
const HANDSHAKE_TICKS = 5;
/** How many addresses of who opens too many flows are told. */
const NAMED_PEERS = 10;

const FAMILIES: readonly CtFamily[] = ['ct4', 'ct6'];

export interface SweepResult {
  readonly entries: number;
  readonly deleted: number;
  /** What is left in each map. */
  readonly left: Readonly<Record<CtFamily, number>>;
}

export interface ConntrackOptions {
  readonly maps: Readonly<Record<CtFamily, BpfMap>>;
  readonly shares: CtShares;
  /** The programs collect by themselves when user space has not for a minute. */
  readonly collected: (tick: number) => void;
  readonly yieldNow: () => Promise<void>;
}

/** Collects garbage in the connection tables, one of each family and all of one size, in small steps, and corrects what the programs count. */
export class Conntrack {
  readonly #maps: Readonly<Record<CtFamily, BpfMap>>;
  readonly #shares: CtShares;
  readonly #collected: ConntrackOptions['collected'];
  readonly #yieldNow: () => Promise<void>;
  /** Endpoints that the last collection found flows of. */
  #found: readonly (readonly [CtFamily, number])[] = [];
  #spentPeers: readonly Uint8Array[] = [];

  constructor({ maps, shares, collected, yieldNow }: ConntrackOptions) {
    this.#maps = maps;
    this.#shares = shares;
    this.#collected = collected;
    this.#yieldNow = yieldNow;
    shares.open(maps.ct4.info.maxEntries);
  }

  /**
   * Deletes entries that are gone. Of an endpoint that has half of what it may, those that are only remembered go, too, and handshakes that nobody goes
   * on with. Stops early when `signal` is aborted.
   */
  async collect(signal: AbortSignal): Promise<SweepResult> {
    const before = this.#shares.counted();
    const left = new Int32Array(before.length);
    const found = { ct4: new Set<number>(), ct6: new Set<number>() };
    const peers = new SpentPeers(this.#shares);
    const result = await this.#sweep(signal, (family, key, value) => {
      const now = process.hrtime.bigint();
      const age = ctAge(key, value, now);
      const cell = CT_CELLS.endpoint(family, key.endpoint);
      const over = this.#shares.isSpent(family, cell, 1 / 2);
      const abandoned = isHalfOpen(key, value) && ((ticksAt(now) - value.lastSeen) | 0) > HANDSHAKE_TICKS;
      if (age === 'gone' || (over && (age === 'expired' || abandoned))) return true;
      found[family].add(key.endpoint);
      count(left, family, key, value);
      peers.see(family, key, value);
      return false;
    });
    if (signal.aborted) return result;
    this.#collected(ticksAt(process.hrtime.bigint()));
    this.#shares.correct(before, left);
    this.#found = FAMILIES.flatMap((family) => Array.from(found[family], (id) => [family, id] as const));
    this.#spentPeers = peers.named();
    return result;
  }

  spent(): SpentShares {
    const endpoints = new Set<number>();
    for (const [family, id] of this.#found) {
      if (this.#shares.isSpent(family, CT_CELLS.endpoint(family, id))) endpoints.add(id);
    }
    return { endpoints: [...endpoints], peers: this.#spentPeers };
  }

  /** Deletes every flow of the endpoints, so that the next ones with their ids start without. */
  async purge(endpoints: ReadonlySet<number>, signal: AbortSignal): Promise<SweepResult> {
    return await this.#remove(signal, ({ endpoint }) => endpoints.has(endpoint));
  }

  /**
   * Deletes the endpoints' flows whose first packet may have been an answer: all but TCP connections, which begin with their SYN. Denied ones stay:
   * they keep answers from beginning a flow.
   */
  async doubt(endpoints: ReadonlySet<number>, signal: AbortSignal): Promise<SweepResult> {
    return await this.#remove(signal, ({ endpoint, protocol }, value) => {
      if (!endpoints.has(endpoint)) return false;
      return protocol !== PROTOCOL.tcp && !value.denied;
    });
  }

  /** Deletes flows, and takes them away from what is counted. */
  async #remove(signal: AbortSignal, dead: (key: CtKey, value: CtValue) => boolean): Promise<SweepResult> {
    const deleted = new Int32Array(CT_CELLS.seed);
    const result = await this.#sweep(signal, (family, key, value) => {
      const goes = dead(key, value);
      if (goes) count(deleted, family, key, value);
      return goes;
    });
    this.#shares.subtract(deleted);
    return result;
  }

  async #sweep(
    signal: AbortSignal,
    dead: (family: CtFamily, key: CtKey, value: CtValue) => boolean,
  ): Promise<SweepResult> {
    const sum = { entries: 0, deleted: 0, left: { ct4: 0, ct6: 0 } };
    for (const family of FAMILIES) {
      const map = this.#maps[family];
      let batch: Uint8Array[] = [];
      const remove = (): void => {
        if (batch.length > 0) map.deleteBatch(batch);
        sum.deleted += batch.length;
        sum.left[family] -= batch.length;
        batch = [];
      };
      for (const [key, value] of map.entries()) {
        sum.entries += 1;
        sum.left[family] += 1;
        if (dead(family, CT_KEYS[family].decode(key), ctValue.decode(value))) batch.push(key);
        if (sum.entries % STEP !== 0) continue;
        remove();
        await this.#yieldNow();
        if (signal.aborted) return sum;
      }
      remove();
    }
    return sum;
  }
}

/** Adds a flow to the cells that count it. */
function count(cells: CountedFlows, family: CtFamily, key: CtKey, { peer }: CtValue): void {
  for (const cell of [CT_CELLS.endpoint(family, key.endpoint), CT_CELLS.table(family), ...(peer === 0 ? [] : [peer])]) {
    cells[cell] = (cells[cell] ?? 0) + 1;
  }
}

/** Finds out which addresses stand behind the cells of peers that have as many flows as they may. */
class SpentPeers {
  readonly #shares: CtShares;
  readonly #spent = new Map<number, boolean>();
  readonly #flows = new Map<string, { readonly address: Uint8Array; flows: number }>();

  constructor(shares: CtShares) {
    this.#shares = shares;
  }

  see(family: CtFamily, { src }: CtKey, { peer }: CtValue): void {
    if (peer === 0) return;
    let spent = this.#spent.get(peer);
    if (spent === undefined) {
      spent = this.#shares.isPeerSpent(family, peer);
      this.#spent.set(peer, spent);
    }
    if (!spent) return;
    // Counted by the /64 in IPv6.
    const name = Buffer.from(src.subarray(0, 8)).toString('hex');
    const known = this.#flows.get(name);
    if (known === undefined) this.#flows.set(name, { address: src, flows: 1 });
    else known.flows += 1;
  }

  /** Those with most flows first. */
  named(): Uint8Array[] {
    const sorted = [...this.#flows.values()].sort((one, other) => other.flows - one.flows);
    return sorted.slice(0, NAMED_PEERS).map(({ address }) => address);
  }
}
