/** Files, pins and programs that are lost, torn or cannot be written: no pod is opened by it. On the real kernel. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { KubeNode, NodeCondition } from '@weir/kube';
import { inNetns, queryClsact, queryTcx } from 'libbpf-ts';
import { eventually } from '../../test/eventually.ts';
import type { Core, CoreOptions } from '../core.ts';
import { dropsOf, foundBy, Lab, type LabPod } from '../datapath/testing/lab.ts';
import { Connection } from '../kubernetes/connection.ts';
import { NodeConditionWriter } from '../kubernetes/node-condition.ts';
import { FakeClient } from '../kubernetes/testing/fake-client.ts';
import { quiet, recordingLogger } from '../testing/fake-core.ts';
import { createCore } from './create-core.ts';
import { coreProblems } from './part.ts';

let lab: Lab;
let client: LabPod;
let server: LabPod;
const cores: Core[] = [];

async function started(more: Partial<CoreOptions> = {}): Promise<Core> {
  const core = createCore(lab.options(more));
  cores.push(core);
  await core.start();
  return core;
}

function from(app: string): object {
  return {
    endpointSelector: { matchLabels: { app: 'server' } },
    ingress: [{ fromEndpoints: [{ matchLabels: { app } }] }],
    labels: [{ key: 'name', value: app, source: 'unspec' }],
  };
}

/** Endpoints 1 (client) and 2 (server); the server takes datagrams of `app` only. */
async function enforcing(app: string, more: Partial<CoreOptions> = {}): Promise<Core> {
  const core = await started(more);
  await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
  await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
  await replaceRules(core, app);
  return core;
}

async function replaceRules(core: Core, app: string): Promise<void> {
  core.deleteRules([]);
  const { revision } = core.importRules([from(app)]);
  await core.waitPolicyRevision(revision);
}

function attached(ifindex: number): number {
  return inNetns(lab.netns, () =>
    (['ingress', 'egress'] as const).flatMap((hook) => [
      ...queryTcx(ifindex, hook),
      ...[queryClsact(ifindex, hook, { priority: 1, handle: 0x77656972 })].filter((id) => id !== undefined),
    ]),
  ).length;
}

function check(core: Core, name: string): { ok: boolean; message: string } | undefined {
  return core.health().checks.find((each) => each.name === name);
}

const path = (file: string): string => join(lab.state, file);

beforeEach(async () => {
  lab = new Lab();
  client = await lab.pod('c');
  server = await lab.pod('s');
});

afterEach(async () => {
  for (const each of cores.splice(0)) await each.stop();
  lab.close();
});

