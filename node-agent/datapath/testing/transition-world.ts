/** A node without a kernel: tables, model, writer and recorded maps, looked at after every single change of a map. */
import { slotKey } from '@weir/bpf';
import { type LabelMap, labelsKey } from '@weir/labels';
import type { ResolvedRule } from '@weir/policy';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { Tables } from '../../core.ts';
import { createTables, tableKey } from '../../create-tables.ts';
import { LocalNumbers, Model, type NumbersState } from '../../derive/index.ts';
import type { ContainerPort, PeerSetRow } from '../../tables.ts';
import { EndpointStore, IpcacheStore, PlanWriter, RoundMark, SlotStore, SyncLoop } from '../index.ts';
import { Instant, type Probe, type Word, words } from './kernel-view.ts';
import { silent } from './lab.ts';
import { type KernelMaps, memoryKernel, recorded, recordedSlot } from './recorded-map.ts';

export class Crash extends Error {}

export const APPS = ['a', 'b', 'c', 'd'] as const;
export type App = (typeof APPS)[number];
export const REMOTE = ['10.0.1.1', '10.0.1.2', '10.0.1.3'] as const;
const LOCAL = ['10.0.5.1', '10.0.5.2'] as const;
/** `unknown` is of a node's pod CIDR and nobody's; those after it are outside. */
const PEERS = [...REMOTE, ...LOCAL, '10.0.9.9', '192.0.2.5', '192.0.2.77', '198.51.100.1', '203.0.113.7'];
export const UNKNOWN = PEERS.indexOf('10.0.9.9');
const PORTS = [
  [6, 80],
  [6, 443],
  [17, 53],
] as const;
export const PROBES: readonly Probe[] = (['ingress', 'egress'] as const).flatMap((direction) =>
  PORTS.flatMap(([protocol, port]) => PEERS.map((peer) => ({ direction, peer, protocol, port }))),
);
/** Slots and rows that were in use this many milliseconds ago must be there. */
const LAG_MS = 900;

/** One change of the inputs. */
export type Input = (tables: Tables, db: StateDB) => void;

interface Seen {
  readonly verdicts: readonly boolean[];
  at: number;
}

/** The pinned maps, what packets did to them, and what the state folder holds: all that outlives an agent. */
export class Node {
  readonly maps: KernelMaps = memoryKernel();
  numbers: NumbersState = { cidrs: {}, labels: {}, nodes: {}, revisions: 0 };
  readonly links = new Set<number>();
  now = 0;
  /** Work of a plan for one namespace; undefined: the default. */
  work: number | undefined;
  /** Verdicts that each endpoint may give now, by id: those of the settled states on both sides of the transition. */
  readonly log: { endpoint: number; verdicts: boolean[]; operation: string }[] = [];
  readonly problems: string[] = [];
  /** Whether the kernel refuses a change of a map: `update policy_classes`, `setInner policy_verdicts`, ... */
  refuses: (operation: string, key: Uint8Array | undefined) => boolean = () => false;
  /** Revisions under which each flow was let through: the connection table. By endpoint and probe. */
  readonly #flows = new Map<string, Set<number>>();
  readonly #words = new Map<string, Seen & { readonly word: Word }>();
  readonly #slots = new Map<number, number>();
  readonly #rows = new Map<
    string,
    Seen & { readonly row: { slot: number; direction: Probe['direction']; class: number } }
  >();

  /** Verdicts of every endpoint now. */
  verdicts(): Map<number, boolean[]> {
    const instant = new Instant(this.maps);
    const of = (word: Word): boolean[] => PROBES.map((probe) => instant.decide(word, probe).allowed);
    return new Map(words(this.maps).map((word) => [word.endpoint, of(word)]));
  }

  /** Each probe's peer's identity now, and each endpoint's slot: what moves at once in composite changes. */
  placing(): { readonly identities: readonly number[]; readonly slots: ReadonlyMap<number, string> } {
    const instant = new Instant(this.maps);
    return {
      identities: PROBES.map(({ peer }) => instant.identity(peer, 0xffffffff)),
      slots: new Map(words(this.maps).map(({ endpoint, slot, flags }) => [endpoint, `${slot}/${flags}`])),
    };
  }

