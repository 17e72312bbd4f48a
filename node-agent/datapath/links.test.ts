/** What others do to the links: programs before ours, pins that are lost or exchanged, another network namespace. On the real kernel. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { buildDatapath, ENDPOINT_FLAGS, MAPS, PROGRAMS } from '@weir/bpf';
import {
  attachClsact,
  attachTcx,
  type BpfObject,
  type BpfProgram,
  detachClsact,
  inNetns,
  listClsact,
  listTcx,
  loadObject,
  openPinnedLink,
  queryClsact,
  type TcLink,
} from 'libbpf-ts';
import { eventually } from '../../test/eventually.ts';
import { createCore } from '../core/create-core.ts';
import type { Core, CoreOptions } from '../core.ts';
import { NetnsMismatchError } from '../errors.ts';
import { recordingLogger } from '../testing/fake-core.ts';
import { dropsOf, Lab, type LabPod } from './testing/lab.ts';
import { loadRivals } from './testing/rivals.ts';

let rivals: BpfObject;
let lab: Lab;
let client: LabPod;
let server: LabPod;
let log: ReturnType<typeof recordingLogger>;
const cores: Core[] = [];
const links: TcLink[] = [];

function made(more: Partial<CoreOptions> = {}): Core {
  log = recordingLogger();
  const core = createCore(lab.options({ log, ...more, kernel: { auditMs: 20, ...more.kernel } }));
  cores.push(core);
  return core;
}

/** A running core with endpoints 1 (client) and 2 (server); the server takes datagrams of `app` only. */
async function enforcing(app: string, more: Partial<CoreOptions> = {}): Promise<Core> {
  const core = made(more);
  await core.start();
  await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
  await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
  core.importRules([
    { endpointSelector: { matchLabels: { app: 'server' } }, ingress: [{ fromEndpoints: [{ matchLabels: { app } }] }] },
  ]);
  await core.waitPolicyRevision(core.policyRevision());
  return core;
}

async function again(more: Partial<CoreOptions> = {}): Promise<Core> {
  const core = made(more);
  await core.start();
  await core.waitPolicyRevision(core.policyRevision());
  return core;
}

async function until(test: () => boolean): Promise<void> {
  for (const end = Date.now() + 60_000; !test() && Date.now() < end; ) await new Promise((done) => setTimeout(done, 5));
  expect(test()).toBe(true);
}

const check = (core: Core, name: string) => core.health().checks.find((each) => each.name === name);
const repairs = (core: Core): number => core.repairs().reduce((sum, { count }) => sum + count, 0);
const settled = (core: Core, before: number) =>
  until(() => repairs(core) > before && check(core, 'enforcement')?.ok === true);
const pin = (name: string): string => join(lab.root, 'links', name);
const pins = (): string[] => readdirSync(join(lab.root, 'links')).sort();
const chain = (pod: LabPod, hook: 'ingress' | 'egress') => inNetns(lab.netns, () => listTcx(pod.ifindex, hook));

/** What each pin holds: link, interface, program. */
function held(): unknown[] {
  return pins().map((name) => {
    using link = openPinnedLink(pin(name));
    return [name, link.id(), link.ifindex, link.programId()];
  });
}

function exchange(one: string, other: string): void {
  renameSync(pin(one), pin('x'));
  renameSync(pin(other), pin(one));
  renameSync(pin('x'), pin(other));
}

async function heard(pod: LabPod, bytes: number): Promise<void> {
  await eventually(
    () => pod.heard(),
    (now) => now === bytes,
  );
  expect(await pod.heard()).toBe(bytes);
}

/** The client opens a connection that nobody judges, and is heard. */
async function dialled(): Promise<void> {
  expect(await client.dial(server)).toBe(true);
  await client.say(server);
  await heard(server, 1);
}

/** It is denied, though the server speaks first. */
async function cut(): Promise<void> {
  await server.say(client);
  await heard(client, 1);
  const before = dropsOf(lab.root);
  await client.say(server);
  await until(() => dropsOf(lab.root) > before);
  expect(await server.heard()).toBe(1);
}

beforeAll(() => {
  rivals = loadRivals();
});
afterAll(() => rivals.close());

