/**
 * Which port names of a policy stand for nothing (ResolvedRefs, reason PortNameNotFound).
 *
 * Ingress asks the selected pods for the name, egress the peers. Where no pod is there to ask, nothing is missing. A pod
 * that comes or goes wakes only the policies that ask its identity for names, and only when it is the first or last.
 */
import type { NamedPort, ResolvedRule } from '@weir/policy';
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { PodPort } from '../types.ts';
import { askedBy, namedPorts, portNameKey } from './asked-names.ts';
import type { Census } from './census.ts';
import { identityKey } from './known-identities.ts';
import type { PolicyBook } from './policy-book.ts';
import type { SelectorIndex } from './selector-index.ts';

/** A pod that has an identity and an address, with the names that it gives ports. */
export interface Namer {
  readonly identity: number;
  readonly ports: readonly PodPort[];
}

/** A name that no asked pod knows. */
export interface MissingName {
  readonly path: string;
  readonly name: string;
  /** As the rule says: `TCP`, or several. */
  readonly protocols: readonly string[];
  /** Who was asked. */
  readonly asked: 'selected pods' | 'peers';
}

type Answer = 'found' | 'nobody' | 'missing';

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

  /** `onChange`: the answer for this policy may have changed. */
  constructor(db: StateDB, sources: PortNamesSources, onChange: (txn: WriteTxn, policy: string) => void) {
    this.#sources = sources;
    this.#onChange = onChange;
    this.#givers = db.table<Giver>({ name: 'named-ports', key: ({ name, identity }) => giverKey(name, identity) });
  }

  get tables(): readonly AnyTable[] {
    return [this.#givers];
  }

  move(txn: WriteTxn, before: Namer | undefined, after: Namer | undefined): void {
    if (before?.identity === after?.identity && before?.ports === after?.ports) return;
    // First the new: what both have is not missed in between.
    this.#count(txn, after, 1);
    this.#count(txn, before, -1);
  }

  /** The first pod of an identity has come, or the last has gone. */
  presence(txn: WriteTxn, identity: number): void {
    const { sets, policies, census } = this.#sources;
    for (const hash of sets.setsOf(txn, identity)) this.#wake(txn, policies.asking(txn, hash));
    if (census.places(txn) <= 1) this.#wake(txn, policies.askingEveryone(txn));
  }

  /** Names in `rules` that nobody who was asked knows. */
  missing(reader: Reader, rules: readonly ResolvedRule[]): MissingName[] {
    const answers = new Map<string, { answer: Answer; readonly missing: MissingName }>();
    for (const rule of rules) {
      for (const port of namedPorts(rule)) {
        const { path, direction } = rule;
        const key = `${path} ${direction} ${port.name}`;
        const answer = this.#answer(reader, rule, port);
        const known = answers.get(key);
        if (known === undefined) {
          const asked = direction === 'ingress' ? 'selected pods' : 'peers';
          answers.set(key, { answer, missing: { path, name: port.name, protocols: [port.protocol], asked } });
          continue;
        }
        const protocols = [...new Set([...known.missing.protocols, port.protocol])];
        answers.set(key, { answer: better(known.answer, answer), missing: { ...known.missing, protocols } });
      }
    }
    return [...answers.values()].filter(({ answer }) => answer === 'missing').map(({ missing }) => missing);
  }

  #answer(reader: Reader, rule: ResolvedRule, port: NamedPort): Answer {
    const { sets, census } = this.#sources;
    const { hashes, everyone } = askedBy(rule);
    const name = portNameKey(port);
    if (everyone) {
      for (const _ of this.#giversOf(reader, name)) return 'found';
      return census.places(reader) === 0 ? 'nobody' : 'missing';
    }
    // Nobody is meant, or only addresses and nodes, which give no port a name.
    if (hashes.length === 0) return rule.peers?.length === 0 ? 'nobody' : 'missing';
    if (hashes.some((hash) => this.#isGivenBy(reader, name, hash))) return 'found';
    for (const hash of hashes) {
      for (const id of sets.members(reader, hash)) if (census.has(reader, id)) return 'missing';
    }
    return 'nobody';
  }

  /** Whether a member of the set gives the name: walks both, and is done at the end of the shorter one. */
  #isGivenBy(reader: Reader, name: string, hash: string): boolean {
    const { sets } = this.#sources;
    const givers = this.#giversOf(reader, name);
    for (const id of sets.members(reader, hash)) {
      if (reader.has(this.#givers, giverKey(name, id))) return true;
      const { value: giver, done } = givers.next();
      if (done === true) return false;
      if (sets.has(reader, hash, giver.identity)) return true;
    }
    return false;
  }

  #giversOf(reader: Reader, name: string): IterableIterator<Giver, undefined> {
    return reader.prefix(this.#givers, keys.join(name));
  }

  #count(txn: WriteTxn, namer: Namer | undefined, by: 1 | -1): void {
    if (namer === undefined) return;
    const { identity } = namer;
    for (const port of namer.ports) {
      const name = portNameKey(port);
      const before = txn.get(this.#givers, giverKey(name, identity))?.pods ?? 0;
      const pods = before + by;
      if (pods === 0) txn.delete(this.#givers, giverKey(name, identity));
      else txn.upsert(this.#givers, { name, identity, pods });
      if (before === 0 || pods === 0) this.#wake(txn, this.#sources.policies.usingPortName(txn, name));
    }
  }

  #wake(txn: WriteTxn, policies: Iterable<string>): void {
    for (const policy of policies) this.#onChange(txn, policy);
  }
}

function giverKey(name: string, identity: number): string {
  return keys.join(name, identityKey(identity));
}

function better(a: Answer, b: Answer): Answer {
  if (a === 'found' || b === 'found') return 'found';
  return a === 'missing' || b === 'missing' ? 'missing' : 'nobody';
}