describe('a state file that is lost', () => {
  it.each(['tcx', 'clsact'] as const)(
    'endpoints: they are taken from the kernel with their labels, by %s',
    async (attachment) => {
      await (await enforcing('nobody', { kernel: { attachment } })).stop();
      rmSync(path('endpoints.json'));
      const log = recordingLogger();
      const core = await started({ kernel: { attachment }, log });
      await core.waitPolicyRevision(core.policyRevision());
      expect(await client.reaches(server)).toBe(false);
      expect([attached(client.ifindex), attached(server.ifindex)]).toEqual([2, 2]);
      using snapshot = core.db.read();
      expect([...snapshot.all(core.tables.endpoints)]).toEqual([
        expect.objectContaining({
          id: 1,
          ifindex: client.ifindex,
          interfaceName: client.interfaceName,
          addresses: [client.address, client.address6],
        }),
        expect.objectContaining({
          id: 2,
          ifindex: server.ifindex,
          interfaceName: server.interfaceName,
          addresses: [server.address, server.address6],
        }),
      ]);
      expect(log.lines.filter(({ level }) => level === 'warn').map(({ message }) => message)).toContain(
        '2 endpoints were taken from the kernel: the file does not name them, or is missing',
      );
      expect(check(core, 'endpoints')?.message).toContain(
        `2 endpoints were taken from the kernel, as no file knew them: endpoint 1 (${client.interfaceName}), endpoint 2 (`,
      );
      // They are endpoints like any other.
      await replaceRules(core, 'client');
      expect(await client.reaches(server)).toBe(true);
      expect(await core.deleteEndpoint(2)).toBe(true);
      expect(attached(server.ifindex)).toBe(0);
    },
  );

  it('endpoints and numbers: what cannot be known any more is closed in both directions, and said', async () => {
    await (await enforcing('client')).stop();
    rmSync(path('endpoints.json'));
    rmSync(path('identities.json'));
    const core = await started();
    await core.waitPolicyRevision(core.policyRevision());
    expect(await client.reaches(server)).toBe(false);
    using snapshot = core.db.read();
    for (const state of snapshot.all(core.tables.endpointStates))
      expect(state).toMatchObject({ state: 'waiting-for-identity', enforced: { ingress: true, egress: true } });
    expect(check(core, 'endpoints')?.message).toContain('closed');
    await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
    await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
    expect(await client.reaches(server)).toBe(true);
  });

  it('rules: what they said stays in force until somebody says what they are', async () => {
    await (await enforcing('nobody')).stop();
    rmSync(path('rules.json'));
    const core = await started();
    expect(check(core, 'inputs')).toMatchObject({ ok: false, message: expect.stringContaining('weir policy import') });
    expect(await client.reaches(server)).toBe(false);
    await replaceRules(core, 'client');
    expect(await client.reaches(server)).toBe(true);
    expect(core.health()).toMatchObject({ ok: true });
  });

  it('rules: until then what is shown is what the kernel has, and nothing is said to be in force', async () => {
    await (await enforcing('nobody')).stop();
    rmSync(path('rules.json'));
    const core = await started();
    expect(foundBy(core, 2)).toMatchObject({ enforced: { ingress: true, egress: false }, ifindex: server.ifindex });
    expect(core.rulesWait()).toMatchObject({ reason: 'ImportedRulesUnknown' });
    expect(core.realised()).toMatchObject({ settled: 0, policyVersion: undefined });
    await replaceRules(core, 'client');
    expect([foundBy(core, 2), core.rulesWait()]).toEqual([undefined, undefined]);
  });

  it('rules: to delete them all is an answer too; to delete some is none', async () => {
    await (await enforcing('nobody')).stop();
    writeFileSync(path('rules.json'), '');
    const core = await started();
    expect(await client.reaches(server)).toBe(false);
    core.deleteRules(['unspec:name=other']);
    expect(core.rulesWait()).toMatchObject({ reason: 'ImportedRulesUnknown' });
    const { revision } = core.deleteRules([]);
    await core.waitPolicyRevision(revision);
    expect(await client.reaches(server)).toBe(true);
    await core.stop();
    const next = await started();
    await next.waitPolicyRevision(next.policyRevision());
    expect(next.health()).toMatchObject({ ok: true });
  });

  it('maps and links too: interfaces are closed before anything else is known', async () => {
    await (await enforcing('nobody')).stop();
    rmSync(lab.root, { recursive: true });
    // The kernel lets links go a moment after their last user.
    await eventually(
      async () => attached(client.ifindex) + attached(server.ifindex),
      (programs) => programs === 0,
    );
    expect(await client.reaches(server)).toBe(true);
    const core = createCore(lab.options({ kubernetes: true }));
    cores.push(core);
    const done = core.db.initialiser(core.tables.policies, 'reflector');
    await core.start();
    expect(core.health()).toMatchObject({ ok: false });
    expect(await client.reaches(server)).toBe(false);
    core.db.write([core.tables.policies], (txn) => done(txn));
    await core.waitPolicyRevision(core.policyRevision());
    expect(await client.reaches(server)).toBe(false);
    await replaceRules(core, 'client');
    expect(await client.reaches(server)).toBe(true);
  });
});

describe('an interface that cannot be given its programs when an agent starts', () => {
  /** Without links, and with a folder where the pin of endpoint 1's is to be. */
  const spoil = (): void => {
    rmSync(join(lab.root, 'links'), { recursive: true });
    mkdirSync(join(lab.root, 'links', '1-egress'), { recursive: true });
  };

  it('is said until it can, and leaves no other interface open', async () => {
    await (await enforcing('nobody')).stop();
    spoil();
    const friend = await lab.pod('x');
    const log = recordingLogger();
    const core = createCore(lab.options({ kernel: { auditMs: 20 }, kubernetes: true, log }));
    cores.push(core);
    core.db.initialiser(core.tables.policies, 'reflector');
    await core.start();
    expect(await friend.reaches(server)).toBe(false);
    expect(log.lines.filter(({ level }) => level === 'error')).toContainEqual(
      expect.objectContaining({ fields: expect.objectContaining({ endpoint: 1, interface: client.interfaceName }) }),
    );
    await eventually(
      async () => check(core, 'enforcement')?.message ?? '',
      (message) => message.includes('endpoint 1') && message.includes('cannot be restored'),
    );
    expect(check(core, 'enforcement')).toMatchObject({ ok: false, message: expect.stringContaining('endpoint 1') });
    rmSync(join(lab.root, 'links', '1-egress'), { recursive: true });
    await eventually(
      async () => check(core, 'enforcement')?.ok,
      (ok) => ok === true,
    );
    expect(attached(client.ifindex)).toBe(2);
  });

  it('and whose element is lost too, as well', async () => {
    await (await enforcing('nobody')).stop();
    spoil();
    for (const map of ['endpoint_array', 'endpoints']) rmSync(join(lab.root, map));
    const core = createCore(lab.options({ kernel: { auditMs: 20 }, kubernetes: true }));
    cores.push(core);
    core.db.initialiser(core.tables.policies, 'reflector');
    await core.start();
    expect(attached(server.ifindex)).toBe(2);
    await eventually(
      async () => check(core, 'enforcement')?.ok,
      (ok) => ok === false,
    );
    expect(check(core, 'enforcement')?.message).toContain('endpoint 1');
  });
});

