/** How a core's datapath comes and goes: upgrades to another layout, reboots, removal. On the real kernel. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { MAPS } from '@weir/bpf';
import { inNetns, openMapById, openPinnedMap, queryClsact, queryTcx } from 'libbpf-ts';
import type { Core, CoreOptions } from '../core.ts';
import { dropsIn, Lab, type LabPod } from '../datapath/testing/lab.ts';
import { AgentRunningError } from '../errors.ts';
import { createCore } from './create-core.ts';

const JUDGING = ['endpoint_array', 'endpoints', 'ipcache', 'policy_classes', 'policy_verdicts', 'stages'];

let lab: Lab;
let client: LabPod;
let server: LabPod;
const cores: Core[] = [];

function made(more: Partial<CoreOptions> = {}): Core {
  const core = createCore(lab.options(more));
  cores.push(core);
  return core;
}

/** A running core with endpoints 1 (client) and 2 (server); the server takes datagrams of `app` only. */
async function enforcing(app: string, more: Partial<CoreOptions> = {}): Promise<Core> {
  const core = made(more);
  await core.start();
  await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
  await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
  await replaceRules(core, app);
  return core;
}

async function replaceRules(core: Core, app: string): Promise<void> {
  core.deleteRules([]);
  core.importRules([
    {
      endpointSelector: { matchLabels: { app: 'server' } },
      ingress: [{ fromEndpoints: [{ matchLabels: { app } }] }],
      labels: [{ key: 'name', value: app, source: 'unspec' }],
    },
  ]);
  await core.waitPolicyRevision(core.policyRevision());
}

function mapIds(): Record<string, number> {
  return Object.fromEntries(
    Object.keys(MAPS).map((name) => {
      using map = openPinnedMap(join(lab.root, name));
      return [name, map.info.id];
    }),
  );
}

/** Programs of any owner on the interface, both hooks, tcx and this agent's clsact filters. */
function attached(ifindex: number): unknown[] {
  return inNetns(lab.netns, () =>
    (['ingress', 'egress'] as const).flatMap((hook) => [
      ...queryTcx(ifindex, hook),
      ...[queryClsact(ifindex, hook, { priority: 1, handle: 0x77656972 })].filter((id) => id !== undefined),
    ]),
  );
}

beforeEach(async () => {
  lab = new Lab();
  client = await lab.pod('c');
  server = await lab.pod('s');
});

afterEach(async () => {
  for (const each of cores.splice(0)) await each.stop();
  lab.close();
});

describe('an upgrade to another layout of equal size', () => {
  /** The maps as another version would have left them. */
  function relabel(name: string, version: number): void {
    const id = mapIds()[name] ?? 0;
    const folder = join(lab.root, 'layouts');
    for (const file of readdirSync(folder)) if (file.startsWith(`${id}-`)) rmdirSync(join(folder, file));
    mkdirSync(join(folder, `${id}-${version}`));
  }

  it('replaces every map that judges, letting nothing through and losing no allowed flow', async () => {
    const intruder = await lab.pod('i');
    const first = await enforcing('client');
    await first.upsertEndpoint(intruder.endpoint(3, { 'k8s:app': 'intruder' }));
    await first.stop();
    const old = mapIds();
    relabel('policy_verdicts', 7);
    await Promise.all([client.startStream(server), intruder.startStream(server)]);

    // A start that does not come to its end changes nothing.
    const waiting = made({ kubernetes: true });
    const done = waiting.db.initialiser(waiting.tables.policies, 'reflector');
    await waiting.start();
    expect(waiting.health().ok).toBe(false);
    expect(mapIds()).toEqual(old);
    await waiting.stop();
    expect(typeof done).toBe('function');

    const next = made();
    await next.start();
    await next.waitPolicyRevision(next.policyRevision());
    const now = mapIds();
    const [lost, passed] = await Promise.all([client.endStream(), intruder.endStream()]);
    expect(lost.sent).toBeGreaterThan(0);
    expect(lost.lost).toBe(0);
    expect(passed.lost).toBe(passed.sent);
    for (const name of Object.keys(MAPS)) {
      expect([name, now[name] !== old[name]]).toEqual([name, JUDGING.includes(name)]);
    }
    expect(readdirSync(join(lab.root, 'layouts')).sort()).toEqual(
      Object.entries(MAPS)
        .map(([name, { version }]) => `${now[name]}-${version}`)
        .sort(),
    );
    await replaceRules(next, 'nobody');
    expect(await client.reaches(server)).toBe(false);
    await next.stop();
    const again = made();
    await again.start();
    await again.waitPolicyRevision(again.policyRevision());
    expect(mapIds()).toEqual(now);
  });

  it('is finished by the next agent when the one that does it is killed', async () => {
    const first = await enforcing('client');
    await first.stop();
    relabel('endpoints', 7);
    await client.startStream(server);
    const { log: _, ...options } = lab.options();
    for (const delay of [300, 600, 900, 1300]) {
      const script = join(import.meta.dirname, '../datapath/testing/agent-process.ts');
      const child = spawn(process.execPath, [script, JSON.stringify(options)], {
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      });
      const gone = once(child, 'exit');
      // Wherever it is by then: what must hold afterwards holds at every instant.
      await new Promise((resolve) => setTimeout(resolve, delay));
      child.kill('SIGKILL');
      await gone;
    }
    const next = made();
    await next.start();
    await next.waitPolicyRevision(next.policyRevision());
    const { sent, lost } = await client.endStream();
    expect([sent > 0, lost]).toEqual([true, 0]);
    await replaceRules(next, 'nobody');
    expect(await client.reaches(server)).toBe(false);
    expect(next.mapEntries('endpoints')).toHaveLength(2);
    expect(next.health()).toMatchObject({ ok: true });
  });

  it('replaces one that judges nothing alone', async () => {
    const first = await enforcing('nobody');
    await first.stop();
    const old = mapIds();
    relabel('metrics', 2);
    const next = made();
    await next.start();
    await next.waitPolicyRevision(next.policyRevision());
    const now = mapIds();
    expect(Object.keys(MAPS).filter((name) => now[name] !== old[name])).toEqual(['metrics', 'stages']);
    expect(await client.reaches(server)).toBe(false);
  });
});