beforeEach(async () => {
  lab = new Lab();
  client = await lab.pod('c');
  server = await lab.pod('s');
});

afterEach(async () => {
  for (const link of links.splice(0)) link.close();
  for (const each of cores.splice(0)) await each.stop();
  lab.close();
});

describe("another's program before this agent's", () => {
  const rival = (name: string, hook: 'ingress' | 'egress', pod = server): TcLink => {
    const where = { ifindex: pod.ifindex, direction: hook } as const;
    const link = inNetns(lab.netns, () => attachTcx(rivals.program(name), { ...where, place: 'first' }));
    links.push(link);
    return link;
  };

  it.each(['ingress', 'egress'] as const)('comes after it again, and goes on: %s', async (hook) => {
    const core = await enforcing('nobody');
    // The client may send nothing, so that its own hook counts too.
    core.importRules([{ endpointSelector: { matchLabels: { app: 'client' } }, egress: [{}] }]);
    await core.waitPolicyRevision(core.policyRevision());
    const pod = hook === 'egress' ? server : client;
    const before = chain(pod, hook);
    const other = rival('rival_ends', hook, pod);
    await settled(core, 0);
    expect(await client.reaches(server)).toBe(false);
    expect(chain(pod, hook)).toEqual([
      { program: before[0]?.program, link: expect.any(Number) },
      { program: rivals.program('rival_ends').info().id, link: other.id() },
    ]);
    expect(pins()).toEqual(['1-egress', '1-ingress', '2-egress', '2-ingress']);
    const [warning] = log.lines.filter(({ level }) => level === 'warn');
    const id = rivals.program('rival_ends').info().id;
    expect(JSON.stringify(warning?.fields)).toContain(`rival_ends, id ${id}`);
    expect(JSON.stringify(warning?.fields)).toContain(`${hook} of ${pod.interfaceName}`);
    // What comes after is fine, and gets what this agent's program lets through.
    const once = repairs(core);
    await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'nobody' }));
    expect(await client.reaches(server)).toBe(true);
    expect([repairs(core), check(core, 'enforcement')?.ok]).toEqual([once, true]);
  });

  it('is overtaken without an instant in which none of ours runs', async () => {
    const core = await enforcing('nobody');
    await client.startStream(server);
    for (let round = 0; round < 3; round += 1) {
      const before = repairs(core);
      const other = rival('rival_goes_on', 'egress');
      await settled(core, before);
      other.detach();
    }
    const { sent, lost } = await client.endStream();
    expect([sent > 0, lost]).toEqual([true, sent]);
  });

  it('is attached before an agent starts', async () => {
    await (await enforcing('nobody')).stop();
    for (const hook of ['ingress', 'egress'] as const) rival('rival_ends', hook);
    expect(await client.reaches(server)).toBe(true);
    await dialled();
    const core = await again();
    await until(() => check(core, 'enforcement')?.ok === true && repairs(core) > 0);
    expect(await client.reaches(server)).toBe(false);
    await cut();
  });

  it('was there before the endpoint', async () => {
    rival('rival_ends', 'egress');
    await enforcing('nobody');
    expect(await client.reaches(server)).toBe(false);
  });

  it('that insists is given up to after some tries, and is said until it goes', async () => {
    const core = await enforcing('nobody');
    const ours = chain(server, 'egress')[0]?.program;
    let other = rival('rival_ends', 'egress');
    let moves = 0;
    const insisting = setInterval(() => {
      if (chain(server, 'egress')[0]?.program !== ours) return;
      moves += 1;
      other.detach();
      other = rival('rival_ends', 'egress');
    }, 1);
    try {
      await until(() => check(core, 'enforcement')?.message.includes('cannot be restored') === true);
      const most = moves;
      expect(most).toBeLessThan(10);
      const id = rivals.program('rival_ends').info().id;
      await until(() => core.realised().failures.length > 0);
      expect(core.realised().failures).toEqual([
        expect.objectContaining({ reason: 'EnforcementRemoved', message: expect.stringContaining(`id ${id}`) }),
      ]);
      const { message } = core.realised().failures[0] ?? { message: '' };
      expect(message).toContain(`egress of ${server.interfaceName}`);
      expect(message).toContain('rival_ends');
      // Each look comes 20 ms after the last.
      for (let turn = 0; turn < 20; turn += 1) await new Promise((done) => setTimeout(done, 20));
      expect(moves).toBe(most);
      expect(core.health().ok).toBe(false);
    } finally {
      clearInterval(insisting);
    }
    other.detach();
    await until(() => core.health().ok);
    expect(core.realised().failures).toEqual([]);
    expect(await client.reaches(server)).toBe(false);
    expect(log.lines.filter(({ level }) => level === 'error').length).toBeLessThan(3);
  });

  it('is overtaken by clsact, where one of equal priority that is younger comes first', async () => {
    const core = await enforcing('nobody', { kernel: { attachment: 'clsact' } });
    const where = { ifindex: server.ifindex, direction: 'egress' } as const;
    const program = rivals.program('rival_ends').info().id;
    inNetns(lab.netns, () => attachClsact(rivals.program('rival_ends'), where, { priority: 1, handle: 1 }));
    await settled(core, 0);
    expect(await client.reaches(server)).toBe(false);
    const filters = inNetns(lab.netns, () => listClsact(server.ifindex, 'egress'));
    expect(filters.map(({ handle }) => handle)).toEqual([0x77656972, 1]);
    expect(filters[1]).toMatchObject({ program });
    inNetns(lab.netns, () => detachClsact(where, { priority: 1, handle: 1 }));
  });

  it('and cannot be overtaken lets no connection in that goes on after it', async () => {
    const core = await enforcing('nobody', { kernel: { attachment: 'clsact' } });
    // tcx programs run before every filter.
    const other = rival('rival_ends', 'egress');
    await until(() => check(core, 'enforcement')?.ok === false);
    expect(check(core, 'enforcement')?.message).toContain('rival_ends');
    await dialled();
    await server.say(client);
    await heard(client, 1);
    other.detach();
    await until(() => core.health().ok);
    const before = dropsOf(lab.root);
    await client.say(server);
    await until(() => dropsOf(lab.root) > before);
    expect(await server.heard()).toBe(1);
  });
});

