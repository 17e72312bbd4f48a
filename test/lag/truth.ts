/**
 * Test helper: what a node may decide, from the objects as users wrote them and from what its agent has been told. It shares nothing with
 * agent and operator but the parser and the language's oracle.
 */
import { type LabelMap, labelsKey, matches, podIdentityLabels } from '@weir/labels';
import { type Direction, type OraclePeer, oracleVerdict, parsePolicy, type Rule } from '@weir/policy';
import { peerSetsOf, tableKey } from '../../node-agent/create-tables.ts';
import type { PolicyObjectKind } from '../../operator/types.ts';
import type { LaggingAgent } from './agent.ts';

export interface TruePod {
  readonly uid: string;
  readonly name: string;
  readonly node: string;
  readonly ip: string;
  /** Each label set that it has had. */
  readonly labels: LabelMap[];
}

/** Generation 0: the policy is not there. */
const ABSENT = 0;

/** What one node may go by. */
interface Bounds {
  /** Of each policy: the one that must be in force at least, and those told since. */
  readonly policies: Map<string, Set<number>>;
  /** Of each pod: the first of its label sets that it may be taken for. */
  readonly labels: Map<string, number>;
  /** Pods whose label set the node knows now. */
  readonly known: Set<string>;
  /** Pods whose endpoint was ready once, with the policies that it must not be without. */
  readonly started: Map<string, Set<string>>;
}

export class Truth {
  readonly pods = new Map<string, TruePod>();
  readonly #rules = new Map<string, Map<number, readonly Rule[]>>();
  readonly #bounds = new Map<string, Bounds>();

  policy(uid: string, generation: number, kind: PolicyObjectKind, object: object): void {
    const generations = this.#rules.get(uid) ?? new Map<number, readonly Rule[]>();
    generations.set(generation, parsePolicy(object, kind, { stack: 'dual' }).rules);
    this.#rules.set(uid, generations);
  }

  static labels(podLabels: Record<string, string>): LabelMap {
    return podIdentityLabels({ namespace: 'ns', namespaceLabels: {}, podLabels, serviceAccount: 'default' });
  }

  /** The agent has computed from all that it was told. `caughtUp`: there is nothing else to tell. */
  computed(agent: LaggingAgent, caughtUp = false): void {
    const bounds = this.#of(agent);
    const { db, tables } = agent.world;
    using told = db.read();
    for (const uid of this.#rules.keys()) {
      const row = told.get(tables.policies, uid);
      const before = bounds.policies.get(uid) ?? new Set([ABSENT]);
      const complete = row === undefined || [...peerSetsOf(row)].every((hash) => told.has(tables.peerSets, hash));
      const generation = row?.generation ?? ABSENT;
      bounds.policies.set(uid, complete ? new Set([generation]) : before.add(generation));
      if (complete) for (const needed of bounds.started.values()) needed.delete(uid);
    }
    for (const pod of this.pods.values()) {
      const known = this.#knownLabels(agent, pod);
      if (known === undefined) bounds.known.delete(pod.uid);
      else {
        const from = bounds.labels.get(pod.uid) ?? 0;
        const is = (labels: LabelMap, index: number): boolean => index >= from && labelsKey(labels) === known;
        const at = caughtUp ? pod.labels.findLastIndex(is) : pod.labels.findIndex(is);
        if (at >= 0) bounds.labels.set(pod.uid, at);
        bounds.known.add(pod.uid);
      }
      if (pod.node !== agent.node || bounds.started.has(pod.uid) || !agent.ready(pod.uid)) continue;
      const selecting = [...bounds.policies].filter(
        ([uid, generations]) =>
          generations.size > 1 && this.#selects(uid, generations, this.#candidates(agent, pod)[0]),
      );
      bounds.started.set(pod.uid, new Set(selecting.map(([uid]) => uid)));
    }
  }

  /**
   * The agent has learned who has which address since it started, and not yet by which rules: who has changed is who he is by that, or unknown.
   */
  addressed(agent: LaggingAgent, identities: ReadonlyMap<number, LabelMap>): void {
    const bounds = this.#of(agent);
    const { db, tables } = agent.world;
    using told = db.read();
    for (const pod of this.pods.values()) {
      const isOwn = pod.node === agent.node;
      const row = told.get(tables.remoteEndpoints, tableKey.pod('ns', pod.name));
      const sliced = row?.podUid === pod.uid ? identities.get(row.identity) : undefined;
      const known = isOwn ? this.#knownLabels(agent, pod) : undefined;
      const key = known ?? (sliced && labelsKey(sliced));
      const from = bounds.labels.get(pod.uid) ?? 0;
      const at = pod.labels.findIndex((labels, index) => index >= from && labelsKey(labels) === key);
      if (at > from) bounds.labels.set(pod.uid, at);
      if (at > from || (row === undefined && !isOwn)) bounds.known.delete(pod.uid);
    }
  }

