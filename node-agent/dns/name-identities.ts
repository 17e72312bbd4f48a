/** Which patterns of names rules name, and the identities that addresses have by them: of each pattern one, and of each set of patterns that the proxy meets. */
import { isDeepStrictEqual } from 'node:util';
import type { ResolvedRule } from '@weir/policy';
import { type ChangeStream, type Derivation, derive, keys, type Table } from '@weir/statedb';
import type { Core, Logger } from '../core.ts';
import type { NameIdentityRow } from '../tables.ts';

const MOST_SETS = 4096;
/** The row of `proxyFaults`. */
const FAULT = 'names';

interface NameUse {
  readonly policy: string;
  readonly pattern: string;
}

export interface NameIdentitiesOptions {
  readonly core: Pick<Core, 'db' | 'tables' | 'numbers' | 'policyRevision' | 'waitPolicyRevision'>;
  readonly log: Logger;
  /** Sets of patterns of a node: each takes an element of the slots whose rules name one of them. */
  readonly mostSets?: number;
}

export class NameIdentities {
  readonly #options: NameIdentitiesOptions;
  readonly #uses: Table<NameUse, 'pattern'>;
  readonly #complete: () => void;
  readonly #stop = new AbortController();
  #derivation: Derivation | undefined;
  #running: Promise<void> | undefined;

  constructor(options: NameIdentitiesOptions) {
    this.#options = options;
    const { db, tables } = options.core;
    this.#uses = db.table<NameUse, 'pattern'>({
      name: 'nameUses',
      key: ({ policy, pattern }) => keys.join(policy, pattern),
      indexes: [{ name: 'pattern', keys: ({ pattern }) => [pattern] }],
      equals: isDeepStrictEqual,
    });
    // Rules wait for it: slots would lose the identities that addresses have.
    const done = db.initialiser(tables.nameIdentities, 'dns');
    this.#complete = () => db.write([tables.nameIdentities], (txn) => done(txn));
  }

  get #most(): number {
    return this.#options.mostSets ?? MOST_SETS;
  }

  start(): void {
    const { db, tables } = this.#options.core;
    this.#derivation = derive(db, {
      name: 'nameUses',
      into: this.#uses,
      inputs: [tables.policies],
      fn: ({ uid, rules }) => [...patternsOf(rules)].map((pattern) => ({ policy: uid, pattern })),
    });
    this.#running = this.#follow(this.#stop.signal);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.#derivation?.[Symbol.dispose]();
  }

  /** The proxy has met addresses with names of all of these: they get an identity. What no rule names any more is left out. */
  want(selectors: readonly number[]): void {
    const { db, tables, numbers } = this.#options.core;
    using snapshot = db.read();
    const patterns = selectors.map((selector) => snapshot.get(tables.nameIdentities, keys.uint(selector))?.patterns[0]);
    if (patterns.some((pattern) => pattern === undefined)) return;
    const list = patterns.filter((pattern) => pattern !== undefined).sort();
    for (const known of snapshot.list(tables.nameIdentities, 'pattern', list[0] ?? ''))
      if (isDeepStrictEqual(known.patterns, list)) return;
    if (snapshot.count(tables.nameIdentities) >= this.#most) this.#full();
    else this.#put([{ identity: numbers.names(list), patterns: list }]);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { db, tables } = this.#options.core;
    using stream = db.changes(this.#uses, { name: 'name-identities' });
    try {
      await db.initialisedWatch(tables.policies as Table<unknown>).wait(signal);
      this.#derivation?.flush();
      await this.#take(stream);
      this.#restore();
      this.#complete();
      for (;;) {
        await stream.watch().wait(signal);
        await this.#take(stream);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async #take(stream: ChangeStream<NameUse>): Promise<void> {
    const { db, tables, numbers } = this.#options.core;
    const patterns = new Set(stream.next().map(({ row }) => row.pattern));
    const come: NameIdentityRow[] = [];
    const gone: NameIdentityRow[] = [];
    {
      using snapshot = db.read();
      for (const pattern of patterns) {
        if (snapshot.list(this.#uses, 'pattern', pattern).next().done !== true)
          come.push({ identity: numbers.names([pattern]), patterns: [pattern] });
        else gone.push(...snapshot.list(tables.nameIdentities, 'pattern', pattern));
      }
    }
    this.#put(come);
    if (gone.length === 0) return;
    db.write([tables.nameIdentities, tables.proxyFaults], (txn) => {
      for (const { identity } of gone) txn.delete(tables.nameIdentities, keys.uint(identity));
      if (txn.count(tables.nameIdentities) < this.#most) txn.delete(tables.proxyFaults, FAULT);
    });
    void this.#release(gone);
  }

  /** Addresses whose names are of another set count as those of a part of it. */
  #full(): void {
    const { db, tables } = this.#options.core;
    const message =
      `addresses on this node have names of ${this.#most} sets of patterns, and there may be no more: what has names of another set is allowed by some ` +
      'of its patterns alone; write one pattern for many names, or have rules name the same patterns';
    db.write([tables.proxyFaults], (txn) => {
      if (txn.get(tables.proxyFaults, FAULT) === undefined)
        txn.upsert(tables.proxyFaults, { proxy: FAULT, reason: 'NamesExceeded', message });
    });
  }

  /** Their numbers are given out again once no slot has them. */
  async #release(gone: readonly NameIdentityRow[]): Promise<void> {
    const { core, log } = this.#options;
    try {
      await core.waitPolicyRevision(core.policyRevision(), this.#stop.signal);
      using snapshot = core.db.read();
      for (const { identity, patterns } of gone)
        if (snapshot.get(core.tables.nameIdentities, keys.uint(identity)) === undefined)
          core.numbers.releaseNames(patterns);
    } catch (error) {
      if (!this.#stop.signal.aborted) log.debug({ err: error }, 'numbers of names are kept');
    }
  }

  /** Sets that addresses had in an earlier run have their identities at once. */
  #restore(): void {
    const { db, numbers } = this.#options.core;
    using snapshot = db.read();
    const isUsed = (pattern: string): boolean => snapshot.list(this.#uses, 'pattern', pattern).next().done !== true;
    const known = [...numbers.eachNames()];
    for (const [, patterns] of known) if (!patterns.every(isUsed)) numbers.releaseNames(patterns);
    const rows = known.filter(([, patterns]) => patterns.every(isUsed)).slice(0, this.#most);
    this.#put(rows.map(([identity, patterns]) => ({ identity, patterns })));
  }

  #put(rows: readonly NameIdentityRow[]): void {
    const { db, tables } = this.#options.core;
    if (rows.length === 0) return;
    db.write([tables.nameIdentities], (txn) => {
      for (const row of rows)
        if (txn.get(tables.nameIdentities, keys.uint(row.identity)) === undefined)
          txn.upsert(tables.nameIdentities, row);
    });
  }
}

function patternsOf(rules: readonly ResolvedRule[]): ReadonlySet<string> {
  return new Set(rules.flatMap(({ peers = [] }) => peers.flatMap((peer) => ('fqdn' in peer ? [peer.fqdn] : []))));
}
