/** A node's input tables of one size, the agent's model over them, and what single changes of them cost until they are computed. */
import { setImmediate as turn } from 'node:timers/promises';
import { labelsKey } from '@weir/labels';
import type { ResolvedRule } from '@weir/policy';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { Tables } from '../../node-agent/core.ts';
import { createTables, tableKey } from '../../node-agent/create-tables.ts';
import { Model } from '../../node-agent/derive/model.ts';
import { LocalNumbers } from '../../node-agent/derive/numbers.ts';
import { quantile } from './report.ts';
import { collect, type Measured } from './statedb-measure.ts';

export interface AgentLoad {
  /** Pods of this node, each of an app of its own. */
  readonly endpoints: number;
  /** Every second one selects a pod of this node; each names one of PEER_SETS. */
  readonly policies: number;
  /** Of remote pods, one each, in PEER_SETS. */
  readonly identities: number;
  /** Of one policy that selects a pod of this node, each with an exception. */
  readonly cidrs: number;
  /** Policies of one CIDR, each of another pod than that of the many. */
  readonly besides: number;
  /** Of one policy that selects a pod of this node, for each of `portPeers` peer sets. */
  readonly ports: number;
  readonly portPeers: number;
}

const PEER_SETS = 100;
/** Identity numbers of local pods begin here, of remote ones beyond. */
const LOCAL = 256;
const REMOTE = 1024;
/** Changes of each kind, but that a kind that takes longer than BUDGET_MS in all is cut short. */
const REPETITIONS = 200;
const LEAST = 5;
const BUDGET_MS = 8_000;
/** Changes taken in before others may run, as the agent does. */
const PULL = 250;

export async function* measureLoad(load: AgentLoad): AsyncGenerator<Measured> {
  const node = new Node();
  node.fill(load);
  const whole = await node.compute();
  yield { case: 'from nothing', value: whole.ms, unit: 'ms' };
  await collect();
  const { heapUsed, rss } = process.memoryUsage();
  yield { case: 'heap', value: heapUsed / 1e6, unit: 'MB' };
  yield { case: 'resident set', value: rss / 1e6, unit: 'MB' };
  const changes: Readonly<Record<string, (at: number) => void>> = {
    'remote pod': (at) => node.togglePod(at),
    'identity in sets': (at) => node.identity(60_000 + at, `p${at % PEER_SETS}`),
    'identity in no set': (at) => node.identity(62_000 + at, 'of-no-set'),
    'policy edited here': (at) => node.policy(0, load, 2 + at),
    'policy edited elsewhere': (at) => node.policy(1, load, 2 + at),
    'CIDR more': (at) => node.cidrPolicy(load.cidrs + 1 + at, 2 + at),
    ...(load.besides === 0 ? {} : { 'CIDR beside': (at) => node.besidePolicy(0, 2 + at) }),
  };
  for (const [name, change] of Object.entries(changes)) {
    const took: number[] = [];
    let block = 0;
    for (let at = 0, sum = 0; at < REPETITIONS && (at < LEAST || sum < BUDGET_MS); at++) {
      change(at);
      const { ms, longest } = await node.compute();
      took.push(ms);
      sum += ms;
      block = Math.max(block, longest);
    }
    yield { case: `${name} p50`, value: quantile(took, 0.5), unit: 'ms' };
    yield { case: `${name} p99`, value: quantile(took, 0.99), unit: 'ms' };
    yield { case: `${name} longest block`, value: block, unit: 'ms' };
  }
}

class Node {
  readonly #db: StateDB = createStateDB();
  readonly #tables: Tables = createTables(this.#db);
  readonly #model: Model;
  #since = 0;
  #longest = 0;

