/**
 * Which port names of a policy stand for nothing (ResolvedRefs, reason PortNameNotFound).
 *
 * Ingress asks the selected pods for the name, egress the peers. Where no pod is there to ask, nothing is missing. A pod
 * that comes or goes wakes only the policies that ask its identity for names, and only when it is the first or last.
 */
import type { NamedPort, ResolvedRule } from '@weir/policy';
import type { PolicyEntry } from './policy-book.ts';
import type { SelectorIndex } from './selector-index.ts';
import type { PodPort } from './types.ts';

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
/** Entities that stand for pods. */
const POD_ENTITIES = new Set(['all', 'cluster']);

export class PortNames {
  readonly #sets: SelectorIndex;
  readonly #onChange: (policy: string) => void;
  /** Pods by identity. */
  readonly #pods = new Map<number, number>();
  /** `TCP/http` -> identity -> pods that know it. */
  readonly #givers = new Map<string, Map<number, number>>();
  /** Policies that use a name, ask the members of a peer set for names, or ask all pods. */
  readonly #users = new Map<string, Set<string>>();
  readonly #askers = new Map<string, Set<string>>();
  readonly #askersOfAll = new Set<string>();

  /** `onChange`: the answer for this policy may have changed. */
  constructor(sets: SelectorIndex, onChange: (policy: string) => void) {
    this.#sets = sets;
    this.#onChange = onChange;
  }

  move(before: Namer | undefined, after: Namer | undefined): void {
    if (before?.identity === after?.identity && before?.ports === after?.ports) return;
    // First the new: what both have is not missed in between.
    for (const [namer, by] of [
      [after, 1],
      [before, -1],
    ] as const) {
      if (namer === undefined) continue;
      if (step(this.#pods, namer.identity, by)) this.#populated(namer.identity);
      for (const port of namer.ports) this.#give(`${port.protocol}/${port.name}`, namer.identity, by);
    }
  }

  setPolicy(key: string, before: PolicyEntry | undefined, after: PolicyEntry | undefined): void {
    for (const [entry, change] of [
      [before, leave],
      [after, join],
    ] as const) {
      for (const rule of entry?.resolved?.rules ?? []) {
        const named = namedPorts(rule);
        for (const port of named) change(this.#users, keyOf(port), key);
        if (named.length === 0) continue;
        const { hashes, everyone } = askedBy(rule);
        for (const hash of hashes) change(this.#askers, hash, key);
        if (everyone && change === join) this.#askersOfAll.add(key);
        else if (everyone) this.#askersOfAll.delete(key);
      }
    }
  }

  /** Names in `rules` that nobody who was asked knows. */
  missing(rules: readonly ResolvedRule[]): MissingName[] {
    const answers = new Map<string, { answer: Answer; readonly missing: MissingName }>();
    for (const rule of rules) {
      for (const port of namedPorts(rule)) {
        const { path, direction } = rule;
        const key = `${path} ${direction} ${port.name}`;
        const answer = this.#answer(rule, port);
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

  #answer(rule: ResolvedRule, port: NamedPort): Answer {
    const { hashes, everyone } = askedBy(rule);
    const givers = this.#givers.get(keyOf(port)) ?? new Map<number, number>();
    if (everyone) {
      if (givers.size > 0) return 'found';
      return this.#pods.size === 0 ? 'nobody' : 'missing';
    }
    // Nobody is meant, or only addresses and nodes, which give no port a name.
    if (hashes.length === 0) return rule.peers?.length === 0 ? 'nobody' : 'missing';
    let somebody = false;
    for (const hash of hashes) {
      const members = this.#sets.members(hash) ?? new Set<number>();
      const [few, many] = members.size < givers.size ? [members, givers] : [givers, members];
      for (const id of few.keys()) if (many.has(id)) return 'found';
      for (const id of somebody ? [] : members) somebody ||= this.#pods.has(id);
    }
    return somebody ? 'missing' : 'nobody';
  }

  #give(name: string, identity: number, by: 1 | -1): void {
    const givers = this.#givers.get(name) ?? new Map<number, number>();
    const changed = step(givers, identity, by);
    if (givers.size === 0) this.#givers.delete(name);
    else this.#givers.set(name, givers);
    if (changed) for (const key of this.#users.get(name) ?? []) this.#onChange(key);
  }

  #populated(identity: number): void {
    if (this.#askers.size > 0) {
      for (const hash of this.#sets.setsOf(identity)) {
        for (const key of this.#askers.get(hash) ?? []) this.#onChange(key);
      }
    }
    if (this.#pods.size <= 1) for (const key of this.#askersOfAll) this.#onChange(key);
  }
}

function askedBy(rule: ResolvedRule): { readonly hashes: readonly string[]; readonly everyone: boolean } {
  if (rule.direction === 'ingress') return { hashes: [rule.subject], everyone: false };
  return {
    hashes: (rule.peers ?? []).flatMap((peer) => ('peerSet' in peer ? [peer.peerSet] : [])),
    everyone: rule.peers?.some((peer) => 'entity' in peer && POD_ENTITIES.has(peer.entity)) ?? true,
  };
}

function namedPorts(rule: ResolvedRule): NamedPort[] {
  return (rule.ports ?? []).filter((port): port is NamedPort => 'name' in port);
}

function keyOf({ protocol, name }: NamedPort): string {
  return `${protocol}/${name}`;
}

function better(a: Answer, b: Answer): Answer {
  if (a === 'found' || b === 'found') return 'found';
  return a === 'missing' || b === 'missing' ? 'missing' : 'nobody';
}

/** Whether the key came or went. */
function step<K>(counts: Map<K, number>, key: K, by: 1 | -1): boolean {
  const before = counts.get(key) ?? 0;
  if (before + by === 0) counts.delete(key);
  else counts.set(key, before + by);
  return before === 0 || before + by === 0;
}

function join(map: Map<string, Set<string>>, key: string, value: string): void {
  const set = map.get(key);
  if (set === undefined) map.set(key, new Set([value]));
  else set.add(value);
}

function leave(map: Map<string, Set<string>>, key: string, value: string): void {
  const set = map.get(key);
  set?.delete(value);
  if (set?.size === 0) map.delete(key);
}
