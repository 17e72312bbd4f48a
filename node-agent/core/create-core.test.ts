import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { inNetns, openPinnedLink, openPinnedMap, queryClsact } from 'libbpf-ts';
import { eventually } from '../../test/eventually.ts';
import type { Core, CoreOptions } from '../core.ts';
import { Lab, type LabPod, silent } from '../datapath/testing/lab.ts';
import { AgentRunningError, InterfaceGoneError } from '../errors.ts';
import { Flows } from '../flows/flows.ts';
import type { FlowEvent } from '../flows/types.ts';
import { createCore } from './create-core.ts';

const MAPS = ['endpoints', 'ipcache', 'policy_classes', 'policy_verdicts', 'ct4'];

function allow(app: string, port = 7777): object {
  return {
    endpointSelector: { matchLabels: { app: 'server' } },
    ingress: [
      { fromEndpoints: [{ matchLabels: { app } }], toPorts: [{ ports: [{ port: String(port), protocol: 'UDP' }] }] },
    ],
    labels: [{ key: 'name', value: 'test', source: 'unspec' }],
  };
}

let lab: Lab;
let core: Core;
let flows: Flows;
let client: LabPod;
let server: LabPod;
const cores: Core[] = [];

async function started(more: Partial<CoreOptions> = {}): Promise<Core> {
  const made = createCore(lab.options(more));
  cores.push(made);
  await made.start();
  return made;
}

async function enforce(rules: unknown): Promise<void> {
  core.deleteRules([]);
  const { revision, problems } = core.importRules(rules);
  expect(problems).toEqual([]);
  expect(await core.waitPolicyRevision(revision)).toMatchObject({ failing: [] });
}

function ids(): unknown {
  const maps = MAPS.map((name) => {
    using map = openPinnedMap(join(lab.root, name));
    return [name, map.info.id];
  });
  const links = readdirSync(join(lab.root, 'links'))
    .sort()
    .map((name) => {
      using link = openPinnedLink(join(lab.root, 'links', name));
      return [name, link.id(), link.ifindex, link.programId()];
    });
  return { maps, links };
}

function flowsOf(of: Core): Flows {
  const { db, tables, naming } = of;
  const made = new Flows({ db, services: tables.services, naming, map: () => of.map('events'), log: silent });
  made.start();
  return made;
}

/** The event of the first datagram that was dropped: the ring is read some time later. */
async function eventOf(events: readonly FlowEvent[]): Promise<FlowEvent | undefined> {
  return await eventually(
    async () => events.find(({ protocol }) => protocol === 'UDP'),
    (event) => event !== undefined,
  );
}