  constructor() {
    this.#model = new Model({
      db: this.#db,
      tables: this.#tables,
      core: { nodeName: 'self', clusterName: 'default', policyMode: 'default', allowLocalhost: true },
      numbers: new LocalNumbers(this.#db),
      now: () => performance.now(),
      yieldNow: () => this.#yieldNow(),
    });
  }

  /** Takes in what has changed, and computes until nothing is left, as though the kernel took everything at once. */
  async compute(): Promise<{ readonly ms: number; readonly longest: number }> {
    await turn();
    const began = performance.now();
    this.#since = began;
    this.#longest = 0;
    while (this.#model.pull(PULL)) await this.#yieldNow();
    for (let again = true; again; ) {
      const plan = await this.#model.plan();
      this.#model.bump(plan.afterGone);
      this.#model.forgetCidrs(plan.ipcacheGone);
      for (const slot of plan.slotsGone) this.#model.slotReleased(slot);
      again = plan.again;
    }
    this.#stretchEnds();
    return { ms: performance.now() - began, longest: this.#longest };
  }

  fill(load: AgentLoad): void {
    const { namespaces } = this.#tables;
    this.#db.write([namespaces], (txn) => txn.upsert(namespaces, { name: 'ns', labels: {} }));
    for (let at = 0; at < PEER_SETS; at++) this.#peerSet(`p${at}`);
    for (let at = 0; at < load.portPeers; at++) this.#peerSet(`q${at}`);
    for (let at = 0; at < load.endpoints; at++) this.#localPod(at);
    for (let at = 0; at < load.identities; at++) {
      // Every set of the policy of ports has a member.
      this.identity(REMOTE + at, at < load.portPeers ? `q${at}` : `p${at % PEER_SETS}`);
      this.#remotePod(`remote-${at}`, at, REMOTE + at);
    }
    for (let at = 0; at < load.policies; at++) this.policy(at, load, 1);
    if (load.cidrs > 0) this.cidrPolicy(load.cidrs, 1);
    for (let at = 0; at < load.besides; at++) this.besidePolicy(at, 1);
    if (load.ports > 0) this.#portPolicy(load);
  }

  /** Policies of an even number select a pod of this node, the others nobody's. */
  policy(at: number, { endpoints }: AgentLoad, generation: number): void {
    const subject = at % 2 === 0 ? `app-${(at / 2) % endpoints}` : `elsewhere-${at}`;
    const peers = [{ peerSet: `p${at % PEER_SETS}` }];
    const ports = [{ protocol: 'TCP' as const, from: 1000 + generation, to: 1000 + generation }];
    this.#put(`policy-${at}`, generation, [{ ...rule(subject, 1 + at), peers, ports }]);
  }

  cidrPolicy(count: number, generation: number): void {
    const peers = Array.from({ length: count }, (_, at) => {
      const net = `${20 + (at >> 16)}.${(at >> 8) & 255}.${at & 255}`;
      return { cidr: `${net}.0/24`, except: [`${net}.128/25`] };
    });
    this.#put('cidrs', generation, [{ ...rule('app-0', 1_000_000), peers }]);
  }

  /** Some of the many CIDRs are within its own. */
  besidePolicy(at: number, generation: number): void {
    const peers = [{ cidr: `20.${generation % 256}.0.0/16` }];
    this.#put(`beside-${at}`, generation, [{ ...rule(`app-${1 + at}`, 2_000_000 + at), peers }]);
  }

  #portPolicy({ ports, portPeers }: AgentLoad): void {
    const peers = Array.from({ length: portPeers }, (_, at) => ({ peerSet: `q${at}` }));
    const numbers = Array.from({ length: ports }, (_, at) => ({ protocol: 'TCP' as const, from: 2 * at, to: 2 * at }));
    this.#put('ports', 1, [{ ...rule('app-0', 1_000_001), peers, ports: numbers }]);
  }

  identity(id: number, version: string): void {
    const { identities } = this.#tables;
    const labels = labelsOf({ version });
    this.#db.write([identities], (txn) => txn.upsert(identities, { id, labels, labelsKey: labelsKey(labels) }));
  }

  /** One pod comes and goes. */
  togglePod(at: number): void {
    const { remoteEndpoints } = this.#tables;
    if (at % 2 === 0) this.#remotePod('toggled', 65_000, REMOTE);
    else this.#db.write([remoteEndpoints], (txn) => txn.delete(remoteEndpoints, tableKey.pod('ns', 'toggled')));
  }

  #remotePod(name: string, at: number, identity: number): void {
    const { remoteEndpoints } = this.#tables;
    const addresses = [`10.${100 + (at >> 16)}.${(at >> 8) & 255}.${at & 255}`];
    const row = { namespace: 'ns', name, addresses, identity, node: '192.0.2.9', namedPorts: [] };
    this.#db.write([remoteEndpoints], (txn) => txn.upsert(remoteEndpoints, row));
  }

  #localPod(at: number): void {
    const { endpoints, identities, localPods } = this.#tables;
    const [app, name] = [`app-${at}`, `pod-${at}`];
    const ipv4 = `10.0.0.${1 + at}`;
    const labels = labelsOf({ app });
    this.#peerSet(app, 'app');
    this.#db.write([endpoints, identities, localPods], (txn) => {
      txn.upsert(identities, { id: LOCAL + at, labels, labelsKey: labelsKey(labels) });
      const pod = { namespace: 'ns', name, uid: name, labels: { app }, serviceAccount: '', namedPorts: [] };
      txn.upsert(localPods, { ...pod, addresses: [ipv4] });
      const endpoint = { id: 1 + at, ifindex: 100 + at, interfaceName: `lxc${at}`, addresses: [ipv4] };
      txn.upsert(endpoints, { ...endpoint, createdAt: '2026-01-01T00:00:00Z', pod: { namespace: 'ns', name } });
    });
  }

  #peerSet(value: string, key = 'version'): void {
    const { peerSets } = this.#tables;
    const selector = { requirements: [{ key: `k8s:${key}`, operator: 'In' as const, values: [value] }] };
    const row = { hash: value, selector, identities: [], origin: 'cluster' as const };
    this.#db.write([peerSets], (txn) => txn.upsert(peerSets, row));
  }

  #put(name: string, generation: number, rules: readonly ResolvedRule[]): void {
    const { policies, peerSets } = this.#tables;
    for (const { subject } of rules)
      if (subject.startsWith('elsewhere') && !this.#has(peerSets, subject)) this.#peerSet(subject, 'app');
    const row = { uid: name, kind: 'CiliumNetworkPolicy' as const, namespace: 'ns', name, generation, rules };
    this.#db.write([policies], (txn) => txn.upsert(policies, row));
  }

  #has(table: Tables['peerSets'], hash: string): boolean {
    using snapshot = this.#db.read();
    return snapshot.has(table, hash);
  }

  async #yieldNow(): Promise<void> {
    this.#stretchEnds();
    await turn();
    this.#since = performance.now();
  }

  #stretchEnds(): void {
    this.#longest = Math.max(this.#longest, performance.now() - this.#since);
  }
}

function labelsOf(own: Readonly<Record<string, string>>): Record<string, string> {
  const labels: Record<string, string> = {
    'k8s:io.cilium.k8s.policy.cluster': 'default',
    'k8s:io.kubernetes.pod.namespace': 'ns',
  };
  for (const [key, value] of Object.entries(own)) labels[`k8s:${key}`] = value;
  return labels;
}

function rule(subject: string, cookie: number): ResolvedRule {
  return { subject, direction: 'ingress', verdict: 'allow', defaultDeny: true, cookie, path: 'spec.ingress[0]' };
}
