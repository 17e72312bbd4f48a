/** A cluster without kernels: an API server, the operator, and agents, all as they run, in this process. */

import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { ApiError, createKubeClient, type KubeObject, type Resource, resources } from '@weir/kube';
import { messageOf } from '@weir/process/errors';
import { pino } from 'pino';
import type { Operator } from '../../operator/operator.ts';
import { looseCrds } from '../cluster/loose-crds.ts';
import { createWithStatus, createWorld, type World } from '../operator/world.ts';
import { carrier, touched } from './carriers.ts';
import { TIGHT } from './crowds.ts';
import { Disguises, disguised, withOwn } from './disguises.ts';
import type { Hostile } from './hostile.ts';
import { FuzzNode } from './node.ts';
import { type Outcome, outcomeOf } from './outcome.ts';
import {
  EDITED,
  FRESH,
  GOING,
  GROUND,
  type HonestPod,
  LAST,
  LATER,
  NODE_OBJECTS,
  NODES,
  PODS,
  POLICIES,
  podObject,
  WITHHELD,
} from './story.ts';
import { Turns, Writes } from './turns.ts';
import { Valve } from './valve.ts';

const GRACE_MS = 3_600_000;
const CALM_MS = 30;
const MOST_WARNINGS = 3;
const TERSE = { breakLength: Number.POSITIVE_INFINITY, maxStringLength: 300 };
const BY_USER = { fieldManager: 'user', force: true } as const;

export class FuzzCluster {
  readonly #world: World;
  /** What a tenant may use is little. */
  readonly #tight: boolean;
  readonly #disguises = new Disguises();
  readonly #valve = new Valve();
  readonly #writes = new Writes();
  readonly #nodes = new Map<string, FuzzNode>();
  readonly #pods = new Map<string, HonestPod & { readonly uid: string; readonly id: number }>();
  readonly #written = new Map<string, Hostile>();
  /** `§…§` of hostile objects, by what is between. */
  readonly #uids = new Map<string, string>();
  readonly #lists = new Map<string, number>();
  /** What must not happen and happened. */
  readonly failures: string[] = [];
  /** Called after each plan of an agent. */
  onPlan: (node: FuzzNode) => void = () => undefined;
  /** What the operator warned of last. */
  #warnings: string[] = [];
  #operator: Operator | undefined;
  #fatal = false;
  #now = Date.now();
  #count = 0;

  private constructor(world: World, tight: boolean) {
    this.#world = world;
    this.#tight = tight;
  }

  /** With the honest objects, and everybody running. */
  static async start(tight = false): Promise<FuzzCluster> {
    const cluster = new FuzzCluster(await createWorld({ crds: looseCrds() }), tight);
    await cluster.#begin();
    return cluster;
  }

