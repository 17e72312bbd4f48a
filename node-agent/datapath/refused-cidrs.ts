/**
 * CIDRs that rules name and of which the kernel does not take the number. Until it does, their addresses are judged as what is around them.
 * Guarantee: no endpoint moves to rules that would let a packet through by that which they drop and the ones before do, too; nor does what is
 * around them get a number that would.
 */
import { isLocalCidr } from '@weir/identity';
import type { Direction } from '@weir/policy';
import { keys, type StateDB, type Table } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { type Around, DIRECTIONS, prefixKey } from '../derive/contract.ts';
import { OrderError } from '../errors.ts';
import type { EndpointStateRow, IpcacheRow, SlotContent } from '../tables.ts';
import type { EndpointStore } from './endpoint-store.ts';
import type { Planner } from './planner.ts';
import { classesOf, type Judged, opensPeer } from './slot-content.ts';

type Word = Pick<EndpointStateRow, 'slot' | 'enforced'>;

/** Key: `prefix`. */
interface RefusedCidr {
  readonly prefix: string;
  readonly identity: number;
}

export interface RefusedCidrsOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'ipcache'>;
  /** What the kernel has of a slot. */
  readonly content: (slot: number) => SlotContent | undefined;
  /** The identity that the kernel has for the addresses of a prefix that it does not have. */
  readonly atPrefix: (prefix: string) => number | undefined;
  /** As the kernel is to have it. */
  readonly around: Around;
  /** What the words of all endpoints say. */
  readonly words: () => Iterable<Word>;
}

export class RefusedCidrs {
  readonly #options: RefusedCidrsOptions;
  readonly #table: Table<RefusedCidr>;

