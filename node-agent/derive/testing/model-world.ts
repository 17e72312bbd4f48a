/** Input tables and a model over them, for tests: rows in by one call each, plans carried out in memory. */
import assert from 'node:assert/strict';
import { type LabelSelector, labelsKey } from '@weir/labels';
import type { CompiledDirection, PeerRef, ResolvedRule } from '@weir/policy';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { Tables } from '../../core.ts';
import { createTables, tableKey } from '../../create-tables.ts';
import type {
  ContainerPort,
  EndpointRow,
  EndpointStateRow,
  IpcacheRow,
  PeerSetRow,
  PolicyRow,
  RemoteEndpointRow,
  SlotRow,
} from '../../tables.ts';
import { Model, type ModelOptions } from '../model.ts';
import { LocalNumbers } from '../numbers.ts';
import type { Plan } from '../plan.ts';
import { DIRECTIONS, rowsKey } from '../rows.ts';

export const APPS = ['a', 'b', 'c'] as const;

/** Nodes of zone b. */
export const ZONE = { peerSet: 'hash-zone' };
const IN_ZONE: LabelSelector = {
  requirements: [
    { key: 'node:zone', operator: 'In', values: ['b'] },
    { key: 'reserved:remote-node', operator: 'Exists', values: [] },
  ],
};

function selector(app: string): LabelSelector {
  return { requirements: [{ key: 'k8s:app', operator: 'In', values: [app] }] };
}

export function podLabels(app: string, version?: string): Record<string, string> {
  return {
    'k8s:app': app,
    'k8s:io.cilium.k8s.policy.cluster': 'default',
    'k8s:io.kubernetes.pod.namespace': 'ns',
    ...(version === undefined ? {} : { 'k8s:version': version }),
  };
}

export interface WorldOptions {
  readonly policyMode?: ModelOptions['core']['policyMode'];
  /** The clock runs so fast that a plan takes every break that it may take. */
  readonly eager?: boolean;
  /** The kernel does not free slots that are gone. */
  readonly keepsSlots?: boolean;
  readonly nodeName?: string;
  readonly db?: StateDB;
  readonly mostRows?: ModelOptions['mostRows'];
  readonly classNumbers?: ModelOptions['classNumbers'];
  readonly onStep?: ModelOptions['onStep'];
}

export class World {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly numbers: LocalNumbers;
  readonly model: Model;
  readonly states = new Map<number, EndpointStateRow>();
  readonly slots = new Map<number, SlotRow>();
  readonly ipcache = new Map<string, IpcacheRow>();

  /** Breaks that plans have made. */
  breaths = 0;
  /** What others do in each of them. */
  meanwhile: () => void = () => undefined;
  #clock = 0;
  readonly #keepsSlots: boolean;
  #before: readonly EndpointStateRow[] = [];

