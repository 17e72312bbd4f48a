/** A cluster as one of its nodes derives it: policies as users write them in, decisions by address out. For tests. */
import { labelsKey, matches, podIdentityLabels } from '@weir/labels';
import {
  type ClassRows,
  type Direction,
  type OracleEndpoint,
  type OraclePeer,
  type OracleTraffic,
  type OracleWorld,
  oracleVerdict,
  parsePolicy,
  peerAt,
  type Rule,
  resolve,
  rowsOfAddress,
} from '@weir/policy';
import type { PolicyObject } from '@weir/policy/testing/worlds.ts';
import type { ContainerPort, NodeRow, PolicyRow } from '../../tables.ts';
import { classAt, identityAt } from './class-at.ts';
import { settle, World } from './model-world.ts';

/** The node that derives. */
export const SELF = 'self';

export interface StackPod {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly node: string;
  readonly addresses: readonly string[];
  readonly namedPorts?: readonly ContainerPort[];
}

export interface StackOptions {
  readonly namespaces: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly pods: readonly StackPod[];
  readonly nodes: readonly Omit<NodeRow, 'kubeApiserver'>[];
  /** At all addresses of these nodes is an API server. */
  readonly control?: readonly string[];
  /** Outside addresses of API servers. */
  readonly apiServers?: readonly string[];
}

export class Stack {
  readonly world = new World();
  /** Those of this node are its endpoints. */
  readonly endpoints: readonly (OracleEndpoint & { readonly id: number; readonly identity: number })[];
  readonly #options: StackOptions;
  readonly #oracle: OracleWorld;
  #rules: readonly Rule[] = [];

  constructor(options: StackOptions) {
    const { namespaces, pods, nodes, control = [], apiServers = [] } = options;
    this.#options = options;
    const identities = new Map<string, number>();
    this.endpoints = pods.map(({ namespace, name, labels: podLabels, ...rest }, at) => {
      const facts = { namespace, namespaceLabels: namespaces[namespace] ?? {}, podLabels, serviceAccount: 'default' };
      const labels = podIdentityLabels({ ...facts, cluster: 'default' });
      const identity = identities.get(labelsKey(labels)) ?? 256 + identities.size;
      identities.set(labelsKey(labels), identity);
      return { ...rest, name: `${namespace}/${name}`, labels, identity, id: at + 1 };
    });
    this.#oracle = {
      endpoints: this.endpoints,
      nodes: nodes.map(({ name, addresses, labels = {} }) => ({
        ...{ name, addresses, labels },
        kubeApiserver: control.includes(name),
      })),
      externalApiServers: apiServers,
    };
  }

  /** With these policies in force; once. */
  async apply(policies: readonly PolicyObject[]): Promise<void> {
    this.#ground();
    const { db, tables } = this.world;
    this.#rules = policies.flatMap(({ object, kind }) => parsePolicy(object, kind, { stack: 'dual' }).rules);
    let cookie = 0;
    const cookieOf = (): number => {
      cookie += 1;
      return cookie;
    };
    const { rules, selectors } = resolve(this.#rules, { cookieOf });
    const row: PolicyRow = { uid: 'p', kind: 'CiliumClusterwideNetworkPolicy', name: 'p', generation: 1, rules };
    db.write([tables.peerSets, tables.policies], (txn) => {
      for (const [hash, selector] of selectors) {
        const selected = this.endpoints.filter(({ labels }) => matches(selector, labels));
        const identities = [...new Set(selected.map(({ identity }) => identity))].sort((a, b) => a - b);
        txn.upsert(tables.peerSets, { hash, selector, identities, origin: 'cluster' });
      }
      txn.upsert(tables.policies, row);
    });
    await settle(this.world);
  }

  /** What is there without policies. */
  #ground(): void {
    const { db, tables } = this.world;
    const { namespaces, pods, nodes, control = [], apiServers = [] } = this.#options;
    db.write([tables.namespaces, tables.nodes, tables.apiserverAddresses, tables.identities], (txn) => {
      for (const [name, labels] of Object.entries(namespaces)) txn.upsert(tables.namespaces, { name, labels });
      for (const node of nodes) txn.upsert(tables.nodes, { ...node, kubeApiserver: control.includes(node.name) });
      const serving = nodes.filter(({ name }) => control.includes(name)).flatMap(({ addresses }) => addresses);
      for (const address of [...apiServers, ...serving]) txn.upsert(tables.apiserverAddresses, { address });
      for (const { identity: id, labels } of this.endpoints)
        txn.upsert(tables.identities, { id, labels, labelsKey: labelsKey(labels) });
    });
    db.write([tables.localPods, tables.remoteEndpoints, tables.endpoints], (txn) => {
      for (const [at, { namespace, name, labels, node, addresses, namedPorts = [] }] of pods.entries()) {
        const [id, identity] = [at + 1, this.endpoints[at]?.identity ?? 0];
        const pod = { namespace, name, uid: `u-${id}` };
        if (node === SELF) {
          txn.upsert(tables.localPods, { ...pod, labels, serviceAccount: 'default', namedPorts, addresses });
          const link = { id, ifindex: 100 + id, interfaceName: `lxc${id}`, createdAt: '2026-01-01T00:00:00Z' };
          txn.upsert(tables.endpoints, { ...link, addresses, pod });
        } else txn.upsert(tables.remoteEndpoints, { namespace, name, addresses, identity, node, namedPorts });
      }
    });
  }

  /** By the oracle. `unknown`: nobody explains the address. */
  expected(direction: Direction, subject: OracleEndpoint, peer: OraclePeer, traffic: OracleTraffic): string {
    const { endpoints } = this;
    return oracleVerdict(this.#rules, direction, subject, peer, traffic, { endpoints }).verdict;
  }

  peerAt(address: string): OraclePeer {
    return peerAt(this.#oracle, address);
  }

  /** By what the kernel would hold, as the datapath decides (bpf/policy.h). */
  decided(direction: Direction, endpoint: number, address: string, { protocol, port }: OracleTraffic): string {
    const { states, slots, ipcache } = this.world;
    const state = states.get(endpoint);
    if (state === undefined) return 'no state';
    if (!state.enforced[direction]) return 'allow';
    const slot = slots.get(state.slot);
    if (slot === undefined) return 'no slot';
    const { scope, classes } = slot.compiled[direction];
    const numbers = slot.classes[direction];
    const prefix = `${address}/${address.includes(':') ? 128 : 32}`;
    const number = classAt(ipcache, numbers, prefix);
    const named = classes.find(({ members }) => numbers.get(members[0] ?? 0) === number);
    const rows = [scope.unknown, scope.pod, scope.world][number] ?? named?.rows ?? [];
    const listed = [1, 6, 17, 58, 132].includes(protocol);
    const [key, at] = listed ? [protocol, port] : [0, protocol];
    const find = (among: ClassRows) => among.find((row) => row.protocol === key && row.from <= at && at <= row.to);
    const identity = identityAt(ipcache, prefix);
    const found =
      find(rows) ?? (identity === 0 ? undefined : find(rowsOfAddress(slot.compiled[direction], address, identity)));
    return found?.verdict ?? 'deny';
  }
}