  /** Looks at everything; established flows count as packets too. */
  look(operation: string): void {
    this.now += 1;
    const live = words(this.maps);
    const instant = new Instant(this.maps);
    const current = new Map<number, boolean[]>();
    for (const word of live) {
      const fresh = PROBES.map((probe) => instant.decide(word, probe));
      const verdicts = fresh.map(({ allowed }) => allowed);
      current.set(word.endpoint, verdicts);
      const effective = fresh.map(({ allowed }, index) => {
        const key = `${word.endpoint}/${index}`;
        const known = this.#flows.get(key) ?? new Set();
        const established = known.has(word.revision);
        if (allowed) this.#flows.set(key, known.add(word.revision));
        return allowed || established;
      });
      this.log.push({ endpoint: word.endpoint, verdicts, operation });
      this.log.push({ endpoint: word.endpoint, verdicts: effective, operation: `${operation}, established` });
      for (const { row } of fresh) {
        if (row === undefined) continue;
        const name = `${row.slot} ${row.direction} ${row.class}`;
        if (this.#rows.get(name)?.at !== this.now)
          this.#rows.set(name, { row, at: this.now, verdicts: this.#rowVerdicts(instant, row) });
      }
      this.#unknownIsLeast(word, verdicts, operation);
      if (word.slot !== 0) this.#slots.set(word.slot, this.now);
      const key = `${word.endpoint}/${word.slot}/${word.flags}/${word.revision}`;
      this.#words.set(key, { word, at: this.now, verdicts });
    }
    this.#lagging(instant, current, operation);
  }

  /** A new transition begins: packets that read a word before it have been judged. */
  begin(): void {
    this.log.length = 0;
    this.problems.length = 0;
    this.quiet();
  }

  /** Every packet that runs has been judged. */
  quiet(): void {
    this.#words.clear();
  }

  /** Probes of which an established flow passes though a new one would not. */
  overstaying(): string[] {
    const verdicts = this.verdicts();
    return words(this.maps).flatMap(({ endpoint, revision }) =>
      PROBES.filter(
        (_, index) => this.#flows.get(`${endpoint}/${index}`)?.has(revision) && !verdicts.get(endpoint)?.[index],
      ).map((probe) => `${endpoint} ${JSON.stringify(probe)}`),
    );
  }

  /** The connection table after the flows of an endpoint were deleted. */
  purge(endpoints: ReadonlySet<number>): void {
    for (const key of this.#flows.keys()) if (endpoints.has(Number(key.split('/')[0]))) this.#flows.delete(key);
  }

  #rowVerdicts(instant: Instant, row: { slot: number; direction: Probe['direction']; class: number }): boolean[] {
    return PROBES.slice(0, PROBES.length / 2)
      .filter((_, index) => index % PEERS.length === 0)
      .map((probe) => instant.verdict(row, probe));
  }

  /** Packets that read a class, or a word, a moment ago. */
  #lagging(instant: Instant, live: ReadonlyMap<number, readonly boolean[]>, operation: string): void {
    for (const [slot, at] of this.#slots) {
      const key = slotKey.encode(slot);
      const whole = this.maps.policy_classes.openInner(key) && this.maps.policy_verdicts.openInner(key);
      if (this.now - at > LAG_MS) this.#slots.delete(slot);
      else if (!whole) this.problems.push(`${operation}: slot ${slot} went ${this.now - at} ms after its last word`);
    }
    for (const [key, { row, at, verdicts }] of this.#rows) {
      if (this.now - at > LAG_MS) this.#rows.delete(key);
      else if (this.#rowVerdicts(instant, row).join() !== verdicts.join())
        this.problems.push(`${operation}: rows of ${key} changed`);
    }
    for (const { word, at, verdicts } of this.#words.values()) {
      if (at < this.now) {
        const current = live.get(word.endpoint);
        if (current === undefined) continue;
        const now = PROBES.map((probe) => instant.decide(word, probe).allowed);
        // As it was when the word was read, or as it is now: both are instants of the packet.
        this.log.push({
          endpoint: word.endpoint,
          verdicts: now.map((verdict, index) => (verdict === verdicts[index] ? (current[index] ?? false) : verdict)),
          operation: `${operation}, a packet that read slot ${word.slot}`,
        });
      }
    }
  }

  #unknownIsLeast(word: Word, verdicts: readonly boolean[], operation: string): void {
    for (const [index, allowed] of verdicts.entries()) {
      const unknown = index - (index % PEERS.length) + UNKNOWN;
      if (!allowed && verdicts[unknown]) {
        this.problems.push(
          `${operation}: endpoint ${word.endpoint} allows an unknown peer ${JSON.stringify(PROBES[index])}`,
        );
      }
    }
  }
}

/** One life of an agent on a node. */
export class Agent {
  readonly db = createStateDB({ freeze: true });
  readonly tables = createTables(this.db);
  readonly #writer: PlanWriter;
  readonly #sync: SyncLoop;
  readonly #model: Model;
  #left: number;