  async stop(): Promise<void> {
    for (const node of this.#nodes.values()) await node.stop();
    await this.#world.stop();
  }

  /** Puts the object where its readers are. */
  async write(hostile: Hostile): Promise<void> {
    const { kind, name, namespace } = hostile;
    const where = namespace === undefined ? {} : { namespace };
    const body = JSON.parse(
      JSON.stringify(hostile.body).replaceAll(/§([^§"]+)§/g, (_, key: string) => this.#uids.get(key) ?? 'nobody'),
    ) as Hostile['body'];
    const { client } = this.#world;
    const isNew = kind.only === undefined && !this.#written.has(keyOf(hostile));
    const there = await this.#held(hostile);
    // What is there already is somebody else's; of what only the operator may write, it has taken away what we wrote.
    if (isNew !== (there === undefined)) return;
    this.#count += 1;
    const held = there ?? (await client.create(kind.resource, carrier(hostile, this.#count)));
    this.#written.set(keyOf(hostile), hostile);
    this.#disguises.put(held.metadata.uid ?? '', body);
    this.#count += 1;
    const isPolicy = kind.resource.kind.endsWith('NetworkPolicy');
    const version = isPolicy ? carrier(hostile, this.#count) : touched({ kind, name, ...where }, this.#count);
    try {
      await client.apply(kind.resource, version, BY_USER);
    } catch (error) {
      // What only the operator may write it has taken away meanwhile: a version that says nothing makes no new one.
      if (!(error instanceof ApiError && error.status === 422)) throw error;
    }
  }

  /** Takes all hostile objects back. */
  async clear(): Promise<void> {
    for (const hostile of this.#written.values()) {
      const { kind, name, namespace } = hostile;
      const held = await this.#held(hostile);
      if (held === undefined) continue;
      if (kind.only === undefined) await this.#gone(kind.resource, name, namespace);
      else {
        this.#disguises.remove(held.metadata.uid ?? '');
        this.#count += 1;
        await this.#world.client.apply(kind.resource, touched(hostile, this.#count), BY_USER);
      }
    }
    this.#written.clear();
  }

  /** What honest users do meanwhile: an edit, a new pod, one that goes. */
  async edit(): Promise<void> {
    const { client } = this.#world;
    await client.apply(resources.CiliumNetworkPolicy, EDITED, BY_USER);
    await this.#connect(LATER);
    await this.#connect(FRESH);
    this.#nodes.get(GOING.node)?.disconnect(GOING.namespace, GOING.name);
    this.#pods.delete(`${GOING.namespace}/${GOING.name}`);
    await client.delete(resources.Pod, GOING.name, GOING.namespace, { gracePeriodSeconds: 0 });
  }

  /**
   * The same, where half of a crowd waits for the API server to take what follows from it, and the operator sees the other half and the edits all at
   * once. Returns what took too many turns, in sentences.
   */
  async editAmid(crowd: readonly Hostile[]): Promise<string[]> {
    const operator = this.#operator;
    if (operator === undefined) return ['no operator runs'];
    await this.settle();
    this.#writes.close();
    for (const object of crowd.filter((_, at) => at % 2 === 0)) await this.write(object);
    await this.#takenIn(operator);
    this.#valve.close();
    for (const object of crowd.filter((_, at) => at % 2 === 1)) await this.write(object);
    await this.edit();
    const turns = new Turns(operator.db);
    await this.#read();
    this.#valve.open();
    await this.#takenIn(operator);
    this.#writes.open();
    const failing = await this.settle();
    return [...turns.late(), ...this.#writes.late(), ...(failing === undefined ? [] : [failing])];
  }

  /** Waits until the operator's watches have read what there is of pods and policies. */
  async #read(): Promise<void> {
    for (const resource of [resources.CiliumNetworkPolicy, resources.Pod]) {
      const { items } = await this.#world.client.list(resource as Resource<KubeObject>);
      const versions = items.map(({ metadata }) => Number(metadata.resourceVersion));
      while (!this.#valve.hasRead(resource.plural, Math.max(...versions))) await sleep(CALM_MS);
    }
  }

  /** Waits until nothing of pods and policies waits for its turn. */
  async #takenIn({ db }: Operator): Promise<void> {
    await this.#read();
    for (let calm = 0; calm < 3; ) {
      await sleep(CALM_MS);
      const waiting = db.tables().filter(({ name, rows }) => name === 'work' && rows > 0);
      calm = waiting.length === 0 ? calm + 1 : 0;
    }
  }

  /** Another pod, after everything. */
  async end(): Promise<void> {
    await this.#connect(LAST);
  }

  /** The operator, and one agent, start again. */
  async restart(): Promise<void> {
    await this.#operator?.stop();
    this.#lists.clear();
    await this.#startOperator();
    const [name] = NODES.slice(-1);
    if (name === undefined) return;
    await this.#nodes.get(name)?.stop();
    this.#startNode(name);
  }

  /** Time passes, until nothing is kept any more for somebody who may come back. */
  pass(): void {
    this.#now += 2 * GRACE_MS;
  }

  outcome(): Promise<Outcome> {
    return outcomeOf(this.#world.client, [...this.#nodes.values()]);
  }

  /** Rows of all tables, of those that remember nothing of the past. */
  rows(): ReadonlyMap<string, number> {
    const tables = this.#operator?.db.tables().map(({ name, rows }) => [`operator's ${name}`, rows] as const) ?? [];
    const nodes = [...this.#nodes.values()].flatMap((node) =>
      Array.from(node.rows(), ([name, rows]) => [`${node.name}'s ${name}`, rows] as const),
    );
    return new Map([...tables, ...nodes]);
  }

  /** Waits until nobody has anything to do. Returns who still fails after so many seconds. */
  async settle(seconds = 60): Promise<string | undefined> {
    const end = performance.now() + seconds * 1000;
    let why = 'the operator does not come to rest';
    for (let calm = 0; performance.now() < end && !this.#fatal; ) {
      const before = this.#world.api.stats.resourceVersion;
      await sleep(CALM_MS);
      const operator = this.#operator;
      const left = AbortSignal.timeout(Math.max(1, Math.ceil(end - performance.now())));
      const failing = await operator?.settled(left).catch(() => undefined);
      const nodes = [...this.#nodes.values()].filter((node) => !node.settled);
      const still = this.#world.api.stats.resourceVersion === before;
      calm = failing?.size === 0 && nodes.length === 0 && still ? calm + 1 : 0;
      if (calm === 3) return undefined;
      why =
        failing !== undefined && failing.size > 0
          ? `the operator cannot write: ${[...failing].map(([writer, rows]) => `${writer} ${rows}`).join()}`
          : nodes.length > 0
            ? `${nodes.map(({ name }) => name).join()} has not come to rest`
            : 'the operator does not come to rest';
    }
    return this.#fatal ? undefined : `${why}; it said: ${this.#warnings.join(' ')}`;
  }

  /** Whether anybody is, or calls itself, unwell, or has lost its place. */
  async health(): Promise<string[]> {
    const port = this.#operator?.healthPort;
    const answers = await Promise.all(
      ['healthz', 'readyz'].map(async (path) => {
        const response = await fetch(`http://127.0.0.1:${port}/${path}`);
        return response.ok ? [] : [`operator: /${path} says ${response.status}: ${await response.text()}`];
      }),
    );
    const nodes = [...this.#nodes.values()].flatMap(({ name, unwell }) =>
      unwell === undefined ? [] : [`${name}: ${unwell}`],
    );
    const again = [...this.#lists].flatMap(([what, times]) =>
      times > 1 ? [`${what} were listed ${times} times`] : [],
    );
    return [...this.failures, ...answers.flat(), ...nodes, ...again];
  }

  async #begin(): Promise<void> {
    const { client } = this.#world;
    for (const [resource, object] of GROUND) this.#know(await client.create(resource, object));
    for (const object of NODE_OBJECTS) {
      await createWithStatus(client, object);
      this.#know(await client.get(resources.KubeNode, object.metadata.name));
    }
    await this.#startOperator();
    for (const name of NODES) this.#startNode(name);
    for (const pod of PODS) await this.#connect(pod);
    for (const [resource, object] of POLICIES) this.#know(await client.create(resource, object));
  }

  #know({ kind, metadata: { namespace, name, uid = '' } }: KubeObject): void {
    this.#uids.set([kind, ...(namespace === undefined ? [] : [namespace]), name].join('/'), uid);
  }

  async #connect(pod: HonestPod): Promise<void> {
    const { client } = this.#world;
    await createWithStatus(client, podObject(pod));
    const object = await client.get(resources.Pod, pod.name, pod.namespace);
    this.#know(object);
    const connected = { ...pod, uid: object.metadata.uid ?? '', id: this.#pods.size + 1 };
    this.#pods.set(`${pod.namespace}/${pod.name}`, connected);
    this.#nodes.get(pod.node)?.connect(connected);
  }

  /** `counted`: what it is told can be kept back, and what it writes is counted. */
  #client(user: string, counted = false) {
    const real = createKubeClient({ kubeconfig: this.#world.kubeconfig, userAgent: user });
    const own = counted ? { watch: this.#valve.through(real), ...this.#writes.through(real) } : {};
    const client = withOwn(real, own);
    return disguised(client, this.#disguises, (plural) => {
      // Nobody follows them: the collection of garbage lists them at each look.
      if (plural === resources.CiliumEndpoint.plural) return;
      const what = `${user}: ${plural}`;
      this.#lists.set(what, (this.#lists.get(what) ?? 0) + 1);
    });
  }

  async #startOperator(): Promise<void> {
    this.#operator = await this.#world.operator({
      client: this.#client('operator', true),
      ...(this.#tight ? TIGHT : {}),
      logger: pino({ level: 'warn' }, { write: (line: string) => this.#warned(line) }),
      now: () => this.#now,
      identityGcGrace: GRACE_MS,
      identityGcInterval: 100,
      orphanGraceMs: 100,
      staleMs: 0,
      healthAddress: '127.0.0.1:0',
      onFatal: (error) => {
        this.#fatal = true;
        this.failures.push(`operator: ${error.stack ?? messageOf(error)}`);
      },
    });
  }

  #warned(line: string): void {
    const { msg, error, writer, key, kind, name } = JSON.parse(line) as Readonly<Record<string, unknown>>;
    this.#warnings = [...this.#warnings, inspect({ msg, error, writer, key, kind, name }, TERSE)].slice(-MOST_WARNINGS);
  }

  #startNode(name: string): void {
    const pods = [...this.#pods.values()].filter(({ node }) => node === name);
    const node = new FuzzNode(
      {
        name,
        client: this.#client(name),
        withheld: new Set([WITHHELD]),
        onPlan: (planned) => this.onPlan(planned),
        onFailure: (what) => this.failures.push(what),
      },
      pods,
    );
    this.#nodes.set(name, node);
  }

  async #held({ kind, name, namespace }: Hostile): Promise<KubeObject | undefined> {
    try {
      return await this.#world.client.get(kind.resource, name, namespace);
    } catch (error) {
      if (error instanceof ApiError && error.notFound) return undefined;
      throw error;
    }
  }

  async #gone(resource: Resource<KubeObject>, name: string, namespace: string | undefined): Promise<void> {
    try {
      await this.#world.client.delete(resource, name, namespace, { gracePeriodSeconds: 0 });
    } catch (error) {
      // The operator takes away what it did not write.
      if (!(error instanceof ApiError && error.notFound)) throw error;
    }
  }
}

function keyOf({ kind, namespace = '', name }: Hostile): string {
  return `${kind.resource.plural} ${namespace}/${name}`;
}