describe('a filter that an agent left which died while it moved its own to the front', () => {
  const INTERIM = { priority: 1, handle: 0x77656973 };
  const handles = () =>
    inNetns(lab.netns, () => listClsact(server.ifindex, 'egress').map(({ handle }) => handle.toString(16)));

  it.each([
    ['beside its own', false],
    ['in the place of its own', true],
  ])('goes once its own is there, and lets nothing through: %s', async (_, alone) => {
    await (await enforcing('nobody', { kernel: { attachment: 'clsact' } })).stop();
    const where = { ifindex: server.ifindex, direction: 'egress' } as const;
    using older = loadObject(buildDatapath().objectPath);
    inNetns(lab.netns, () => {
      attachClsact(older.program(PROGRAMS.toPod), where, INTERIM).close();
      if (alone) detachClsact(where, { priority: 1, handle: 0x77656972 });
    });
    const core = await again({ kernel: { attachment: 'clsact' } });
    expect(handles()).toEqual(['77656972']);
    expect(await client.reaches(server)).toBe(false);
    expect(await server.reaches(client)).toBe(true);
    // Programs of ours ran all the time.
    expect(core.mapEntries('endpoints').map(({ value }) => value)).toContainEqual(
      expect.objectContaining({ id: 2, flags: ENDPOINT_FLAGS.ingressEnforced }),
    );
  });
});