  static async start(node: Node, inputs: readonly Input[], operations = Number.POSITIVE_INFINITY): Promise<Agent> {
    const agent = new Agent(node, inputs, operations);
    await agent.#adopt();
    return agent;
  }

  readonly #adopt: () => Promise<void>;

  private constructor(node: Node, inputs: readonly Input[], operations: number) {
    this.#left = operations;
    for (const input of inputs) input(this.tables, this.db);
    const recorder = {
      before: (operation: string, key?: Uint8Array): void => {
        if (this.#left <= 0) throw new Crash('the agent is dead');
        this.#left -= 1;
        if (node.refuses(operation, key)) throw new Error(`no room: ${operation}`);
      },
      after: (operation: string): void => node.look(operation),
    };
    const maps = recorded(node.maps, recorder);
    const numbers = new LocalNumbers(this.db);
    numbers.adopt(node.numbers);
    const yieldNow = async (): Promise<void> => undefined;
    const model = new Model({
      db: this.db,
      tables: this.tables,
      core: { nodeName: 'self', clusterName: 'default', policyMode: 'default', allowLocalhost: true },
      numbers,
      now: () => node.now,
      yieldNow,
      ...(node.work === undefined ? {} : { work: node.work }),
    });
    this.#model = model;
    const clock = { now: () => node.now, yieldNow, quiesce: async () => node.quiet() };
    const slots = new SlotStore({
      ...maps,
      ...clock,
      db: this.db,
      prefixOf: (identity) => model.prefixOf(identity),
      create: recordedSlot(recorder),
      least: { classes: 16, verdicts: 64 },
    });
    const ipcache = new IpcacheStore(this.db, maps.ipcache);
    const endpoints = new EndpointStore(
      { db: this.db, tables: this.tables },
      maps.endpoints,
      {
        ensure: (id) => void node.links.add(id),
        remove: (id) => void node.links.delete(id),
        overtake: () => undefined,
        has: (id) => node.links.has(id),
        isAway: () => false,
        endpoints: () => node.links,
        attached: () => new Map(),
        hooked: () => new Map(),
        look: () => [],
      },
      (slot) => this.#writer.rows.slotReady(slot),
    );
    const mark = new RoundMark(maps.settings);
    this.#writer = new PlanWriter({
      db: this.db,
      tables: this.tables,
      model,
      numbers,
      kernel: {
        slots,
        ipcache,
        endpoints,
        conntrack: {
          purge: async (ids) => {
            recorder.before('purge');
            node.purge(ids);
            return { entries: 0, deleted: 0, left: { ct4: 0, ct6: 0 } };
          },
        },
        mark,
        clearFlows: async () => undefined,
      },
      clock,
      saveNumbers: async () => {
        if (this.#left > 0) node.numbers = numbers.state();
        return true;
      },
      onAdopted: () => undefined,
      log: silent,
    });
    this.#sync = new SyncLoop({
      model,
      prepare: () => undefined,
      writer: this.#writer,
      slots,
      clock,
      complete: () => 'rules',
      policyRevision: () => 0,
      onRound: () => undefined,
      log: silent,
    });
    this.#adopt = async (): Promise<void> => {
      try {
        const found = endpoints.adopt(false);
        numbers.sawRevisions(found.map(({ revision }) => revision));
        const addresses = await ipcache.adopt(
          found.map(({ revision }) => revision),
          yieldNow,
        );
        const renewed = mark.set ? endpoints.renew(() => numbers.revision()) : new Map<number, number>();
        model.adopt({
          endpoints: found.map((row) => ({ ...row, revision: renewed.get(row.id) ?? row.revision })),
          slots: await slots.adopt(),
          ipcache: addresses,
        });
      } catch (error) {
        if (!(error instanceof Crash)) throw error;
      }
    };
  }

  get dead(): boolean {
    return this.#left <= 0;
  }

  /** Errors that are no crash. */
  get failing(): unknown[] {
    return [this.#writer.slots, this.#writer.ipcache, this.#writer.endpoints].flatMap((each) =>
      each.failing().map(({ error }) => error.message),
    );
  }

  /** Whether something is still in force whose successor is incomplete. */
  get waits(): boolean {
    const retained = [...this.#model.states()].some(({ reason }) => reason !== undefined);
    return retained || this.#model.awaited().size > 0 || [...this.#model.missing()].length > 0;
  }

  /** Whether some policy names a port by its name. */
  get usesPortNames(): boolean {
    using snapshot = this.db.read();
    return [...snapshot.all(this.tables.policies)].some(({ rules }) =>
      rules.some(({ ports }) => ports?.some((port) => 'name' in port)),
    );
  }

  /** Dies at the given map operation from now. */
  doom(operations: number): void {
    this.#left = operations;
  }

  apply(inputs: readonly Input[]): void {
    for (const input of inputs) input(this.tables, this.db);
  }

  async round(): Promise<void> {
    this.#sync.schedule();
    await this.#sync.idle();
  }

  async end(): Promise<void> {
    await this.#sync.stop();
    this.#model.dispose();
  }
}

