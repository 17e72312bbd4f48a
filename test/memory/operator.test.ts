/** What an operator keeps depends on what the API server has, not on how much has happened there. */
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { ApiError, type CiliumPolicyObject, type Pod, resources } from '@weir/kube';
import type { Operator } from '../../operator/operator.ts';
import { cnp, knp, namespace, node, pod, report } from '../../operator/testing.ts';
import { Random } from '../chaos/random.ts';
import { looseCrds } from '../cluster/loose-crds.ts';
import { createWithStatus, createWorld, eventually, type World } from '../operator/world.ts';
import { type Kept, kept } from './kept.ts';

const EDITS = 200;
const NAMESPACES = ['a', 'b'];
const APPS = ['web', 'db', 'job'];
const apply = { fieldManager: 'user', force: true } as const;

let world: World;
beforeEach(async () => {
  world = await createWorld({ crds: looseCrds() });
});
afterEach(() => world.stop());

/** Pods, namespaces and policies that come, change and go. */
class Story {
  readonly #random = new Random(5);
  readonly #pods = new Map<string, Pod>();
  readonly #policies = new Set<string>();
  readonly #spaces = new Set<string>();
  #named = 0;

  async edit(): Promise<void> {
    const random = this.#random;
    this.#named += 1;
    await random.pick([
      () => this.#podComes(),
      () => this.#podComes(),
      () => this.#podGoes(),
      () => this.#podGoes(),
      () => this.#relabel(),
      () => this.#relabel(),
      () => this.#policy(),
      () => this.#policy(),
      () => this.#policyGoes(),
      () => this.#networkPolicy(),
      () => this.#space(),
      () => this.#report(),
    ])();
  }