describe.each(['tcx', 'clsact'] as const)("another's program in the place of this agent's, by %s", (attachment) => {
  const replace = (programs: (hook: 'ingress' | 'egress') => BpfProgram): void => {
    for (const direction of ['ingress', 'egress'] as const) {
      const where = { ifindex: server.ifindex, direction };
      if (attachment === 'tcx') {
        using link = openPinnedLink(pin(`2-${direction}`));
        link.replace(programs(direction));
      } else
        inNetns(lab.netns, () => attachClsact(programs(direction), where, { priority: 1, handle: 0x77656972 }).close());
    }
  };
  const rival = (): BpfProgram => rivals.program('rival_ends');
  /** An agent that goes by what it finds: its inputs are not complete. */
  const incomplete = async (): Promise<Core> => {
    const core = made({ kernel: { attachment }, kubernetes: true });
    core.db.initialiser(core.tables.policies, 'reflector');
    await core.start();
    return core;
  };

  it('lets no connection in that goes on after it', async () => {
    // No look comes before the edit.
    const core = await enforcing('nobody', { kernel: { attachment, auditMs: 3_600_000 } });
    replace(rival);
    await dialled();
    core.importRules([{ endpointSelector: { matchLabels: { app: 'server' } }, ingress: [{ fromEndpoints: [{}] }] }]);
    core.deleteRules([]);
    core.importRules([
      { endpointSelector: { matchLabels: { app: 'server' } }, ingress: [{ fromCIDR: ['192.0.2.0/24'] }] },
    ]);
    await core.waitPolicyRevision(core.policyRevision());
    await cut();
  });

  it('is replaced when an agent starts, and in each look, though its inputs are not complete', async () => {
    await (await enforcing('nobody', { kernel: { attachment } })).stop();
    replace(rival);
    await dialled();
    const core = await incomplete();
    expect(await client.reaches(server)).toBe(false);
    await cut();
    const before = repairs(core);
    replace(rival);
    await settled(core, before);
    expect(await client.reaches(server)).toBe(false);
  });

  it('is none where it is of another version of this agent: it goes on until the inputs are complete', async () => {
    await (await enforcing('nobody', { kernel: { attachment } })).stop();
    using older = loadObject(buildDatapath().objectPath);
    const named = (hook: 'ingress' | 'egress') => older.program(hook === 'ingress' ? PROGRAMS.fromPod : PROGRAMS.toPod);
    replace(named);
    const runs = () =>
      inNetns(lab.netns, () =>
        attachment === 'tcx'
          ? listTcx(server.ifindex, 'egress').map(({ program }) => program)
          : [queryClsact(server.ifindex, 'egress', { priority: 1, handle: 0x77656972 })],
      );
    const first = await incomplete();
    expect(runs()).toEqual([named('egress').info().id]);
    expect(log.lines.filter(({ level }) => level === 'warn')).toEqual([]);
    await first.stop();
    const second = await again({ kernel: { attachment } });
    expect(runs()).not.toEqual([named('egress').info().id]);
    expect(await client.reaches(server)).toBe(false);
    expect(await server.reaches(client)).toBe(true);
    expect(second.mapEntries('endpoints').map(({ value }) => value)).toEqual([
      expect.objectContaining({ id: 1, flags: 0 }),
      expect.objectContaining({ id: 2, flags: ENDPOINT_FLAGS.ingressEnforced }),
    ]);
  });
});

