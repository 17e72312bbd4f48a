/**
 * Pods on the network of their node, which have no identity: no policy applies to them, and as peers they are their node. The status of a policy warns
 * of a selector that matches some of them and no other pod.
 *
 * Guarantee: a policy's answer is found again when the first pod of some labels comes, or the last goes, and when pods come to its sets or leave them.
 * Pods of equal labels are one group, and so many groups are looked at for one selector at most.
 */
import { type LabelMap, labelsKey, matches, podIdentityLabels } from '@weir/labels';
import type { PolicyProblem, ResolvedRule } from '@weir/policy';
import type { AnyTable, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { Tables } from '../tables.ts';
import type { PodRow } from '../types.ts';
import type { Census } from './census.ts';
import type { PolicyBook, PolicyEntry } from './policy-book.ts';
import type { SelectorIndex } from './selector-index.ts';

/** Of one policy: selectors that are looked at, groups and identities for each of them, and warnings. */
const MOST_SELECTORS = 50;
const MOST_LOOKS = 200;
const MOST_WARNINGS = 5;

interface HostPod {
  /** `namespace/name` */
  readonly key: string;
  readonly group: string;
}

interface Group {
  /** By its labels. */
  readonly id: string;
  readonly labels: LabelMap;
}

export interface HostPodsSources {
  readonly tables: Pick<Tables, 'namespaces'>;
  readonly cluster: string;
  readonly sets: SelectorIndex;
  readonly policies: PolicyBook;
  readonly census: Census;
}

export class HostPods {
  readonly #sources: HostPodsSources;
  readonly #onChange: (txn: WriteTxn, policy: string) => void;
  readonly #pods: Table<HostPod>;
  readonly #groups: Table<Group>;

  /** `onChange`: the answer for this policy may have changed. */
  constructor(db: StateDB, sources: HostPodsSources, onChange: (txn: WriteTxn, policy: string) => void) {
    this.#sources = sources;
    this.#onChange = onChange;
    this.#pods = db.table<HostPod>({
      name: 'hostPods',
      key: ({ key }) => key,
      indexes: [{ name: 'group', keys: ({ group }) => [group] }],
    });
    this.#groups = db.table<Group>({ name: 'hostPodLabels', key: ({ id }) => id });
  }

  get tables(): readonly AnyTable[] {
    return [this.#pods, this.#groups];
  }

  /** The pod has come or changed, or its namespace has; undefined: it is gone. */
  set(txn: WriteTxn, key: string, row: PodRow | undefined): void {
    const labels = row === undefined ? undefined : this.#labelsOf(txn, row);
    const group = labels === undefined ? undefined : labelsKey(labels);
    const before = txn.get(this.#pods, key)?.group;
    if (before === group) return;
    if (group === undefined) txn.delete(this.#pods, key);
    else txn.upsert(this.#pods, { key, group });
    if (group !== undefined && labels !== undefined && !txn.has(this.#groups, group)) {
      txn.insert(this.#groups, { id: group, labels });
      this.#changed(txn, labels);
    }
    if (before !== undefined && txn.list(this.#pods, 'group', before).next().done === true) {
      const gone = txn.delete(this.#groups, before);
      if (gone !== undefined) this.#changed(txn, gone.labels);
    }
  }

  /** The members of this set, or their pods, are others. */
  moved(txn: WriteTxn, hash: string): void {
    if (this.#matched(txn, hash) === undefined) return;
    for (const key of [...this.#sources.policies.naming(txn, hash)]) this.#onChange(txn, key);
  }

  /** What the policy's status is to warn of. */
  warnings(reader: Reader, { resolved, selectors }: PolicyEntry): readonly PolicyProblem[] {
    const found: PolicyProblem[] = [];
    if (reader.count(this.#groups) === 0) return found;
    for (const hash of [...selectors.keys()].slice(0, MOST_SELECTORS)) {
      if (found.length === MOST_WARNINGS) return found;
      const group = this.#matched(reader, hash);
      if (group === undefined || this.#hasOthers(reader, hash)) continue;
      const rule = resolved?.rules.find(
        ({ subject, peers = [] }) =>
          subject === hash || peers.some((peer) => 'peerSet' in peer && peer.peerSet === hash),
      );
      if (rule !== undefined)
        found.push({ code: 'Warning', path: rule.path, message: this.#told(reader, group, rule, hash) });
    }
    return found;
  }

  #told(reader: Reader, { id }: Group, { subject, direction }: ResolvedRule, hash: string): string {
    const [pod] = reader.list(this.#pods, 'group', id);
    const who = `all pods that are selected, such as ${pod?.key}, are on the network of their node`;
    if (subject === hash) return `${who}: no policy applies to them`;
    const word = direction === 'ingress' ? 'from' : 'to';
    return `${who}, and so are their node to a policy: write ${word}Entities (host, remote-node)`;
  }

  /** A group that the set's selector matches. */
  #matched(reader: Reader, hash: string): Group | undefined {
    const selector = this.#sources.sets.selector(reader, hash);
    let looks = MOST_LOOKS;
    for (const group of selector === undefined ? [] : reader.all(this.#groups)) {
      if (looks === 0) return undefined;
      looks -= 1;
      if (selector !== undefined && matches(selector, group.labels)) return group;
    }
    return undefined;
  }

  /** Whether the set has a pod with an identity, or so many identities that it is not looked at. */
  #hasOthers(reader: Reader, hash: string): boolean {
    const { sets, census } = this.#sources;
    let looks = MOST_LOOKS;
    for (const identity of sets.matched(reader, hash)) {
      if (looks === 0 || census.has(reader, identity)) return true;
      looks -= 1;
    }
    return false;
  }

  #changed(txn: WriteTxn, labels: LabelMap): void {
    const { sets, policies } = this.#sources;
    const found = new Set([...sets.selecting(txn, labels)].flatMap((hash) => [...policies.naming(txn, hash)]));
    for (const key of found) this.#onChange(txn, key);
  }

  #labelsOf(reader: Reader, row: PodRow): LabelMap | undefined {
    const { tables, cluster } = this.#sources;
    const namespace = reader.get(tables.namespaces, row.namespace);
    if (!row.hostNetwork || row.finished || namespace === undefined) return undefined;
    return podIdentityLabels({
      namespace: row.namespace,
      namespaceLabels: namespace.labels,
      podLabels: row.labels,
      serviceAccount: row.serviceAccount,
      cluster,
    });
  }
}