describe('core on the kernel', () => {
  beforeEach(async () => {
    lab = new Lab();
    core = await started();
    flows = flowsOf(core);
    client = await lab.pod('c');
    server = await lab.pod('s');
    await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
    await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
  });

  afterEach(async () => {
    flows.stop();
    for (const each of cores.splice(0)) await each.stop();
    lab.close();
  });

  it('enforces a rule, says why it drops, and opens when the rule is gone', async () => {
    const events: FlowEvent[] = [];
    flows.events.subscribe((event) => events.push(event));
    expect(await client.reaches(server)).toBe(true);
    core.db.write([core.tables.services], (txn) =>
      txn.upsert(core.tables.services, { namespace: 'ns', name: 'external', addresses: [server.address] }),
    );
    await enforce([allow('nobody')]);
    expect(await client.reaches(server)).toBe(false);
    const drop = await eventOf(events);
    expect(drop).toMatchObject({
      verdict: 'dropped',
      direction: 'ingress',
      endpoint: 2,
      reason: 'policy',
      destinationPort: 7777,
      source: { address: client.address, labels: expect.arrayContaining(['k8s:app=client']) },
      destination: { address: server.address, service: 'ns/external' },
    });
    expect(drop?.policies).toHaveLength(1);
    expect([...core.policiesInKernel().values()]).toEqual([{ generation: 1, endpoints: 1 }]);
    await enforce([allow('client')]);
    expect(await client.reaches(server)).toBe(true);
    await enforce([allow('client', 7778)]);
    expect(await client.reaches(server)).toBe(false);
    core.deleteRules([]);
    await core.waitPolicyRevision(core.policyRevision());
    expect(await client.reaches(server)).toBe(true);
    expect(core.health().ok).toBe(true);
  });

  it('gives drops to those who follow at the time', async () => {
    await enforce([allow('nobody')]);
    const first: FlowEvent[] = [];
    const following = flows.events.subscribe((event) => first.push(event));
    expect(await client.reaches(server)).toBe(false);
    await eventOf(first);
    following.unsubscribe();
    const before = [...first];
    expect(before).toContainEqual(expect.objectContaining({ protocol: 'UDP', endpoint: 2 }));
    const second: FlowEvent[] = [];
    flows.events.subscribe((event) => second.push(event));
    expect(await client.reaches(server)).toBe(false);
    expect(await eventOf(second)).toMatchObject({ endpoint: 2 });
    expect(first).toEqual(before);
  });

  it('names the NetworkPolicy that no rule of which allows, as people call it', async () => {
    const events: FlowEvent[] = [];
    flows.events.subscribe((event) => events.push(event));
    const selector = { requirements: [{ key: 'k8s:app', operator: 'In' as const, values: ['server'] }] };
    const deny = { subject: 'hash-s', direction: 'ingress', verdict: 'allow', peers: [], defaultDeny: true } as const;
    core.db.write([core.tables.policies, core.tables.peerSets], (txn) => {
      txn.upsert(core.tables.peerSets, { hash: 'hash-s', selector, identities: [], origin: 'cluster' });
      txn.upsert(core.tables.policies, {
        uid: 'u',
        kind: 'NetworkPolicy',
        namespace: 'ns',
        name: 'deny',
        generation: 3,
        rules: [{ ...deny, cookie: 1, path: 'spec.ingress' }],
      });
    });
    await core.waitPolicyRevision(core.policyRevision());
    expect(await client.reaches(server)).toBe(false);
    expect((await eventOf(events))?.policies).toEqual(['knp ns/deny']);
    expect(core.policiesInKernel().get('u')).toMatchObject({ generation: 3, endpoints: 1 });
  });

  it('loses no packet that both the old and the new rules allow', async () => {
    await enforce([allow('client')]);
    await client.startStream(server);
    for (let round = 0; round < 15; round += 1) {
      const extra = { ...allow('other'), labels: [{ key: 'name', value: `extra-${round}`, source: 'unspec' }] };
      const { revision } = core.importRules([extra]);
      await core.waitPolicyRevision(revision);
      if (round % 2 === 1) core.deleteRules([`unspec:name=extra-${round - 1}`]);
    }
    const { sent, lost } = await client.endStream();
    expect(sent).toBeGreaterThan(0);
    expect(lost).toBe(0);
  });

  it('edits the slot in place when a peer becomes a member, and cuts it off when it is none any more', async () => {
    await enforce([allow('friend')]);
    using before = core.db.read();
    const slot = [...before.all(core.tables.endpointStates)].find(({ id }) => id === 2)?.slot;
    expect(await client.reaches(server)).toBe(false);
    await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'friend' }));
    expect(await client.reaches(server)).toBe(true);
    await client.startStream(server);
    await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'foe' }));
    expect(await client.reaches(server)).toBe(false);
    await client.endStream();
    using after = core.db.read();
    expect([...after.all(core.tables.endpointStates)].find(({ id }) => id === 2)?.slot).toBe(slot);
  });

  it('is adopted by the next core: same maps, programs, links and revisions, no packet lost', async () => {
    await enforce([allow('client')]);
    const kept = ids();
    const rows = (of: Core): unknown => {
      using snapshot = of.db.read();
      return [...snapshot.all(of.tables.endpointStates)];
    };
    const states = rows(core);
    await client.startStream(server);
    await core.stop();
    const next = await started();
    await next.waitPolicyRevision(next.policyRevision());
    expect(ids()).toEqual(kept);
    expect(rows(next)).toEqual(states);
    expect((await client.endStream()).lost).toBe(0);
    next.deleteRules([]);
    next.importRules([allow('nobody')]);
    await next.waitPolicyRevision(next.policyRevision());
    expect(await client.reaches(server)).toBe(false);
  });

  it('goes on enforcing when the agent is killed at any instant, and the next one finishes', async () => {
    // On disk before the first kill, which may come before anything of what follows is.
    await enforce([allow('client')]);
    await core.stop();
    const { log: _, ...options } = lab.options();
    const boot = async (): Promise<ChildProcess> => {
      const child = spawn(
        process.execPath,
        [join(import.meta.dirname, '../datapath/testing/agent-process.ts'), JSON.stringify(options)],
        {
          stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
        },
      );
      expect((await once(child, 'message'))[0]).toBe('ready');
      return child;
    };
    await client.startStream(server);
    for (const delay of [3, 11, 29]) {
      const child = await boot();
      // Each of them allows the client, by another slot.
      child.send({ rules: [[allow('client')], [allow('client'), { ...allow('other', 9), labels: [] }]] });
      expect((await once(child, 'message'))[0]).toBe('changing');
      // Wherever it is by then: what must hold afterwards holds at every instant.
      await new Promise((resolve) => setTimeout(resolve, delay));
      const killed = once(child, 'exit');
      child.kill('SIGKILL');
      await killed;
    }
    expect((await client.endStream()).lost).toBe(0);
    core = await started();
    await core.waitPolicyRevision(core.policyRevision());
    expect(await client.reaches(server)).toBe(true);
    expect(core.mapEntries('endpoints')).toHaveLength(2);
    expect(core.importedRules().length).toBeGreaterThan(0);
    await enforce([allow('nobody')]);
    expect(await client.reaches(server)).toBe(false);
    expect(core.health().ok).toBe(true);
  });

  it('replaces a map of another size beside the old one, without opening what is enforced', async () => {
    await enforce([allow('client')]);
    const old = ids();
    await core.stop();
    core = await started({ kernel: { ctEntries: 8192 } });
    await core.waitPolicyRevision(core.policyRevision());
    expect(ids()).not.toEqual(old);
    expect(core.maps().find(({ name }) => name === 'ct4')?.maxEntries).toBe(8192);
    expect(readdirSync(lab.root).filter((name) => name.startsWith('next_'))).toEqual([]);
    expect(await client.reaches(server)).toBe(true);
    await enforce([allow('nobody')]);
    expect(await client.reaches(server)).toBe(false);
    const kept = ids();
    await core.stop();
    core = await started({ kernel: { ctEntries: 8192 } });
    await core.waitPolicyRevision(core.policyRevision());
    expect(ids()).toEqual(kept);
  });

  it('touches nothing of what is enforced before every input is complete', async () => {
    await enforce([allow('nobody')]);
    await core.stop();
    core = createCore(lab.options({ kubernetes: true }));
    cores.push(core);
    const done = core.db.initialiser(core.tables.policies, 'reflector');
    await core.start();
    core.deleteRules([]);
    expect(core.health()).toMatchObject({ ok: false });
    expect(await client.reaches(server)).toBe(false);
    await expect(
      core.upsertEndpoint({ ...client.endpoint(1, { 'k8s:app': 'x' }) }, { timeoutMs: 50 }),
    ).rejects.toMatchObject({ message: expect.stringContaining('policies (reflector)'), waits: true });
    core.db.write([core.tables.policies], (txn) => done(txn));
    await core.waitPolicyRevision(core.policyRevision());
    expect(await client.reaches(server)).toBe(true);
  });

  it('refuses a second agent on the same root and names the first', async () => {
    const second = createCore(lab.options());
    await expect(second.start()).rejects.toThrow(AgentRunningError);
    await expect(second.start()).rejects.toThrow(`process ${process.pid}`);
  });

  it('is refused a second agent though its root was removed and recreated', async () => {
    await core.stop();
    core = await started({ kernel: { auditMs: 20 } });
    rmSync(lab.root, { recursive: true });
    await eventually(
      async () => core.repairs(),
      (repairs) => repairs.some(({ part }) => part === 'pins'),
    );
    await expect(createCore(lab.options()).start()).rejects.toThrow(AgentRunningError);
  });

  it('starts, whatever abstract socket a process on the node holds', async () => {
    await core.stop();
    const squatter = createServer();
    await new Promise<void>((resolve) => squatter.listen(`\0weir-agent:${lab.root}`, resolve));
    try {
      core = await started();
    } finally {
      squatter.close();
    }
  });

  it('removes an endpoint with its links, map entry and flows', async () => {
    expect(await client.reaches(server)).toBe(true);
    expect(core.mapEntries('ct4').length).toBeGreaterThan(0);
    expect(await core.deleteEndpoint(2)).toBe(true);
    expect(await core.deleteEndpoint(2)).toBe(false);
    expect(core.mapEntries('endpoints')).toHaveLength(1);
    expect(readdirSync(join(lab.root, 'links')).sort()).toEqual(['1-egress', '1-ingress']);
    expect(core.mapEntries('ct4').every(({ key }) => 'endpoint' in key && key.endpoint === 1)).toBe(true);
  });

  it('rejects an endpoint whose interface does not exist', async () => {
    const ghost = { ...client.endpoint(9, {}), ifindex: 99_999, addresses: ['10.88.99.2'] };
    await expect(core.upsertEndpoint(ghost)).rejects.toThrow(InterfaceGoneError);
  });

  it('enforces by clsact filters where there are no tcx links, adopts them, and takes them away', async () => {
    await core.stop();
    rmSync(lab.root, { recursive: true });
    core = await started({ kernel: { attachment: 'clsact' } });
    await enforce([allow('nobody')]);
    expect(await client.reaches(server)).toBe(false);
    const filters = (pod: LabPod): (number | undefined)[] =>
      inNetns(lab.netns, () =>
        (['ingress', 'egress'] as const).map((hook) =>
          queryClsact(pod.ifindex, hook, { priority: 1, handle: 0x77656972 }),
        ),
      );
    const kept = filters(server);
    expect(kept.every((id) => id !== undefined)).toBe(true);
    await core.stop();
    expect(await client.reaches(server)).toBe(false);
    core = await started({ kernel: { attachment: 'clsact' } });
    await core.waitPolicyRevision(core.policyRevision());
    expect(filters(server)).toEqual(kept);
    expect(await client.reaches(server)).toBe(false);
    await core.deleteEndpoint(2);
    expect(filters(server)).toEqual([undefined, undefined]);
    expect(readdirSync(join(lab.root, 'links'))).toEqual([`1-clsact-${client.ifindex}`]);
  });
});