describe('a pin of a link', () => {
  it('that was removed while somebody holds the link is made again, of the same link', async () => {
    const core = await enforcing('nobody');
    const before = held();
    links.push(openPinnedLink(pin('2-egress')));
    rmSync(pin('2-egress'));
    await settled(core, 0);
    expect(held()).toEqual(before);
    expect(await client.reaches(server)).toBe(false);
  });

  it.each([
    ['while the agent runs', true],
    ['while it does not', false],
  ])('that was exchanged with that of another endpoint is put back, and opens nothing: %s', async (_, running) => {
    let core = await enforcing('nobody');
    const before = held();
    await client.startStream(server);
    if (!running) await core.stop();
    for (const hook of ['ingress', 'egress']) exchange(`1-${hook}`, `2-${hook}`);
    if (!running) core = await again();
    await until(() => JSON.stringify(held()) === JSON.stringify(before));
    await until(() => core.health().ok);
    const { sent, lost } = await client.endStream();
    expect([sent > 0, lost]).toEqual([true, sent]);
    expect(await core.deleteEndpoint(2)).toBe(true);
    expect(chain(server, 'egress')).toEqual([]);
    expect(pins()).toEqual(['1-egress', '1-ingress']);
  });

  it.each([
    ['was exchanged', () => exchange('1-egress', '2-egress')],
    [
      'was removed while somebody holds the link',
      () => links.push(openPinnedLink(pin('2-egress'))) && rmSync(pin('2-egress')),
    ],
  ])('that %s does not keep its endpoint from being removed, and opens no other', async (_, spoil) => {
    // No look comes before the removal.
    const core = await enforcing('nobody', { kernel: { auditMs: 3_600_000 } });
    spoil();
    expect(await core.deleteEndpoint(2)).toBe(true);
    expect([...chain(server, 'ingress'), ...chain(server, 'egress')]).toEqual([]);
    expect([...chain(client, 'ingress'), ...chain(client, 'egress')]).toHaveLength(2);
  });

  it('of the other hook of the same interface is put back', async () => {
    const core = await enforcing('nobody');
    const before = held();
    exchange('2-ingress', '2-egress');
    await settled(core, 0);
    expect(held()).toEqual(before);
  });

  it.each([
    ['the same interface', () => server],
    ['another interface', () => client],
  ])('whose place a link of another program has, on %s, is put back', async (_, pod) => {
    const core = await enforcing('nobody');
    const before = held();
    const where = { ifindex: pod().ifindex, direction: 'egress' } as const;
    const other = inNetns(lab.netns, () => attachTcx(rivals.program('rival_goes_on'), where));
    links.push(other);
    links.push(openPinnedLink(pin('2-egress')));
    rmSync(pin('2-egress'));
    other.pin(pin('2-egress'));
    await settled(core, 0);
    await until(() => JSON.stringify(held()) === JSON.stringify(before));
    expect(chain(pod(), 'egress')).toContainEqual({
      program: rivals.program('rival_goes_on').info().id,
      link: other.id(),
    });
    expect(await client.reaches(server)).toBe(false);
  });
});

describe('a link that is not of its pin', () => {
  it('is kept aside until its interface goes', async () => {
    const other = await lab.pod('o');
    const core = await enforcing('nobody');
    const where = { ifindex: other.ifindex, direction: 'egress' } as const;
    const link = inNetns(lab.netns, () => attachTcx(rivals.program('rival_goes_on'), where));
    links.push(link, openPinnedLink(pin('2-egress')));
    rmSync(pin('2-egress'));
    link.pin(pin('2-egress'));
    await settled(core, 0);
    const own = ['1-egress', '1-ingress', '2-egress', '2-ingress'];
    const aside = `aside-${other.ifindex}-egress-${link.id()}`;
    expect(pins()).toEqual([...own, aside]);
    lab.unplug(other);
    await until(() => pins().length === own.length);
    expect(pins()).toEqual(own);
  });

  it.each(['tcx', 'clsact'] as const)(
    'is detached where its endpoint has moved to another interface, by %s',
    async (attachment) => {
      const other = await lab.pod('o');
      const core = await enforcing('nobody', { kernel: { attachment } });
      const programs = (pod: LabPod): number =>
        inNetns(lab.netns, () =>
          (['ingress', 'egress'] as const).flatMap((hook) => [
            ...listTcx(pod.ifindex, hook),
            ...listClsact(pod.ifindex, hook),
          ]),
        ).length;
      await core.upsertEndpoint(other.endpoint(2, { 'k8s:app': 'server' }));
      expect([programs(server), programs(other)]).toEqual([0, 2]);
      expect(pins().filter((name) => name.startsWith('aside'))).toEqual([]);
      expect(await client.reaches(other)).toBe(false);
    },
  );
});

it('folders in the place of what an agent tidies away keep it neither from starting nor from looking', async () => {
  await (await enforcing('nobody')).stop();
  const names = ['next_ct4', 'programs/0-old', 'links/next_2-egress', `links/aside-${server.ifindex}-egress-1`];
  for (const name of names) mkdirSync(join(lab.root, name, 'x'), { recursive: true });
  const core = await again();
  const before = repairs(core);
  rmSync(pin('2-egress'));
  await settled(core, before);
  expect(names.filter((name) => existsSync(join(lab.root, name)))).toEqual([]);
  expect(await client.reaches(server)).toBe(false);
});