  /** Why what the node decides now is wrong; undefined when it is right. */
  problem(agent: LaggingAgent, ports: readonly number[]): string | undefined {
    const { policies, known, started } = this.#of(agent);
    for (const subject of this.pods.values()) {
      if (subject.node !== agent.node) continue;
      const needed = started.get(subject.uid);
      const rules = [...policies].map(([uid, generations]) =>
        [...generations]
          .filter((generation) => generation !== ABSENT || !needed?.has(uid))
          .map((generation) => this.#rules.get(uid)?.get(generation) ?? []),
      );
      for (const peer of this.pods.values()) {
        if (peer === subject) continue;
        for (const direction of ['ingress', 'egress'] as const) {
          for (const port of ports) {
            const allowed = agent.allows(subject.uid, direction, peer.ip, port);
            if (allowed === undefined) continue;
            const waits = !known.has(peer.uid) || (peer.node === agent.node && !agent.ready(peer.uid));
            const closed = needed === undefined || !agent.ready(subject.uid) || waits;
            if (!allowed && closed) continue;
            const explained = combinations(rules).some((chosen) =>
              this.#candidates(agent, subject).some((labels) =>
                this.#peers(agent, peer).some(
                  (as) => this.#verdict(chosen, direction, subject, labels, as, port) === allowed,
                ),
              ),
            );
            if (explained) continue;
            const told = [...policies].map(([uid, generations]) => `${uid}: ${[...generations].join(' or ')}`);
            return [
              `${agent.node}: ${direction} of ${subject.name} (${this.#apps(agent, subject)})`,
              `with ${peer.name} (${this.#apps(agent, peer)}${known.has(peer.uid) ? '' : ', or unknown'})`,
              `port ${port} is ${allowed ? 'allowed' : 'denied'}; policies ${told.join('; ')}`,
            ].join(' ');
          }
        }
      }
    }
    return undefined;
  }

  /** Whether the node may go by one state of the world only, and every endpoint takes part. */
  settled(agent: LaggingAgent): boolean {
    const { policies, known } = this.#of(agent);
    return (
      [...policies.values()].every(({ size }) => size === 1) &&
      [...this.pods.values()].every(
        (pod) =>
          known.has(pod.uid) &&
          this.#candidates(agent, pod).length === 1 &&
          (pod.node !== agent.node || agent.ready(pod.uid)),
      )
    );
  }

  #of({ node }: LaggingAgent): Bounds {
    const bounds = this.#bounds.get(node) ?? {
      policies: new Map(),
      labels: new Map(),
      known: new Set(),
      started: new Map(),
    };
    this.#bounds.set(node, bounds);
    return bounds;
  }

  /** Key of the labels that the agent was told, and knows an identity for. */
  #knownLabels(agent: LaggingAgent, pod: TruePod): string | undefined {
    const { db, tables } = agent.world;
    using told = db.read();
    if (pod.node === agent.node) {
      const row = told.get(tables.localPods, tableKey.pod('ns', pod.name));
      if (row?.uid !== pod.uid || !told.has(tables.namespaces, 'ns')) return undefined;
      const key = labelsKey(Truth.labels(row.labels));
      return told.list(tables.identities, 'labels', key).next().done === true ? undefined : key;
    }
    const row = told.get(tables.remoteEndpoints, tableKey.pod('ns', pod.name));
    if (row?.podUid !== pod.uid) return undefined;
    return told.get(tables.identities, tableKey.identity(row.identity))?.labelsKey;
  }

  #selects(uid: string, generations: Iterable<number>, labels: LabelMap = {}): boolean {
    const rules = [...generations].flatMap((generation) => this.#rules.get(uid)?.get(generation) ?? []);
    return rules.some(({ subject }) => matches(subject, labels));
  }

  #candidates(agent: LaggingAgent, pod: TruePod): readonly LabelMap[] {
    return pod.labels.slice(this.#of(agent).labels.get(pod.uid) ?? 0);
  }

  #apps(agent: LaggingAgent, pod: TruePod): string {
    return this.#candidates(agent, pod)
      .map((labels) => `${labels['k8s:app']}${labels['k8s:version'] ?? ''}`)
      .join(' or ');
  }

  #peers(agent: LaggingAgent, pod: TruePod): readonly OraclePeer[] {
    const candidates = this.#candidates(agent, pod).map(
      (labels): OraclePeer => ({
        kind: 'endpoint',
        endpoint: { name: pod.name, labels, addresses: [pod.ip], node: pod.node },
      }),
    );
    return this.#of(agent).known.has(pod.uid) ? candidates : [...candidates, { kind: 'unknown' }];
  }

  #verdict(
    rules: readonly Rule[],
    direction: Direction,
    subject: TruePod,
    labels: LabelMap,
    peer: OraclePeer,
    port: number,
  ): boolean {
    const endpoint = { name: subject.name, labels, addresses: [subject.ip], node: subject.node };
    return oracleVerdict(rules, direction, endpoint, peer, { protocol: 6, port }).verdict === 'allow';
  }
}

/** Every choice of one from each list, all in one. */
function combinations(lists: readonly (readonly (readonly Rule[])[])[]): readonly (readonly Rule[])[] {
  return lists.reduce<readonly (readonly Rule[])[]>(
    (chosen, list) => chosen.flatMap((rules) => list.map((more) => [...rules, ...more])),
    [[]],
  );
}