  constructor(options: WorldOptions = {}) {
    const { policyMode = 'default', eager = false, nodeName = 'self', mostRows, classNumbers, onStep } = options;
    this.#keepsSlots = options.keepsSlots === true;
    this.db = options.db ?? createStateDB({ freeze: true });
    this.tables = createTables(this.db);
    this.numbers = new LocalNumbers(this.db);
    this.model = new Model({
      db: this.db,
      tables: this.tables,
      core: { nodeName, clusterName: 'default', policyMode, allowLocalhost: true },
      ...(mostRows === undefined ? {} : { mostRows }),
      ...(classNumbers === undefined ? {} : { classNumbers }),
      ...(onStep === undefined ? {} : { onStep }),
      numbers: this.numbers,
      now: () => {
        if (eager) this.#clock += 10;
        return this.#clock;
      },
      yieldNow: async () => {
        this.breaths += 1;
        this.meanwhile();
        // Whoever reads in a break sees no state of the plan that is being computed.
        assert.ok([...this.model.states()].every((state, index) => state === this.#before[index]));
      },
    });
  }

  /** Time passes, in milliseconds. */
  pass(ms: number): void {
    this.#clock += ms;
  }

  async plan(known = { rules: true }): Promise<Plan> {
    while (this.model.pull(100));
    this.#before = [...this.model.states()];
    const plan = await this.model.plan(known);
    for (const row of plan.slots) {
      for (const direction of DIRECTIONS) assertNumbered(row, direction);
      this.slots.set(row.slot, row);
    }
    for (const row of plan.ipcache) this.ipcache.set(row.prefix, row);
    for (const prefix of plan.ipcacheGone) this.ipcache.delete(prefix);
    this.model.forgetCidrs(plan.ipcacheGone);
    for (const row of [...plan.endpoints, ...this.model.bump(plan.afterGone)]) this.states.set(row.id, row);
    for (const id of plan.endpointsGone) this.states.delete(id);
    for (const slot of plan.slotsGone) {
      this.slots.delete(slot);
      if (!this.#keepsSlots) this.model.slotReleased(slot);
    }
    return plan;
  }

  /** What was computed, without the numbers that history gave. */
  result(): unknown {
    const classRows = (slot: SlotRow | undefined): unknown =>
      slot && { ingress: merged(slot.compiled.ingress), egress: merged(slot.compiled.egress) };
    return {
      states: [...this.states.values()]
        .sort((x, y) => x.id - y.id)
        .map(({ slot, revision: _, ...rest }) => ({
          ...rest,
          compiled: classRows(this.slots.get(slot)),
          open: slot === 0,
        })),
      ipcache: [...this.ipcache.values()].sort((x, y) => (x.prefix < y.prefix ? -1 : 1)),
      slots: new Set([...this.slots.values()].map(({ shape }) => shape)),
    };
  }

  namespace(): void {
    this.db.write([this.tables.namespaces], (txn) => txn.upsert(this.tables.namespaces, { name: 'ns', labels: {} }));
  }
  pod(
    name: string,
    app: string,
    namedPorts: readonly ContainerPort[] = [],
    version?: string,
    addresses: readonly string[] = [],
  ): void {
    this.db.write([this.tables.localPods], (txn) =>
      txn.upsert(this.tables.localPods, {
        namespace: 'ns',
        name,
        uid: `u-${name}`,
        labels: { app, ...(version === undefined ? {} : { version }) },
        serviceAccount: '',
        namedPorts,
        addresses,
      }),
    );
  }
  /** `version`: one more label, so that one app has several identities. */
  identity(id: number, app: string, version?: string): void {
    const labels = podLabels(app, version);
    this.db.write([this.tables.identities], (txn) =>
      txn.upsert(this.tables.identities, { id, labels, labelsKey: labelsKey(labels) }),
    );
  }
  peerSet(app: string, identities: readonly number[]): void {
    const row: PeerSetRow = { hash: `hash-${app}`, selector: selector(app), identities, origin: 'cluster' };
    this.db.write([this.tables.peerSets], (txn) => txn.upsert(this.tables.peerSets, row));
  }
  zone(): void {
    const row: PeerSetRow = { hash: ZONE.peerSet, selector: IN_ZONE, identities: [], origin: 'cluster' };
    this.db.write([this.tables.peerSets], (txn) => txn.upsert(this.tables.peerSets, row));
  }
  policy(uid: string, generation: number, rules: readonly ResolvedRule[]): void {
    const row: PolicyRow = { uid, kind: 'CiliumNetworkPolicy', namespace: 'ns', name: uid, generation, rules };
    this.db.write([this.tables.policies], (txn) => txn.upsert(this.tables.policies, row));
  }
  endpoint(id: number, fields: Partial<EndpointRow> = {}): void {
    const row: EndpointRow = {
      id,
      ifindex: 100 + id,
      interfaceName: `lxc${id}`,
      addresses: [`10.0.0.${id}`],
      createdAt: '2026-01-01T00:00:00Z',
      ...fields,
    };
    this.db.write([this.tables.endpoints], (txn) => txn.upsert(this.tables.endpoints, row));
  }
  dropEndpoint(id: number): void {
    this.db.write([this.tables.endpoints], (txn) => txn.delete(this.tables.endpoints, tableKey.endpoint(id)));
  }
  remote(
    name: string,
    address: string,
    identity: number,
    namedPorts: readonly ContainerPort[] = [],
    podUid?: string,
  ): void {
    const row: RemoteEndpointRow = {
      namespace: 'ns',
      name,
      addresses: [address],
      identity,
      node: '192.0.2.9',
      namedPorts,
      ...(podUid === undefined ? {} : { podUid }),
    };
    this.db.write([this.tables.remoteEndpoints], (txn) => txn.upsert(this.tables.remoteEndpoints, row));
  }
}

/** Each member of a class has its number, nobody else has one, and equal numbers mean equal rows. */
function assertNumbered({ compiled, classes }: SlotRow, direction: (typeof DIRECTIONS)[number]): void {
  const rows = new Map<number, string>();
  let members = 0;
  for (const one of compiled[direction].classes) {
    const number = classes[direction].get(one.members[0] ?? 0);
    assert.ok(number !== undefined && one.members.every((id) => classes[direction].get(id) === number));
    members += one.members.length;
    const key = rowsKey(one.rows);
    assert.equal(rows.get(number) ?? key, key);
    rows.set(number, key);
  }
  assert.equal(classes[direction].size, members);
  assert.equal(new Set(rows.values()).size, rows.size);
}

export function rule(subject: string, peer: string | PeerRef | undefined, cookie: number): ResolvedRule {
  const peers = peer === undefined ? [] : typeof peer === 'string' ? [{ peerSet: `hash-${peer}` }] : [peer];
  return {
    subject: `hash-${subject}`,
    direction: 'ingress',
    verdict: 'allow',
    peers,
    defaultDeny: true,
    cookie,
    path: 'spec.ingress[0]',
  };
}

/** A container port of the name `web`. */
export function web(port: number): ContainerPort {
  return { name: 'web', port, protocol: 'TCP' };
}

/** What pods of app a may reach, or may not, by the port name `web`. */
export function byName(verdict: 'allow' | 'deny', direction: 'ingress' | 'egress', peer?: string): ResolvedRule {
  const { peers, ...rest } = rule('a', peer, 7);
  const ports = [{ protocol: 'TCP' as const, name: 'web' }];
  return { ...rest, ...(peer === undefined ? {} : { peers: peers ?? [] }), verdict, direction, ports };
}

export function basic(options: WorldOptions = {}): World {
  const world = new World(options);
  world.namespace();
  world.pod('web', 'a');
  world.endpoint(1, { pod: { namespace: 'ns', name: 'web', uid: 'u-web' } });
  world.identity(256, 'a');
  world.peerSet('a', [256]);
  world.peerSet('b', [257]);
  return world;
}

export async function settle(of: World): Promise<void> {
  while ((await of.plan()).again);
}

/** A fresh agent that is told at once what the world has been told, and has computed. */
export async function freshLike(of: World): Promise<World> {
  const fresh = new World();
  fresh.numbers.adopt(of.numbers.state());
  copy(of, fresh);
  await settle(fresh);
  return fresh;
}

/** Puts all input rows of one world into another. */
export function copy(from: World, to: World): void {
  using snapshot = from.db.read();
  const pairs = [
    'policies',
    'peerSets',
    'identities',
    'remoteEndpoints',
    'nodes',
    'localPods',
    'namespaces',
    'apiserverAddresses',
    'endpoints',
  ] as const;
  for (const name of pairs) {
    const rows = [...snapshot.all(from.tables[name] as Tables['nodes'])];
    const table = to.tables[name] as unknown as Tables['nodes'];
    to.db.write([table], (txn) => {
      for (const row of rows) txn.upsert(table, row);
    });
  }
}

/** Peers that are judged alike as one class: a slot keeps classes that were told apart before, or were not. */
function merged({ classes, ...rest }: CompiledDirection): unknown {
  const peers = Map.groupBy(classes, ({ rows }) => JSON.stringify(rows));
  const alike = Array.from(peers, ([rows, of]) => ({
    rows,
    members: of.flatMap(({ members }) => members).sort((x, y) => x - y),
  }));
  return { ...rest, classes: alike.sort((x, y) => (x.rows < y.rows ? -1 : 1)) };
}