  constructor(options: RefusedCidrsOptions) {
    this.#options = options;
    this.#table = options.db.table<RefusedCidr>({
      name: 'refusedCidrs',
      key: ({ prefix }) => prefix,
      indexes: [
        { name: 'within', kind: 'lpm', keys: ({ prefix }) => [prefixKey(prefix)] },
        { name: 'identity', keys: ({ identity }) => [keys.uint(identity, 32)] },
      ],
    });
  }

  /** Those that no rule names any more are refused no longer. */
  tidy(): void {
    const { db, tables } = this.#options;
    if (this.none) return;
    db.write([this.#table], (txn) => {
      for (const row of txn.all(this.#table))
        if (!txn.has(tables.ipcache, row.prefix)) txn.delete(this.#table, row.prefix);
    });
  }

  /**
   * Gives the kernel an address by `write`, and notes what becomes of it.
   * @throws what `write` throws; OrderError where the kernel is not to be given it
   */
  give(row: IpcacheRow, write: () => void): void {
    if (!isLocalCidr(row.identity)) {
      write();
      return;
    }
    const { db } = this.#options;
    const { prefix, identity } = row;
    using snapshot = db.read();
    const known = snapshot.get(this.#table, prefix);
    try {
      this.#check(row, snapshot.covered(this.#table, 'within', prefixKey(prefix)));
      write();
    } catch (error) {
      if (known?.identity !== identity) db.write([this.#table], (txn) => txn.upsert(this.#table, { prefix, identity }));
      throw error;
    }
    if (known !== undefined) db.write([this.#table], (txn) => txn.delete(this.#table, prefix));
  }

  /** Whether nothing is refused: rows may be given together. */
  get none(): boolean {
    using snapshot = this.#options.db.read();
    return snapshot.count(this.#table) === 0;
  }

  #check({ prefix, identity }: IpcacheRow, refused: Iterable<RefusedCidr>): void {
    const { content, around } = this.#options;
    const inside = Iterator.from(refused).filter((row) => row.prefix !== prefix);
    let words: readonly Opens[] | undefined;
    for (const inner of inside) {
      words ??= Array.from(this.#options.words(), ({ slot, enforced }) =>
        opensOnce((direction) => enforced[direction], content(slot), content(slot)),
      );
      const now = { identity: this.#atPrefix(inner.prefix), around: this.#inKernel };
      if (words.some((opens) => opens({ identity, around: this.#inKernel }, now, { identity: inner.identity, around })))
        throw new OrderError(`${prefix} waits for ${inner.prefix} inside it, which the kernel refuses`);
    }
  }

  /** @throws OrderError where the endpoint would let through what its rules and those before drop */
  checkMove(before: Word | undefined, { id, slot, enforced }: EndpointStateRow): void {
    if (before === undefined || before.slot === slot || this.none) return;
    const { db, content, around } = this.#options;
    const [old, now] = [content(before.slot), content(slot)];
    const opens = opensOnce((direction) => before.enforced[direction] && enforced[direction], now, now, old);
    const check = (identity: number, there: number, prefix: string): void => {
      const judged = { identity: there, around: this.#inKernel };
      if (opens(judged, { identity, around }, judged))
        throw new OrderError(
          `endpoint ${id} keeps its former rules: the kernel refuses ${prefix}, which the new rules name`,
        );
    };
    using snapshot = db.read();
    for (const { prefix, identity } of snapshot.all(this.#table)) check(identity, this.#atPrefix(prefix), prefix);
    // What the rules before name, and the new ones know only as a part of what the kernel does not take.
    for (const direction of DIRECTIONS)
      for (const identity of old?.elements[direction].keys() ?? [])
        if (isLocalCidr(identity)) {
          const prefix = this.#refusedAround(identity);
          if (prefix !== undefined) check(identity, identity, prefix);
        }
  }

  /** The first around the CIDR that the kernel does not take; undefined where it does not take the CIDR itself. */
  #refusedAround(identity: number): string | undefined {
    if (this.#refused(identity) !== undefined) return undefined;
    for (let at = identity; isLocalCidr(at); at = this.#options.around(at)) {
      const refused = this.#refused(at);
      if (refused !== undefined) return refused.prefix;
    }
    return undefined;
  }

  /** The identity around one in the kernel. */
  readonly #inKernel: Around = (identity) => {
    let around = this.#options.around(identity);
    while (this.#refused(around) !== undefined) around = this.#options.around(around);
    return around;
  };

  #refused(identity: number): RefusedCidr | undefined {
    using snapshot = this.#options.db.read();
    const [row] = snapshot.list(this.#table, 'identity', keys.uint(identity, 32));
    return row;
  }

  #atPrefix(prefix: string): number {
    return this.#options.atPrefix(prefix) ?? 0;
  }
}

type Peer = Omit<Judged, 'content'>;
/** Whether a peer may pass where others, each as another content judges it, may not. */
type Opens = (peer: Peer, ...others: readonly Peer[]) => boolean;

/** Peers of the same classes are looked at once. A slot that is not there lets nothing through, and is no measure. */
function opensOnce(
  enforced: (direction: Direction) => boolean,
  content: SlotContent | undefined,
  ...contents: readonly (SlotContent | undefined)[]
): Opens {
  const known = new Map<string, boolean>();
  const directions = DIRECTIONS.filter(enforced);
  const there = contents.filter((each) => each !== undefined);
  if (content === undefined || there.length < contents.length) return () => false;
  return (peer, ...others) => {
    const one = { content, ...peer };
    const judged = others.flatMap((other, at) => {
      const of = there[at];
      return of === undefined ? [] : [{ content: of, ...other }];
    });
    const key = [one, ...judged].map((each) => classesOf(each.content, each.identity, each.around)).join(' ');
    const found = known.get(key) ?? directions.some((direction) => opensPeer(one, judged, direction));
    known.set(key, found);
    return found;
  };
}

/** What the kernel has endpoints enforce, each once. */
export function wordsOf(
  model: Pick<Planner, 'states'>,
  endpoints: Pick<EndpointStore, 'word'>,
): Iterable<Pick<EndpointStateRow, 'slot' | 'enforced'>> {
  const words = new Map<string, Pick<EndpointStateRow, 'slot' | 'enforced'>>();
  for (const { id } of model.states()) {
    const word = endpoints.word(id);
    if (word !== undefined) words.set(`${word.slot} ${word.enforced.ingress} ${word.enforced.egress}`, word);
  }
  return words.values();
}