it('something in the mark of its filters does not keep an endpoint from being removed, by clsact', async () => {
  const core = await enforcing('nobody', { kernel: { attachment: 'clsact' } });
  const [mark = ''] = pins().filter((name) => name.startsWith('2-clsact-'));
  mkdirSync(join(pin(mark), 'x'));
  expect(await core.deleteEndpoint(2)).toBe(true);
  expect(pins()).toEqual([`1-clsact-${client.ifindex}`]);
  expect(inNetns(lab.netns, () => listClsact(server.ifindex, 'egress'))).toEqual([]);
});

it.each([
  ['are exchanged', exchange],
  [
    'have a folder in the place of one',
    (one: string) => {
      rmSync(pin(one));
      mkdirSync(pin(one));
    },
  ],
])('pins of programs that %s when an agent starts are made again, and open nothing', async (_, spoil) => {
  await (await enforcing('nobody')).stop();
  const [one = '', other = ''] = readdirSync(join(lab.root, 'programs')).map((name) => `../programs/${name}`);
  spoil(one, other);
  const core = await again();
  expect(await client.reaches(server)).toBe(false);
  expect(await server.reaches(client)).toBe(true);
  await until(() => core.health().ok);
});

describe('a pin that is gone when an agent starts', () => {
  it('leaves no connection that began without it', async () => {
    await (await enforcing('nobody')).stop();
    rmSync(join(lab.root, 'links'), { recursive: true });
    await dialled();
    const core = made({ kubernetes: true });
    core.db.initialiser(core.tables.policies, 'reflector');
    await core.start();
    await cut();
  });

  it('opens nothing, and closes nothing that is allowed, whichever it is', async () => {
    const friend = await lab.pod('a');
    let core = await enforcing('friend');
    await core.upsertEndpoint(friend.endpoint(3, { 'k8s:app': 'friend' }));
    const all = [...Object.keys(MAPS), 'programs', 'layouts', 'netns', ...pins().map((name) => `links/${name}`)];
    for (const file of all) {
      await core.stop();
      rmSync(join(lab.root, file), { recursive: true });
      // A link that lost its pin is gone at once; until an agent starts, nobody can tell.
      const link = file.startsWith('links/');
      if (!link) await client.startStream(server);
      core = made();
      await core.start();
      if (link) await client.startStream(server);
      await core.waitPolicyRevision(core.policyRevision());
      await until(() => core.health().ok);
      const denied = await client.reaches(server);
      const { sent, lost } = await client.endStream();
      expect([file, denied, sent > 0, lost]).toEqual([file, false, true, sent]);
      expect([file, await friend.reaches(server)]).toEqual([file, true]);
      for (const name of Object.keys(MAPS)) expect([file, existsSync(join(lab.root, name))]).toEqual([file, true]);
      expect(pins()).toHaveLength(6);
    }
  });
});

it('whether a round was under way is not known without the settings: every endpoint gets a new revision', async () => {
  const revisions = (core: Core): number[] => {
    using snapshot = core.db.read();
    return Array.from(snapshot.all(core.tables.endpointStates), ({ revision }) => revision);
  };
  const first = await enforcing('nobody');
  const before = revisions(first);
  await first.stop();
  const second = await again();
  expect(revisions(second)).toEqual(before);
  await second.stop();
  rmSync(join(lab.root, 'settings'));
  const after = revisions(await again());
  expect(after.map((revision, at) => revision > (before[at] ?? 0))).toEqual([true, true]);
});

