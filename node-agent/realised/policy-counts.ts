import type { Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import { tableKey } from '../create-tables.ts';
import type { Generations } from './policy-failures.ts';

const NONE: Generations = {};

/** An endpoint, as it was when it was counted last. Key: `id`. */
export interface CountedEndpoint {
  readonly id: number;
  /** The policies that select it. */
  readonly wanted: Generations;
  /** Those that the kernel has of it. */
  readonly held: Generations;
}

/** How many endpoints have each generation of a policy; 0: none yet. Key: `uid`. */
interface CountedPolicy {
  readonly uid: string;
  readonly generations: ReadonlyMap<number, number>;
}

/** Endpoints that were counted with the same policies, as objects, and now have others. */
interface Move {
  readonly before: CountedEndpoint | undefined;
  readonly after: CountedEndpoint | undefined;
  count: number;
}

/** How many endpoints each policy has, and the generation that all of them have. Only what changes is counted anew. */
export class PolicyCounts {
  readonly #endpoints: Table<CountedEndpoint>;
  readonly #policies: Table<CountedPolicy>;

  constructor(db: StateDB) {
    this.#endpoints = db.table<CountedEndpoint>({ name: 'countedEndpoints', key: ({ id }) => tableKey.endpoint(id) });
    this.#policies = db.table<CountedPolicy>({ name: 'countedPolicies', key: ({ uid }) => uid });
  }

  /** What `settle` writes. */
  get tables(): readonly [Table<CountedEndpoint>, Table<CountedPolicy>] {
    return [this.#endpoints, this.#policies];
  }

  /** Undefined: no endpoint has the policy, or is to have it. */
  of(
    reader: Pick<Reader, 'get'>,
    uid: string,
  ): { readonly generation: number; readonly endpoints: number } | undefined {
    const generations = reader.get(this.#policies, uid)?.generations;
    if (generations === undefined) return undefined;
    const endpoints = generations.values().reduce((sum, count) => sum + count, 0);
    return { generation: Math.min(...generations.keys()), endpoints };
  }

  /** @param endpoints all that there are. Returns the policies that may have others. */
  settle(txn: WriteTxn, endpoints: readonly CountedEndpoint[]): Iterable<string> {
    const deltas = new Map<string, Map<number, number>>();
    const add = (uid: string, generation: number | undefined, count: number): void => {
      if (generation === undefined) return;
      const of = deltas.get(uid) ?? new Map<number, number>();
      deltas.set(uid, of.set(generation, (of.get(generation) ?? 0) + count));
    };
    for (const { before, after, count } of this.#moves(txn, endpoints)) {
      const [from, to] = [generationsOf(before), generationsOf(after)];
      for (const uid of differing(from, to)) {
        add(uid, from[uid], -count);
        add(uid, to[uid], count);
      }
    }
    for (const [uid, changes] of deltas) this.#change(txn, uid, changes);
    return deltas.keys();
  }

  #moves(txn: WriteTxn, endpoints: readonly CountedEndpoint[]): Iterable<Move> {
    const numbers = new Map<Generations | undefined, number>();
    const numberOf = (of: Generations | undefined): number => {
      const number = numbers.get(of) ?? numbers.size;
      numbers.set(of, number);
      return number;
    };
    const moves = new Map<string, Move>();
    const note = (before: CountedEndpoint | undefined, after: CountedEndpoint | undefined): void => {
      const key = [before?.wanted, before?.held, after?.wanted, after?.held].map(numberOf).join(' ');
      const move = moves.get(key);
      if (move === undefined) moves.set(key, { before, after, count: 1 });
      else move.count += 1;
    };
    const gone = new Map(Array.from(txn.all(this.#endpoints), (row) => [row.id, row]));
    for (const after of endpoints) {
      const before = gone.get(after.id);
      gone.delete(after.id);
      if (before?.wanted === after.wanted && before.held === after.held) continue;
      txn.upsert(this.#endpoints, after);
      note(before, after);
    }
    for (const before of gone.values()) {
      txn.delete(this.#endpoints, tableKey.endpoint(before.id));
      note(before, undefined);
    }
    return moves.values();
  }

  #change(txn: WriteTxn, uid: string, changes: ReadonlyMap<number, number>): void {
    const generations = new Map(txn.get(this.#policies, uid)?.generations);
    for (const [generation, change] of changes) {
      const count = (generations.get(generation) ?? 0) + change;
      if (count === 0) generations.delete(generation);
      else generations.set(generation, count);
    }
    if (generations.size === 0) txn.delete(this.#policies, uid);
    else txn.upsert(this.#policies, { uid, generations });
  }
}

/** Those that the endpoint has of all policies that it is to have; 0: none yet. */
function generationsOf(endpoint: CountedEndpoint | undefined): Generations {
  if (endpoint === undefined) return NONE;
  const { wanted, held } = endpoint;
  if (wanted === held) return held;
  return { ...Object.fromEntries(Object.keys(wanted).map((uid) => [uid, 0])), ...held };
}

function* differing(a: Generations, b: Generations): Generator<string> {
  for (const uid of Object.keys(a)) if (a[uid] !== b[uid]) yield uid;
  for (const uid of Object.keys(b)) if (a[uid] === undefined) yield uid;
}