describe('a state folder that is older than the interfaces', () => {
  it.each([
    ['after a reboot', true],
    ['with what is pinned still there', false],
  ])('gives no endpoint to an interface that is another one, %s', async (_, reboot) => {
    const third = await lab.pod('t');
    const first = await enforcing('client');
    await first.upsertEndpoint(third.endpoint(3, {}));
    await first.stop();
    lab.unplug(server);
    lab.unplug(third);
    // Another interface of the server's name, another one with the third pod's index.
    const ip = (...args: string[]) => execFileSync('ip', ['-n', lab.node, 'link', 'add', ...args]);
    ip('name', 'other', 'index', String(third.ifindex), 'type', 'veth', 'peer', 'name', 'other-peer');
    ip('name', server.interfaceName, 'type', 'veth', 'peer', 'name', 'server-peer');
    if (reboot) rmSync(lab.root, { recursive: true });

    const next = made();
    await next.start();
    await next.waitPolicyRevision(next.policyRevision());
    using snapshot = next.db.read();
    expect([...snapshot.all(next.tables.endpoints)].map(({ id }) => id)).toEqual([1]);
    expect(next.mapEntries('endpoints')).toHaveLength(1);
    expect(readdirSync(join(lab.root, 'links')).sort()).toEqual(['1-egress', '1-ingress']);
    expect(attached(third.ifindex)).toEqual([]);
    expect(attached(client.ifindex)).toHaveLength(2);
    expect(next.health()).toMatchObject({ ok: true });
  });
});

describe('removal', () => {
  it('lets packets flow freely and leaves nothing', async () => {
    const core = await enforcing('nobody');
    expect(await client.reaches(server)).toBe(false);
    const ids = Object.values(mapIds());
    await core.remove();
    expect(await client.reaches(server)).toBe(true);
    expect([attached(client.ifindex), attached(server.ifindex)]).toEqual([[], []]);
    expect([existsSync(lab.root), existsSync(lab.state)]).toEqual([false, false]);
    expect(core.health()).toMatchObject({
      ok: false,
      checks: expect.arrayContaining([
        expect.objectContaining({ name: 'running', message: expect.stringContaining('removed') }),
      ]),
    });
    expect([core.maps(), core.metrics()]).toEqual([[], []]);
    expect(core.policyRevision()).toBeGreaterThan(0);
    for (const id of ids) await freed(id);
    await core.remove();

    const next = made();
    await next.start();
    using snapshot = next.db.read();
    expect([[...snapshot.all(next.tables.endpoints)], next.importedRules()]).toEqual([[], []]);
  });

  it('is refused while an agent runs, and works without one', async () => {
    const running = await enforcing('nobody');
    await expect(made().remove()).rejects.toThrow(AgentRunningError);
    expect(await client.reaches(server)).toBe(false);
    await running.stop();
    expect(await client.reaches(server)).toBe(false);
    await made().remove();
    expect(await client.reaches(server)).toBe(true);
    expect(existsSync(lab.root)).toBe(false);
  });

  it('takes filters away though no mark of them is left', async () => {
    const core = await enforcing('nobody', { kernel: { attachment: 'clsact' } });
    await core.stop();
    using metrics = openPinnedMap(join(lab.root, 'metrics'));
    rmSync(lab.root, { recursive: true });
    expect(await client.reaches(server, () => dropsIn(metrics))).toBe(false);
    expect(attached(server.ifindex)).toHaveLength(2);
    await made().remove();
    expect(attached(server.ifindex)).toEqual([]);
    expect(await client.reaches(server)).toBe(true);
  });
});

/** The kernel frees a map a moment after its last user. */
async function freed(id: number): Promise<void> {
  for (;;) {
    try {
      openMapById(id).close();
    } catch {
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
