/** An operator that gives derived objects other names than the one before it: peer sets by a longer hash, long policies. */

import { createHash } from 'node:crypto';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { type PeerSet, type ResolvedPolicyObject, type Resource, resources } from '@weir/kube';
import { hashesOf } from '../../operator/names.ts';
import { cnp, namespace, node, pod } from '../../operator/testing.ts';
import { looseCrds } from '../cluster/loose-crds.ts';
import { createWithStatus, createWorld, eventually, type World } from './world.ts';

let world: World;
beforeEach(async () => {
  world = await createWorld({ crds: looseCrds() });
  await world.client.create(resources.Namespace, namespace('a'));
  await createWithStatus(world.client, node('n1'));
  await createWithStatus(world.client, pod('a/web', { app: 'web' }, { ip: '10.0.0.1', node: 'n1' }));
  await createWithStatus(world.client, pod('a/api', { app: 'api' }, { ip: '10.0.0.2', node: 'n1' }));
});
afterEach(() => world.stop());

const LONG = `long-${'x'.repeat(248)}`;
const NAMES = ['web', LONG];
const SPEC = {
  endpointSelector: { matchLabels: { app: 'web' } },
  ingress: [{ fromEndpoints: [{ matchLabels: { app: 'api' } }] }],
};
const written = { fieldManager: 'weir-operator', force: true };

const short = (hash: string): string => hash.slice(0, 20);

/** What the version before this one called it. */
function earlierName(name: string, source: ResolvedPolicyObject['spec']['source']): string {
  const full = `cnp-${source.namespace ?? ''}.${source.name}`;
  return full.length <= 253
    ? name
    : `${full.slice(0, 236)}-${createHash('sha256').update(full).digest('hex').slice(0, 16)}`;
}

const policies = async (): Promise<readonly ResolvedPolicyObject[]> =>
  (await world.client.list(resources.ResolvedPolicy)).items;
const sets = async (): Promise<readonly PeerSet[]> => (await world.client.list(resources.PeerSet)).items;

/** Puts what the operator wrote under the names that the version before this one gave. Returns what is there then, by name. */
async function asBefore(): Promise<void> {
  const [wereSets, werePolicies] = [await sets(), await policies()];
  for (const { spec, apiVersion, kind } of wereSets) {
    const hash = short(spec.hash);
    await world.client.apply(
      resources.PeerSet,
      { apiVersion, kind, metadata: { name: hash }, spec: { ...spec, hash } },
      written,
    );
  }
  for (const { metadata, spec, apiVersion, kind } of werePolicies) {
    const rules = spec.rules.map((rule) => ({
      ...rule,
      subject: short(rule.subject),
      peers: rule.peers?.map((peer) => ('peerSet' in peer ? { peerSet: short(peer.peerSet) } : peer)) ?? [],
    }));
    const name = earlierName(metadata.name, spec.source);
    if (name !== metadata.name) await world.client.delete(resources.ResolvedPolicy, metadata.name);
    await world.client.apply(
      resources.ResolvedPolicy,
      { apiVersion, kind, metadata: { name }, spec: { ...spec, rules } },
      written,
    );
  }
  for (const { metadata } of wereSets) await world.client.delete(resources.PeerSet, metadata.name);
}

/** Follows both kinds; the answer says what was wrong at some moment, once all has been seen that happened until it was asked. */
async function watched(): Promise<() => Promise<string[]>> {
  type Followed = PeerSet | ResolvedPolicyObject;
  const stop = new AbortController();
  const { client } = world;
  const [first, firstSets] = [await client.list(resources.ResolvedPolicy), await client.list(resources.PeerSet)];
  const events: { readonly version: number; readonly gone: boolean; readonly object: Followed }[] = [];
  const follow = async (resource: Resource<Followed>, resourceVersion: string): Promise<void> => {
    for await (const { type, object } of client.watch(resource, { resourceVersion, signal: stop.signal }))
      if (type === 'ADDED' || type === 'MODIFIED' || type === 'DELETED')
        events.push({ version: Number(object.metadata.resourceVersion), gone: type === 'DELETED', object });
  };
  const following = [
    follow(resources.ResolvedPolicy, first.resourceVersion),
    follow(resources.PeerSet, firstSets.resourceVersion),
  ];
  // Of a test that fails nobody waits for them.
  for (const each of following) each.catch(() => undefined);
  const uids = new Set(first.items.map(({ spec }) => spec.source.uid));
  const keyOf = ({ kind, metadata }: Followed): string => `${kind} ${metadata.name}`;
  const replay = (): { readonly end: readonly string[]; readonly wrong: string[] } => {
    const there = new Map<string, Followed>(
      [...first.items, ...firstSets.items].map((object) => [keyOf(object), object]),
    );
    const wrong: string[] = [];
    for (const { gone, object } of events.toSorted((a, b) => a.version - b.version)) {
      if (gone) there.delete(keyOf(object));
      else there.set(keyOf(object), object);
      const rules = [...there.values()].filter((each): each is ResolvedPolicyObject => each.kind === 'ResolvedPolicy');
      for (const { metadata, spec } of rules)
        for (const hash of hashesOf(spec.rules))
          if (!there.has(`PeerSet ${hash}`)) wrong.push(`${metadata.name} names ${hash}, which is not there`);
      for (const uid of uids)
        if (!rules.some(({ spec }) => spec.source.uid === uid)) wrong.push(`nothing enforces ${uid}`);
    }
    return { end: [...there.keys()].sort(), wrong };
  };
  return async () => {
    const now = [...(await policies()), ...(await sets())].map(keyOf).sort();
    await eventually(async () => expect(replay().end).toEqual(now));
    stop.abort();
    return replay().wrong;
  };
}