  async end(): Promise<void> {
    while (this.#pods.size > 0) await this.#podGoes();
    while (this.#policies.size > 0) await this.#policyGoes();
    for (const name of NAMESPACES) {
      await world.client.apply(resources.Namespace, namespace(name), apply);
      try {
        await world.client.delete(resources.NetworkPolicy, 'n', name);
      } catch (error) {
        // Not every namespace has one.
        if (!(error instanceof ApiError && error.notFound)) throw error;
      }
    }
    for (const name of this.#spaces) await world.client.delete(resources.Namespace, name);
  }

  async #podComes(): Promise<void> {
    const random = this.#random;
    const key = `${random.pick(NAMESPACES)}/p${this.#named}`;
    const ip = `10.0.${1 + Math.floor(this.#named / 200)}.${1 + (this.#named % 200)}`;
    const { spec, ...rest } = pod(key, this.#labels(), { ip, node: random.pick(['n1', 'n2']) });
    const made = { ...rest, spec: { ...spec, terminationGracePeriodSeconds: 0 } } as Pod;
    this.#pods.set(key, made);
    await createWithStatus(world.client, made);
  }

  async #podGoes(): Promise<void> {
    const key = [...this.#pods.keys()].at(this.#random.between(0, Math.max(0, this.#pods.size - 1)));
    const gone = key === undefined ? undefined : this.#pods.get(key);
    if (key === undefined || gone === undefined) return;
    this.#pods.delete(key);
    await world.client.delete(resources.Pod, gone.metadata.name, gone.metadata.namespace ?? '');
  }

  async #relabel(): Promise<void> {
    if (this.#pods.size === 0) return;
    const { apiVersion, kind, metadata } = this.#random.pick([...this.#pods.values()]);
    const { name, namespace: space = '' } = metadata;
    const labelled = { apiVersion, kind, metadata: { name, namespace: space, labels: this.#labels() } } as Pod;
    await world.client.apply(resources.Pod, labelled, { ...apply, fieldManager: 'relabel' });
  }

  #labels(): Record<string, string> {
    return { app: this.#random.pick(APPS), version: `v${this.#random.between(0, 8)}` };
  }

  async #policy(): Promise<void> {
    const random = this.#random;
    const key = `${random.pick(NAMESPACES)}/c${random.between(0, 9)}`;
    this.#policies.add(key);
    const peer = random.pick([
      { fromEndpoints: [{ matchLabels: { version: `v${random.between(0, 8)}` } }] },
      { fromCIDR: [`192.0.${random.between(0, 255)}.0/24`] },
      { fromEntities: ['nonsense'] },
      { fromRequires: [] },
    ]);
    const spec = { endpointSelector: { matchLabels: { app: random.pick(APPS) } }, ingress: [peer] };
    await world.client.apply(resources.CiliumNetworkPolicy, cnp(key, spec), apply);
  }

  async #policyGoes(): Promise<void> {
    if (this.#policies.size === 0) return;
    const key = this.#random.pick([...this.#policies]);
    this.#policies.delete(key);
    const [space = '', name = ''] = key.split('/');
    await world.client.delete(resources.CiliumNetworkPolicy, name, space);
  }

  async #networkPolicy(): Promise<void> {
    const from = [{ podSelector: { matchLabels: { version: `v${this.#named}` } } }];
    const wanted = knp(`${this.#random.pick(NAMESPACES)}/n`, { podSelector: {}, ingress: [{ from }] });
    await world.client.apply(resources.NetworkPolicy, wanted, apply);
  }

  async #space(): Promise<void> {
    const name = `s${this.#named}`;
    await world.client.apply(resources.Namespace, namespace(name), apply);
    this.#spaces.add(name);
    const team = { team: `t${this.#named}` };
    await world.client.apply(resources.Namespace, namespace(this.#random.pick(NAMESPACES), team), apply);
  }

  async #report(): Promise<void> {
    const { items, resourceVersion } = await world.client.list<CiliumPolicyObject>(resources.CiliumNetworkPolicy);
    const failures = items.map(({ metadata: { uid = '', generation = 0 } }) => ({
      ...{ uid, generation },
      ...{ reason: 'KernelRefused', message: 'full' },
    }));
    const said = report(this.#random.pick(['n1', 'n2']), {
      policyVersion: resourceVersion,
      failures: this.#random.pick([[], failures.slice(0, 50)]),
    });
    await world.client.apply(resources.NodePolicyStatus, said, { fieldManager: 'agent', force: true });
  }
}

/** Timers and sockets, which are linked with all others. */
const NOT_OURS = new Set(['Timeout', 'ReusedHandle', 'NodeTransport', 'Registry', 'AbortSignal', 'AbortController']);
/** Rows, which are counted by table, and what there is once for each table that was ever written. */
const ROWS = /^(new )?(Draft|Marker|Entry)\b|^TableStore\.#committed\./;

function sizes(operator: Operator): Kept {
  const { watchesFired: _, snapshots, ...stats } = operator.db.stats();
  if (snapshots === undefined) throw new Error('snapshots are not counted');
  const timers = process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const all = Object.entries(kept({ operator }, NOT_OURS));
  return {
    ...Object.fromEntries(operator.db.tables().map(({ name, rows }) => [`table ${name}`, rows])),
    ...stats,
    snapshots,
    timers,
    ...Object.fromEntries(all.filter(([name]) => !ROWS.test(name))),
    // They are often half of an object.
    'managed fields': all.filter(([name]) => name.startsWith('Entry.') && name.endsWith('.managedFields')).length,
  };
}

/** Some looks as one: what is under way at one of them is not at another. */
async function sizesOver(operator: Operator, pick: (one: number, other: number) => number): Promise<Kept> {
  const looks: Kept[] = [];
  while (looks.length < 3) {
    await world.settle(operator);
    looks.push(sizes(operator));
  }
  const names = new Set(looks.flatMap((look) => Object.keys(look)));
  return Object.fromEntries(
    [...names].map((name) => [name, looks.map((look) => look[name] ?? 0).reduce((a, b) => pick(a, b))]),
  );
}

async function started(): Promise<Operator> {
  const operator = await world.operator({ identityGcGrace: 1, identityGcInterval: 100, orphanGraceMs: 100 });
  await world.settle(operator);
  return operator;
}

it('an operator that has seen hundreds of edits keeps as much as one that began with the final world', async () => {
  const { client } = world;
  for (const name of NAMESPACES) await client.create(resources.Namespace, namespace(name));
  for (const name of ['n1', 'n2']) await createWithStatus(client, node(name));
  const operator = await started();
  const story = new Story();
  // What waits for a write finds it under way.
  const quicken = world.api.faults.delay(100, { verb: 'apply', resource: 'peersets', userAgent: 'weir-operator' });
  for (let edit = 0; edit < EDITS; edit += 1) await story.edit();
  await story.end();
  quicken();
  const identities = async (): Promise<number> => (await client.list(resources.CiliumIdentity)).items.length;
  await eventually(async () => expect(await identities()).toBeLessThan(2));
  await world.settle(operator);
  const has = await sizesOver(operator, Math.min);
  await operator.stop();
  const fresh = await started();
  const had = await sizesOver(fresh, Math.max);
  expect(Object.entries(has).filter(([name, size]) => size > (had[name] ?? 0))).toEqual([]);
  expect(Object.keys(has).length).toBeGreaterThan(100);
});
