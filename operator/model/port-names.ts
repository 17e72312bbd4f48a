/**
 * Which port names of a policy stand for nothing (ResolvedRefs, reason PortNameNotFound).
 *
 * Ingress asks the selected pods for the name, egress the peers. Where no pod is there to ask, nothing is missing. A pod
 * that comes or goes wakes only the policies that ask its identity for names, and only when it is the first or last: as the identity comes to the
 * sets that are asked, or when they are looked at for it (SelectorIndex). Until then they do without it.
 *
 * What was found for a policy is kept until pods change. They may do so while it is looked for: then it is told as it is, and looked for again,
 * so that no one who changes pods all the time delays it for ever.
 */
import type { ResolvedRule } from '@weir/policy';
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { PodPort } from '../types.ts';
import { portNameKey } from './asked-names.ts';
import type { Census } from './census.ts';
import { identityKey } from './known-identities.ts';
import {
  type Answer,
  goOn,
  type MissingNames,
  type NameSearch,
  NONE_MISSING,
  namesPorts,
  type Pods,
  searchFor,
} from './name-search.ts';
import type { PolicyBook } from './policy-book.ts';
import type { SelectorIndex } from './selector-index.ts';

/** A pod that has an identity and an address, with the names that it gives ports. */
export interface Namer {
  readonly identity: number;
  readonly ports: readonly PodPort[];
}

/** An identity that gives ports a name (`TCP/http`), with the number of its pods that do. */
interface Giver {
  readonly name: string;
  readonly identity: number;
  readonly pods: number;
}

export interface PortNamesSources {
  readonly sets: SelectorIndex;
  readonly policies: PolicyBook;
  readonly census: Census;
}

export class PortNames {
  readonly #sources: PortNamesSources;
  readonly #onChange: (txn: WriteTxn, policy: string) => void;
  readonly #givers: Table<Giver>;
  readonly #searches: Table<NameSearch>;

  /** `onChange`: the answer for this policy may have changed. */
  constructor(db: StateDB, sources: PortNamesSources, onChange: (txn: WriteTxn, policy: string) => void) {
    this.#sources = sources;
    this.#onChange = onChange;
    this.#givers = db.table<Giver>({ name: 'named-ports', key: ({ name, identity }) => giverKey(name, identity) });
    this.#searches = db.table<NameSearch>({ name: 'port-name-searches', key: ({ policy }) => policy });
  }

  get tables(): readonly AnyTable[] {
    return [this.#givers, this.#searches];
  }

  move(txn: WriteTxn, before: Namer | undefined, after: Namer | undefined): void {
    if (before?.identity === after?.identity && before?.ports === after?.ports) return;
    // First the new: what both have is not missed in between. Many policies may name all of them, and each is woken once.
    const names = [...this.#count(txn, after, 1), ...this.#count(txn, before, -1)];
    const policies = new Set<string>();
    for (const name of names)
      for (const policy of this.#sources.policies.usingPortName(txn, name)) policies.add(policy);
    this.#wake(txn, policies);
  }

  /** The first pod of an identity has come, or the last has gone. */
  presence(txn: WriteTxn, identity: number): void {
    const { sets, policies, census } = this.#sources;
    sets.presence(txn, identity);
    if (census.places(txn) <= 1) this.#wake(txn, policies.askingEveryone(txn));
  }

  /** The members of this set, or their pods, are others. */
  moved(txn: WriteTxn, hash: string): void {
    this.#wake(txn, this.#sources.policies.asking(txn, hash));
  }

  /**
   * What a piece more of the search for a policy's names finds, until pods change or its rules do; undefined: it is not at its end, and is to be
   * called again.
   */
  missing(txn: WriteTxn, policy: string, rules: readonly ResolvedRule[]): MissingNames | undefined {
    const known = txn.get(this.#searches, policy);
    if (!namesPorts(rules)) {
      if (known !== undefined) this.forget(txn, policy);
      return NONE_MISSING;
    }
    const holds = known?.rules === rules && (known.at !== undefined || !known.stale);
    const before = holds ? known : searchFor(policy, rules);
    if (before.at === undefined) return before.found;
    const after = goOn(before, this.#pods(txn));
    txn.upsert(this.#searches, after);
    return after.at === undefined ? after.found : undefined;
  }

  /** Whether the search has begun, and is not at its end. */
  isSearching(reader: Reader, policy: string): boolean {
    return reader.get(this.#searches, policy)?.at !== undefined;
  }

  /** Whether pods have changed since the search began: what it has found may be another thing by now. */
  isStale(reader: Reader, policy: string): boolean {
    return reader.get(this.#searches, policy)?.stale === true;
  }

  forget(txn: WriteTxn, policy: string): void {
    txn.delete(this.#searches, policy);
  }

  #pods(reader: Reader): Pods {
    const { census } = this.#sources;
    return {
      anybodyGives: (name) => this.#giversOf(reader, name).next().done !== true,
      gives: (hash, name) => this.#gives(reader, hash, name),
      isInhabited: (hash) => this.#isInhabited(reader, hash),
      anybody: () => census.places(reader) > 0,
    };
  }

  #isInhabited(reader: Reader, hash: string): Answer {
    const { sets, census } = this.#sources;
    let looks = 0;
    for (const id of sets.members(reader, hash)) {
      looks += 1;
      if (census.has(reader, id)) return { is: true, looks };
    }
    return { is: false, looks };
  }

  /** Walks the members of the set and the givers of the name, and is done at the end of the shorter ones. */
  #gives(reader: Reader, hash: string, name: string): Answer {
    const { sets } = this.#sources;
    const givers = this.#giversOf(reader, name);
    let looks = 0;
    for (const id of sets.members(reader, hash)) {
      looks += 1;
      if (reader.has(this.#givers, giverKey(name, id))) return { is: true, looks };
      const { value: giver, done } = givers.next();
      if (done === true) break;
      if (sets.has(reader, hash, giver.identity)) return { is: true, looks };
    }
    return { is: false, looks };
  }

  #giversOf(reader: Reader, name: string): IterableIterator<Giver, undefined> {
    return reader.prefix(this.#givers, keys.join(name));
  }

  /** Returns the names that the identity has begun or ceased to give. */
  #count(txn: WriteTxn, namer: Namer | undefined, by: 1 | -1): string[] {
    const changed: string[] = [];
    const { identity = 0, ports = [] } = namer ?? {};
    for (const port of ports) {
      const name = portNameKey(port);
      const before = txn.get(this.#givers, giverKey(name, identity))?.pods ?? 0;
      const pods = before + by;
      if (pods === 0) txn.delete(this.#givers, giverKey(name, identity));
      else txn.upsert(this.#givers, { name, identity, pods });
      if (before === 0 || pods === 0) changed.push(name);
    }
    return changed;
  }

  #wake(txn: WriteTxn, policies: Iterable<string>): void {
    for (const policy of policies) {
      const search = txn.get(this.#searches, policy);
      if (search?.stale === false) txn.upsert(this.#searches, { ...search, stale: true });
      this.#onChange(txn, policy);
    }
  }
}

function giverKey(name: string, identity: number): string {
  return keys.join(name, identityKey(identity));
}