/** What is still named goes at a later look, which every operator begins with. */
async function operatorsComeAndGo(): Promise<void> {
  for (let turn = 0; turn < 2; turn += 1) {
    const operator = await world.operator();
    await world.settle(operator);
    await operator.stop();
  }
}

it('objects of the version before go after their successors, and a policy is in force all the time, with the cookies that it had', async () => {
  for (const name of NAMES) await world.client.create(resources.CiliumNetworkPolicy, cnp(`a/${name}`, SPEC));
  const first = await world.operator();
  await eventually(async () => expect(await policies()).toHaveLength(NAMES.length));
  await world.settle(first);
  const wanted = { policies: await policies(), sets: await sets() };
  await first.stop();
  await asBefore();
  const earlier = await policies();
  expect((await sets()).every(({ metadata }) => metadata.name.length === 20)).toBe(true);
  expect(earlier.map(({ metadata }) => metadata.name)).not.toEqual(
    wanted.policies.map(({ metadata }) => metadata.name),
  );

  const wrong = await watched();
  await operatorsComeAndGo();
  const specs = (objects: readonly (PeerSet | ResolvedPolicyObject)[]) =>
    objects.map(({ metadata, spec }) => [metadata.name, spec]);
  expect(specs(await policies())).toEqual(specs(wanted.policies));
  expect(specs(await sets())).toEqual(specs(wanted.sets));
  expect(await wrong()).toEqual([]);
});

it('a policy that cannot be written under its new name is enforced under the one that it has', async () => {
  const resource = resources.ResolvedPolicy.plural;
  await world.client.create(resources.CiliumNetworkPolicy, cnp(`a/${LONG}`, SPEC));
  const first = await world.operator();
  await eventually(async () => expect(await policies()).toHaveLength(1));
  await world.settle(first);
  await first.stop();
  await asBefore();
  const wrong = await watched();
  const mend = world.api.faults.fail(500, { resource, verb: 'apply', userAgent: 'weir-operator' });
  const before = world.api.stats.count({ resource, verb: 'apply' });
  const second = await world.operator();
  // Refused, and tried again: what nobody desires has been looked for in between.
  await eventually(async () => expect(world.api.stats.count({ resource, verb: 'apply' })).toBeGreaterThan(before + 3));
  await second.stop();
  mend();
  expect(await wrong()).toEqual([]);
  expect(await policies()).toHaveLength(1);
});

it('a policy that cannot be read keeps what the version before resolved of it, and its sets', async () => {
  for (const name of NAMES) await world.client.create(resources.CiliumNetworkPolicy, cnp(`a/${name}`, SPEC));
  const first = await world.operator();
  await eventually(async () => expect(await policies()).toHaveLength(NAMES.length));
  await world.settle(first);
  await first.stop();
  await asBefore();
  const before = await policies();
  for (const name of NAMES)
    await world.client.apply(resources.CiliumNetworkPolicy, cnp(`a/${name}`, { ...SPEC, nodeSelector: {} }), {
      fieldManager: 'user',
      force: true,
    });
  const wrong = await watched();
  await operatorsComeAndGo();
  const bySource = (objects: readonly ResolvedPolicyObject[]) =>
    objects.map(({ spec }) => spec).toSorted((a, b) => (a.source.name < b.source.name ? -1 : 1));
  expect(bySource(await policies())).toEqual(bySource(before));
  expect(await wrong()).toEqual([]);
  // Mended: nothing of before is left.
  for (const name of NAMES)
    await world.client.apply(resources.CiliumNetworkPolicy, cnp(`a/${name}`, { ...SPEC, description: 'mended' }), {
      fieldManager: 'user',
      force: true,
    });
  await operatorsComeAndGo();
  expect((await policies()).map(({ spec }) => spec.source.name).sort()).toEqual([...NAMES].sort());
  expect((await sets()).every(({ metadata }) => metadata.name.length === 64)).toBe(true);
});