describe('the map of connections', () => {
  it('is lost: one that a policy has cut stays cut, whoever speaks next', async () => {
    const core = await enforcing('client');
    expect(await client.dial(server)).toBe(true);
    await client.say(server);
    await eventually(
      () => server.heard(),
      (bytes) => bytes === 1,
    );
    await replaceRules(core, 'nobody');
    const cut = async (): Promise<void> => {
      const before = dropsOf(lab.root);
      await client.say(server);
      await eventually(
        async () => dropsOf(lab.root),
        (drops) => drops > before,
      );
      expect(await server.heard()).toBe(1);
    };
    await cut();
    await core.stop();
    rmSync(join(lab.root, 'ct4'));
    const next = await started();
    await next.waitPolicyRevision(next.policyRevision());
    await server.say(client);
    await eventually(
      () => client.heard(),
      (bytes) => bytes === 1,
    );
    await cut();
  });
});

describe('a state folder that is removed under a running agent', () => {
  it('is there again, with all that it had', async () => {
    const core = await enforcing('nobody', { kernel: { auditMs: 20 } });
    await core.files.saved();
    const before = readdirSync(lab.state).sort();
    rmSync(lab.state, { recursive: true });
    const after = await eventually(
      async () => (existsSync(lab.state) ? readdirSync(lab.state).sort() : []),
      (now) => before.every((file) => now.includes(file)),
    );
    expect(after).toEqual(expect.arrayContaining(before));
    expect(before).toEqual(expect.arrayContaining(['agent.pid', 'endpoints.json', 'rules.json']));
    await core.stop();
    const next = await started();
    await next.waitPolicyRevision(next.policyRevision());
    expect(next.importedRules()).toHaveLength(1);
    expect(await client.reaches(server)).toBe(false);
  });
});

describe('a state file that cannot be read', () => {
  // Every form of each file: state-files.test.ts.
  it.each([
    ['endpoints.json', 'cut', (text: string) => text.slice(0, text.length / 2)],
    ['endpoints.json', 'of another node', (text: string) => text.replace('"node":"lab"', '"node":"other"')],
    ['rules.json', 'empty', () => ''],
    ['identities.json', 'of a version to come', (text: string) => text.replace('"version":1', '"version":99')],
  ] as const)('%s, %s: is kept beside under another name, and nothing opens', async (file, _, tear) => {
    await (await enforcing('nobody')).stop();
    const bad = tear(readFileSync(path(file), 'utf8'));
    writeFileSync(path(file), bad);
    const log = recordingLogger();
    const core = await started({ log });
    expect(await client.reaches(server)).toBe(false);
    const kept = readdirSync(lab.state).filter((name) => name.startsWith(`${file}.unreadable-`));
    expect(kept.map((name) => readFileSync(path(name), 'utf8'))).toEqual([bad]);
    expect(log.lines.filter(({ level }) => level === 'error')).toEqual([
      expect.objectContaining({ fields: expect.objectContaining({ file: path(file), kept: path(kept[0] ?? '') }) }),
    ]);
    expect(check(core, 'state-folder')?.message).toContain(kept[0]);
    await replaceRules(core, 'client');
    expect(await client.reaches(server)).toBe(true);
    await replaceRules(core, 'nobody');
    expect(await client.reaches(server)).toBe(false);
    await core.remove();
    expect(existsSync(lab.state)).toBe(false);
  });
});