export function podLabels(app: App): LabelMap {
  return { 'k8s:app': app, 'k8s:io.cilium.k8s.policy.cluster': 'default', 'k8s:io.kubernetes.pod.namespace': 'ns' };
}

export function hashOf(app: App): string {
  return `hash-${app}`;
}

export const input = {
  base: (): Input => (tables, db) =>
    db.write([tables.namespaces, tables.nodes], (txn) => {
      txn.upsert(tables.namespaces, { name: 'ns', labels: {} });
      txn.upsert(tables.nodes, {
        name: 'other',
        addresses: ['203.0.113.7'],
        podCidrs: ['10.0.0.0/16'],
        kubeApiserver: false,
      });
    }),
  peerSet:
    (app: App, identities: readonly number[] | undefined): Input =>
    (tables, db) => {
      const selector = { requirements: [{ key: 'k8s:app', operator: 'In' as const, values: [app] }] };
      db.write([tables.peerSets], (txn) => {
        if (identities === undefined) txn.delete(tables.peerSets, hashOf(app));
        else {
          const row: PeerSetRow = { hash: hashOf(app), selector, identities, origin: 'cluster' };
          txn.upsert(tables.peerSets, row);
        }
      });
    },
  identity:
    (id: number, app: App | undefined): Input =>
    (tables, db) =>
      db.write([tables.identities], (txn) => {
        if (app === undefined) txn.delete(tables.identities, tableKey.identity(id));
        else txn.upsert(tables.identities, { id, labels: podLabels(app), labelsKey: labelsKey(podLabels(app)) });
      }),
  remote:
    (index: number, identity: number | undefined, namedPorts: readonly ContainerPort[] = []): Input =>
    (tables, db) =>
      db.write([tables.remoteEndpoints], (txn) => {
        const name = `r${index}`;
        if (identity === undefined) txn.delete(tables.remoteEndpoints, tableKey.pod('ns', name));
        else
          txn.upsert(tables.remoteEndpoints, {
            namespace: 'ns',
            name,
            addresses: [REMOTE[index] ?? ''],
            identity,
            node: '203.0.113.7',
            namedPorts,
          });
      }),
  pod:
    (id: number, app: App, namedPorts: readonly ContainerPort[] = []): Input =>
    (tables, db) =>
      db.write([tables.localPods], (txn) =>
        txn.upsert(tables.localPods, {
          namespace: 'ns',
          name: `p${id}`,
          uid: `u${id}`,
          labels: { app },
          serviceAccount: '',
          namedPorts,
          addresses: [],
        }),
      ),
  endpoint:
    (id: number, present: boolean): Input =>
    (tables, db) =>
      db.write([tables.endpoints], (txn) => {
        if (!present) txn.delete(tables.endpoints, tableKey.endpoint(id));
        else
          txn.upsert(tables.endpoints, {
            id,
            ifindex: 100 + id,
            interfaceName: `lxc${id}`,
            addresses: [LOCAL[id - 1] ?? ''],
            pod: { namespace: 'ns', name: `p${id}` },
            createdAt: '2026-01-01T00:00:00Z',
          });
      }),
  policy:
    (uid: string, generation: number, rules: readonly ResolvedRule[] | undefined): Input =>
    (tables, db) =>
      db.write([tables.policies], (txn) => {
        if (rules === undefined) txn.delete(tables.policies, uid);
        else
          txn.upsert(tables.policies, {
            uid,
            kind: 'CiliumNetworkPolicy',
            namespace: 'ns',
            name: uid,
            generation,
            rules,
          });
      }),
} as const;

/** Identities of the apps, in their order, as a world begins. */
export const IDENTITIES: readonly number[] = APPS.map((_, index) => 300 + index);

/** A world of two endpoints and two pods elsewhere, without policies. */
export function start(): Input[] {
  return [
    input.base(),
    ...APPS.map((each, index) => input.peerSet(each, [IDENTITIES[index] ?? 0])),
    ...APPS.map((each, index) => input.identity(IDENTITIES[index] ?? 0, each)),
    input.remote(0, 300),
    input.remote(1, 301),
    input.pod(1, 'a'),
    input.pod(2, 'b'),
    input.endpoint(1, true),
    input.endpoint(2, true),
  ];
}
