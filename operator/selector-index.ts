/**
 * Which identities each selector matches. A selector is evaluated when it is new, an identity when it is new; both only
 * within the namespaces that the selector names, when it names any.
 */
import { type LabelMap, type LabelSelector, matches, NAMESPACE_KEY } from '@weir/labels';

interface Entry {
  readonly selector: LabelSelector;
  readonly members: Set<number>;
  readonly owners: Set<string>;
  /** undefined: any namespace. */
  readonly namespaces: readonly string[] | undefined;
}

const NAMESPACE_LABEL = `k8s:${NAMESPACE_KEY}`;

export class SelectorIndex {
  readonly #sets = new Map<string, Entry>();
  readonly #byNamespace = new Map<string, Set<string>>();
  readonly #anywhere = new Set<string>();
  readonly #identities = new Map<number, LabelMap>();
  readonly #identitiesIn = new Map<string, Set<number>>();
  readonly #setsOf = new Map<number, Set<string>>();
  /** Hashes whose members or existence changed since the last drain. */
  readonly #changed = new Set<string>();

  /** Adds an identity; the sets that gain it. */
  addIdentity(id: number, labels: LabelMap): ReadonlySet<string> {
    const namespace = labels[NAMESPACE_LABEL] ?? '';
    this.#identities.set(id, labels);
    into(this.#identitiesIn, namespace, id);
    const gained = new Set<string>();
    this.#setsOf.set(id, gained);
    for (const hashes of [this.#anywhere, this.#byNamespace.get(namespace) ?? []]) {
      for (const hash of hashes) {
        const entry = this.#sets.get(hash);
        if (entry === undefined || !matches(entry.selector, labels)) continue;
        entry.members.add(id);
        gained.add(hash);
        this.#changed.add(hash);
      }
    }
    return gained;
  }

  removeIdentity(id: number): void {
    const labels = this.#identities.get(id);
    if (labels === undefined) return;
    this.#identities.delete(id);
    outOf(this.#identitiesIn, labels[NAMESPACE_LABEL] ?? '', id);
    for (const hash of this.setsOf(id)) {
      this.#sets.get(hash)?.members.delete(id);
      this.#changed.add(hash);
    }
    this.#setsOf.delete(id);
  }

  /** `owner` names the selector `hash`. */
  retain(hash: string, selector: LabelSelector, owner: string): void {
    const known = this.#sets.get(hash);
    if (known !== undefined) {
      known.owners.add(owner);
      return;
    }
    const namespaces = namespacesOf(selector);
    const entry: Entry = { selector, members: new Set(), owners: new Set([owner]), namespaces };
    this.#sets.set(hash, entry);
    this.#changed.add(hash);
    if (namespaces === undefined) this.#anywhere.add(hash);
    else for (const namespace of namespaces) into(this.#byNamespace, namespace, hash);
    const candidates =
      namespaces === undefined
        ? this.#identities.keys()
        : namespaces.flatMap((namespace) => [...(this.#identitiesIn.get(namespace) ?? [])]);
    for (const id of candidates) {
      const labels = this.#identities.get(id);
      if (labels === undefined || !matches(selector, labels)) continue;
      entry.members.add(id);
      this.#setsOf.get(id)?.add(hash);
    }
  }

  /** `owner` names it no longer; the last owner's set is forgotten. */
  release(hash: string, owner: string): void {
    const entry = this.#sets.get(hash);
    if (entry === undefined) return;
    entry.owners.delete(owner);
    if (entry.owners.size > 0) return;
    this.#sets.delete(hash);
    this.#changed.add(hash);
    if (entry.namespaces === undefined) this.#anywhere.delete(hash);
    else for (const namespace of entry.namespaces) outOf(this.#byNamespace, namespace, hash);
    for (const id of entry.members) this.#setsOf.get(id)?.delete(hash);
  }

  selector(hash: string): LabelSelector | undefined {
    return this.#sets.get(hash)?.selector;
  }

  members(hash: string): ReadonlySet<number> | undefined {
    return this.#sets.get(hash)?.members;
  }

  setsOf(id: number): ReadonlySet<string> {
    return this.#setsOf.get(id) ?? new Set();
  }

  /** Hashes that changed since the last call. */
  drainChanged(): string[] {
    const changed = [...this.#changed];
    this.#changed.clear();
    return changed;
  }
}

/** The namespaces outside of which the selector matches nothing; undefined when it is not bound to any. */
function namespacesOf(selector: LabelSelector): readonly string[] | undefined {
  return selector.requirements.find((r) => r.key === NAMESPACE_LABEL && r.operator === 'In')?.values;
}

function into<K, V>(map: Map<K, Set<V>>, key: K, value: V): void {
  const set = map.get(key);
  if (set === undefined) map.set(key, new Set([value]));
  else set.add(value);
}

function outOf<K, V>(map: Map<K, Set<V>>, key: K, value: V): void {
  const set = map.get(key);
  set?.delete(value);
  if (set?.size === 0) map.delete(key);
}