describe('a state folder that cannot be written', () => {
  const mounted: string[] = [];
  const mount = (...args: string[]): void => {
    execFileSync('mount', args);
    mounted.push(args.at(-1) ?? '');
  };
  afterEach(() => {
    for (const at of mounted.splice(0).reverse()) execFileSync('umount', ['-l', at]);
  });

  /** What the Node's condition says of the core; all else of the node is well. */
  const condition = (core: Core): { readonly says: () => NodeCondition | undefined; stop(): Promise<void> } => {
    const client = new FakeClient();
    const connection = new Connection(core.db, quiet);
    const writer = new NodeConditionWriter({
      ...{ db: core.db, client, nodeName: 'lab', connection, log: quiet, lookMs: 5, intervalMs: 5 },
      problems: () => coreProblems(core),
    });
    writer.start();
    return {
      says: () => (client.held.get('nodes/lab') as KubeNode | undefined)?.status?.conditions?.[0],
      stop: async () => {
        await writer.stop();
        connection.stop();
      },
    };
  };
  /** Has a policy of the cluster's in this generation, which selects endpoint 2. */
  const programme = async (core: Core, generation: number): Promise<void> => {
    const { policies, peerSets } = core.tables;
    const selector = { requirements: [{ key: 'k8s:app', operator: 'In' as const, values: ['server'] }] };
    const rule = { subject: 'hash', direction: 'ingress', verdict: 'allow', peers: [], defaultDeny: true } as const;
    const row = { uid: 'u', kind: 'CiliumNetworkPolicy', namespace: 'default', name: 'u', generation } as const;
    core.db.write([policies, peerSets], (txn) => {
      txn.upsert(peerSets, { hash: 'hash', selector, identities: [], origin: 'cluster' });
      txn.upsert(policies, { ...row, rules: [{ ...rule, cookie: generation, path: 'spec.ingress' }] });
    });
    await core.waitPolicyRevision(core.policyRevision());
  };

  it('full: rules and endpoints go on, no old file stays, and it is written once there is room', async () => {
    const state = path('small');
    mkdirSync(state);
    mount('-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', state);
    const core = await started({ stateDir: state });
    await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
    await replaceRules(core, 'nobody');
    try {
      writeFileSync(join(state, 'ballast'), Buffer.alloc(1 << 20));
    } catch {
      // As much as there was room for.
    }
    await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
    expect(existsSync(join(state, 'endpoints.json'))).toBe(false);
    expect(check(core, 'state-folder')).toMatchObject({
      ok: false,
      message: expect.stringMatching(new RegExp(`${join(state, 'endpoints.json')}.*ENOSPC`)),
    });
    expect(await client.reaches(server)).toBe(false);
    const node = condition(core);
    const told = await eventually(
      async () => node.says(),
      (now) => now?.status === 'True',
    );
    expect(told).toMatchObject({
      type: 'WeirProblem',
      reason: 'DatapathFailing',
      message: expect.stringMatching(new RegExp(`${join(state, 'endpoints.json')}.*ENOSPC`)),
    });
    // No policy fails by it.
    await programme(core, 1);
    await programme(core, 2);
    expect(core.policiesInKernel().get('u')).toMatchObject({ generation: 2, endpoints: 1 });
    expect(core.realised().failures).toEqual([]);
    core.deleteRules([]);
    const cidr = { ...from('nobody'), ingress: [{ fromCIDR: [`${client.address}/32`, '192.0.2.0/24'] }] };
    const { revision } = core.importRules([cidr]);
    expect(await core.waitPolicyRevision(revision)).toMatchObject({ failing: [] });
    expect(check(core, 'kernel')).toMatchObject({ ok: true });
    await replaceRules(core, 'client');
    expect(await client.reaches(server)).toBe(true);
    rmSync(join(state, 'ballast'));
    while (check(core, 'state-folder')?.ok !== true) await new Promise((resolve) => setTimeout(resolve, 50));
    expect(JSON.parse(readFileSync(join(state, 'endpoints.json'), 'utf8')).content).toHaveLength(2);
    await eventually(
      async () => node.says(),
      (now) => now?.status === 'False',
    );
    await node.stop();
    await core.stop();
    const next = await started({ stateDir: state });
    expect(next.importedRules()).toHaveLength(1);
    await next.stop();
  });

  it('read-only: an agent starts, enforces what is new, and knows at its next start what was not written', async () => {
    await (await enforcing('nobody')).stop();
    mount('--bind', lab.state, lab.state);
    execFileSync('mount', ['-o', 'remount,ro,bind', lab.state]);
    const core = await started();
    await core.waitPolicyRevision(core.policyRevision());
    expect(await client.reaches(server)).toBe(false);
    await replaceRules(core, 'client');
    expect(await client.reaches(server)).toBe(true);
    expect(check(core, 'state-folder')).toMatchObject({ ok: false, message: expect.stringContaining('EROFS') });
    expect(check(core, 'state-folder')?.message.split(path('rules.json'))).toHaveLength(2);
    const node = condition(core);
    const told = await eventually(
      async () => node.says(),
      (now) => now?.status === 'True',
    );
    expect(told).toMatchObject({
      reason: 'DatapathFailing',
      message: expect.stringMatching(`${path('rules.json')}.*EROFS`),
    });
    expect(core.realised().failures).toEqual([]);
    await node.stop();
    expect(core.files.unsaved('rules')).toBe(
      `${path('rules.json')} cannot be written (EROFS: read-only file system; the old one cannot be removed (EROFS))`,
    );
    await core.stop();
    // The file has rules that are not those in force.
    const next = await started();
    expect(check(next, 'inputs')).toMatchObject({ ok: false, message: expect.stringContaining('weir policy import') });
    expect(await client.reaches(server)).toBe(true);
    await replaceRules(next, 'nobody');
    expect(await client.reaches(server)).toBe(false);
  });
});