describe('another network namespace', () => {
  let elsewhere: string;
  beforeEach(() => {
    elsewhere = `${lab.prefix}else`;
    execFileSync('ip', ['netns', 'add', elsewhere]);
  });
  afterEach(() => {
    execFileSync('ip', ['netns', 'del', elsewhere]);
  });
  const wrong = (): Partial<CoreOptions> => ({ nodeNetns: `/var/run/netns/${elsewhere}` });
  const attached = (pod: LabPod): number =>
    inNetns(lab.netns, () =>
      (['ingress', 'egress'] as const).flatMap((hook) => [
        ...listTcx(pod.ifindex, hook),
        ...listClsact(pod.ifindex, hook),
      ]),
    ).length;

  it.each([
    ['tcx', 'of which it is known where the links are'],
    ['tcx', 'of a version that did not note it'],
    ['clsact', 'of which it is known where the links are'],
  ] as const)(
    'an agent that is started there refuses, and takes nothing away: %s, pins %s',
    async (attachment, kind) => {
      await (await enforcing('nobody', { kernel: { attachment } })).stop();
      const state = readFileSync(join(lab.state, 'endpoints.json'), 'utf8');
      if (kind === 'of a version that did not note it') rmSync(join(lab.root, 'netns'), { recursive: true });
      const core = made({ kernel: { attachment }, ...wrong() });
      await expect(core.start()).rejects.toThrow(NetnsMismatchError);
      await expect(core.start()).rejects.toThrow(/network namespace \d+.*hostNetwork/s);
      await expect(core.remove()).rejects.toThrow(NetnsMismatchError);
      expect([attached(client), attached(server)]).toEqual([2, 2]);
      expect(readFileSync(join(lab.state, 'endpoints.json'), 'utf8')).toBe(state);
      expect(await client.reaches(server)).toBe(false);
      const right = await again({ kernel: { attachment } });
      expect(right.health().ok).toBe(true);
      expect(readdirSync(join(lab.root, 'netns'))).toHaveLength(1);
      expect(await client.reaches(server)).toBe(false);
    },
  );

  it('is taken where nothing is enforced in the former one any more', async () => {
    await (await enforcing('nobody')).stop();
    lab.unplug(client);
    lab.unplug(server);
    const core = await again(wrong());
    expect(core.health().ok).toBe(true);
    expect(pins()).toEqual([]);
  });

  const away = (pod: LabPod) =>
    execFileSync('ip', ['-n', lab.node, 'link', 'set', pod.interfaceName, 'netns', elsewhere]);
  const home = (pod: LabPod): void => {
    execFileSync('ip', ['-n', elsewhere, 'link', 'set', pod.interfaceName, 'netns', lab.node]);
    const address = `${pod.address.replace(/\d+$/, '1')}/24`;
    execFileSync('ip', ['-n', lab.node, 'addr', 'add', address, 'dev', pod.interfaceName]);
    execFileSync('ip', ['-n', lab.node, 'link', 'set', pod.interfaceName, 'up']);
  };

  it.each([
    ['while the agent runs', 'running'],
    ['while it does not', 'stopped'],
    ['while it does not, and no file knows the endpoint', 'forgotten'],
  ])('an interface that is moved there keeps its programs: %s', async (_, kind) => {
    let core = await enforcing('nobody');
    const before = held();
    if (kind !== 'running') await core.stop();
    away(server);
    if (kind === 'forgotten') rmSync(join(lab.state, 'endpoints.json'));
    if (kind !== 'running') core = await again();
    if (kind !== 'forgotten')
      await until(() => check(core, 'endpoints')?.message.includes('interface of endpoint 2') === true);
    await until(() => core.mapEntries('endpoints').length === 1);
    // Some rounds and looks later, too.
    core.importRules([{ endpointSelector: { matchLabels: { app: 'x' } }, ingress: [{}] }]);
    await core.waitPolicyRevision(core.policyRevision());
    expect(held()).toEqual(before);
    expect(core.allocateEndpointId()).not.toBe(2);
    home(server);
    expect(await client.reaches(server)).toBe(false);
    if (kind === 'forgotten') {
      await core.stop();
      core = await again();
    }
    await until(() => core.mapEntries('endpoints').length === 2);
    expect(held()).toEqual(before);
    expect(await client.reaches(server)).toBe(false);
    expect(await core.deleteEndpoint(2)).toBe(true);
    expect(attached(server)).toBe(0);
  });

  it('an endpoint whose interface is there can be deleted', async () => {
    const core = await enforcing('nobody');
    away(server);
    await until(() => check(core, 'endpoints')?.message.includes('interface of endpoint 2') === true);
    expect(await core.deleteEndpoint(2)).toBe(true);
    await until(() => pins().length === 2);
    home(server);
    expect(attached(server)).toBe(0);
  });
});
