import type { PortNames, PortProtocol } from '@weir/policy';
import type { ContainerPort } from '../tables.ts';
import type { Pace } from './pace.ts';

/** Who gives the names, and the identity that its address has. */
interface Claim {
  readonly identity: number;
  readonly ports: readonly ContainerPort[];
}

/** Text that is equal for equal names only. */
export function portNameKey(protocol: PortProtocol, name: string): string {
  return `${protocol}/${name}`;
}

/**
 * The numbers that pods of each identity give each port name: what rules by name mean for egress. A name counts from the plan in
 * which its pod comes until the plan after the one in which the pod's address goes or gets another identity. So a number is denied
 * before an address with it is reached, and no number becomes the only one while an address with another is still there.
 *
 * Where unknown peers are judged otherwise too (a name that is denied), endpoints first move to the slot that says so: addresses
 * that come with the names wait (`hold`) for the plan after it.
 */
export class PeerPortNames {
  readonly #wanted = new Map<string, Claim>();
  readonly #dirty = new Set<string>();
  readonly #counted = new Map<string, Claim>();
  #leaving: Claim[] = [];
  #arrived = new Set<number>();
  #held = false;
  readonly #pace: Pace;
  /** Name -> identity -> number -> pods. */
  readonly #pods = new Map<string, Map<number, Map<number, number>>>();
  /** Name -> identity -> numbers, ascending. */
  readonly #numbers = new Map<string, Map<number, readonly number[]>>();

  constructor(pace: Pace) {
    this.#pace = pace;
  }

  /** What one pod says, by any name that is the pod's own; no ports: nothing (any more). */
  set(owner: string, identity: number, ports: readonly ContainerPort[]): void {
    if (ports.length > 0 && identity !== 0) this.#wanted.set(owner, { identity, ports });
    else if (!this.#wanted.delete(owner)) return;
    this.#dirty.add(owner);
  }

  /** A plan begins: takes in what has changed. Returns the names that may mean something else now. */
  async settle(): Promise<Set<string>> {
    const changed = new Set<string>();
    if (!this.#held) {
      for (const claim of this.#leaving) this.#count(claim, -1, changed);
      this.#leaving = [];
    }
    this.#held = false;
    this.#arrived = new Set();
    for (const owner of this.#dirty) {
      if (this.#pace.due()) await this.#pace.breathe();
      const before = this.#counted.get(owner);
      const after = this.#wanted.get(owner);
      if (after !== undefined) {
        this.#count(after, 1, changed);
        this.#counted.set(owner, after);
        this.#arrived.add(after.identity);
      } else this.#counted.delete(owner);
      if (before !== undefined) this.#leaving.push(before);
    }
    this.#dirty.clear();
    return changed;
  }

  /**
   * Addresses do not get the identities of pods that came with this plan before the next one; what leaves with them stays as long.
   * Returns those identities.
   */
  hold(): ReadonlySet<number> {
    this.#held = true;
    return this.#arrived;
  }

  /** Names that some pod gave and gives no more, and that the next plan is to forget. */
  *leaving(): Generator<string> {
    for (const { ports } of this.#leaving) for (const { protocol, name } of ports) yield portNameKey(protocol, name);
  }

  readonly peers: PortNames['peers'] = (name, protocol) => this.#numbers.get(portNameKey(protocol, name)) ?? NOBODY;

  #count({ identity, ports }: Claim, by: number, changed: Set<string>): void {
    for (const { protocol, name, port } of ports) {
      const key = portNameKey(protocol, name);
      const pods = child(this.#pods, key);
      const counts = child(pods, identity);
      const next = (counts.get(port) ?? 0) + by;
      if (next === 0) counts.delete(port);
      else counts.set(port, next);
      if (next !== 0 && next !== by) continue;
      changed.add(key);
      const numbers = child(this.#numbers, key);
      if (counts.size > 0)
        numbers.set(
          identity,
          [...counts.keys()].sort((a, b) => a - b),
        );
      else {
        pods.delete(identity);
        numbers.delete(identity);
      }
      if (pods.size > 0) continue;
      this.#pods.delete(key);
      this.#numbers.delete(key);
    }
  }
}

const NOBODY: ReadonlyMap<number, readonly number[]> = new Map();

function child<K, L, V>(of: Map<K, Map<L, V>>, key: K): Map<L, V> {
  let found = of.get(key);
  if (found === undefined) {
    found = new Map();
    of.set(key, found);
  }
  return found;
}
