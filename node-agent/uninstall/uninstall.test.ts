/** Uninstall of a node with pods that talk: real namespaces, the real kernel, the parts of the agent as it is made of them. */

import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { ipv4Of } from '@weir/net';
import { CniInstallation, CniService, PodNetwork, vethName } from '../cni/index.ts';
import { removeCni } from '../cni/install.ts';
import { cniRemoval } from '../cni/part.ts';
import { createCore } from '../core/create-core.ts';
import { coreRemoval } from '../core/part.ts';
import type { Core } from '../core.ts';
import { dropsOf, Lab, LabPod } from '../datapath/testing/lab.ts';
import { type RunCommand, runCommand } from '../host/command.ts';
import type { Removal } from '../parts/contract.ts';
import { NodeRouting, removeRoutes } from '../routing/index.ts';
import { routingRemoval } from '../routing/part.ts';
import { quiet, recordingLogger } from '../testing/fake-core.ts';
import { settingsOf, TestNamespaces } from '../testing/netns.ts';
import { cleanup, removeFromNode, Uninstall } from './index.ts';

const PODS = ['client', 'server', 'stranger'] as const;
const RULES = [
  {
    endpointSelector: { matchLabels: { app: 'server' } },
    ingress: [{ fromEndpoints: [{ matchLabels: { app: 'client' } }] }],
  },
];

let folder = '';
let lab: Lab;
let namespaces: TestNamespaces;
let core: Core;
let cni: CniService;
let network: PodNetwork;
let routing: NodeRouting;
let installation: CniInstallation;
let inNode: RunCommand;
let pods: Record<(typeof PODS)[number], LabPod>;
const config = () => ({
  socket: join(folder, 'run/weir.sock'),
  bpfRoot: lab.root,
  stateDir: lab.state,
  cniInstall: join(folder, 'bin'),
  cniConfDir: join(folder, 'net.d'),
});

function call(command: string, container: string, netns: string) {
  return cni.handle({
    env: { CNI_COMMAND: command, CNI_CONTAINERID: container, CNI_NETNS: netns, CNI_IFNAME: 'eth0' },
    stdin: JSON.stringify({ cniVersion: '1.0.0', name: 'weir', type: 'weir-cni' }),
  });
}

/** A pod made by CNI, with labels of its own. */
async function pod(name: string): Promise<LabPod> {
  const netns = await namespaces.add(name);
  expect(await call('ADD', name, netns)).toMatchObject({ ok: true });
  using snapshot = core.db.read();
  const row = [...snapshot.all(core.tables.endpoints)].find((endpoint) => endpoint.containerId === name);
  if (row === undefined) throw new Error(`no endpoint of ${name}`);
  await core.upsertEndpoint({ ...row, labels: { 'k8s:io.kubernetes.pod.namespace': 'default', 'k8s:app': name } });
  const { addresses, ifindex, interfaceName } = row;
  const process = new LabPod({
    name,
    address: ipv4Of(addresses) ?? '',
    ifindex,
    interfaceName,
    namespace: basename(netns),
    drops: () => dropsOf(lab.root),
  });
  await process.ready();
  return process;
}

const links = (): string[] => PODS.map((name) => vethName({ containerId: name, ifname: 'eth0' })).sort();
async function routes(): Promise<readonly string[]> {
  const text = await inNode('ip', ['route', 'show']);
  return text
    .trim()
    .split('\n')
    .map((line) => line.split(' ')[0] ?? '')
    .filter((dst) => dst.startsWith('10.'))
    .sort();
}

/** What parts do that no agent has started. */
function byHand(socket = config().socket): ReturnType<typeof cleanup> {
  const { cniInstall: binDir, cniConfDir: confDir } = config();
  const shares = [
    coreRemoval(createCore(lab.options()), config()),
    { inUse: () => new PodNetwork({ run: inNode }).hostLinks() },
    { network: () => removeRoutes(inNode) },
    { runtime: () => removeCni({ binDir, confDir }) },
  ];
  return cleanup({ ...config(), socket }, shares, quiet);
}

describe('uninstall', () => {
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'weir-uninstall-'));
    await writeFile(join(folder, 'built'), 'weir-cni: built');
    lab = new Lab();
    namespaces = new TestNamespaces('weir-un');
    inNode = (command, args, input) =>
      command === 'ip'
        ? runCommand('nsenter', [`--net=${lab.netns}`, 'ip', ...args], input)
        : runCommand(command, args, input);
    await inNode(
      'ip',
      ['-batch', '-'],
      'link add up0 type veth peer name up1\naddress add 192.0.2.1/24 dev up0\nlink set up0 up\nlink set up1 up\n',
    );
    core = createCore(lab.options());
    await core.start();
    network = new PodNetwork({ run: inNode, settings: settingsOf(lab.netns) });
    cni = new CniService({ core, network, podCidrs: () => ['10.88.0.0/24'], log: quiet, clusterName: 'default' });
    // Nodes are put in by the test: there is no Kubernetes here.
    routing = new NodeRouting({
      db: core.db,
      nodes: core.tables.nodes,
      nodeName: 'lab',
      mode: 'direct',
      forward: () => Promise.resolve(false),
      log: quiet,
      run: inNode,
    });
    core.db.write([core.tables.nodes], (txn) =>
      txn.upsert(core.tables.nodes, {
        name: 'other',
        addresses: ['192.0.2.2'],
        podCidrs: ['10.89.0.0/24'],
        kubeApiserver: false,
      }),
    );
    routing.start();
    const { cniInstall: binDir, cniConfDir: confDir, socket } = config();
    installation = new CniInstallation({ binary: join(folder, 'built'), binDir, confDir, socket, log: quiet });
    await installation.start();
    const made: Partial<Record<(typeof PODS)[number], LabPod>> = {};
    for (const name of PODS) made[name] = await pod(name);
    pods = made as typeof pods;
    core.importRules(RULES);
    expect(await core.waitPolicyRevision(core.policyRevision())).toMatchObject({ failing: [] });
  });

  afterEach(async () => {
    for (const each of Object.values(pods)) each.kill();
    await installation.stop();
    await routing.stop();
    await core.stop();
    lab.close();
    await namespaces.dispose();
    await rm(folder, { recursive: true });
  });

  it('cuts nobody off, ends enforcement, and leaves only what running pods need', async () => {
    const marks: string[] = [];
    const shares: readonly Removal[] = [
      coreRemoval(core, config()),
      { inUse: () => network.hostLinks() },
      routingRemoval(routing, inNode),
      cniRemoval(cni),
      { runtime: () => installation.remove() },
    ];
    const done = Promise.withResolvers<void>();
    const uninstall = new Uninstall({
      shares: () => shares,
      log: quiet,
      markRemoved: async (mark) => {
        marks.push(mark);
        done.resolve();
      },
    });
    expect(await pods.stranger.reaches(pods.server)).toBe(false);
    await pods.client.startStream(pods.server);
    expect(await pods.client.reaches(pods.server)).toBe(true);

    uninstall.wanted('2026-01-01T00:00:00Z');
    expect(uninstall.message).toContain('being removed');
    await done.promise;

    expect(await pods.stranger.reaches(pods.server)).toBe(true);
    const { sent, lost } = await pods.client.endStream();
    expect(sent).toBeGreaterThan(0);
    expect(lost).toBe(0);
    expect(existsSync(lab.root)).toBe(false);
    expect(existsSync(lab.state) ? await readdir(lab.state) : []).toEqual([]);
    expect(await readdir(config().cniConfDir)).toEqual([]);
    expect(await readdir(config().cniInstall)).toEqual([]);
    expect([...(await network.hostLinks())].sort()).toEqual(links());
    expect(await routes()).toEqual(['10.88.0.2', '10.88.0.3', '10.88.0.4', '10.89.0.0/24']);
    expect(marks).toEqual(['2026-01-01T00:00:00Z']);

    // Pods that go take their interfaces with them; none can come.
    const netns = await namespaces.add('late');
    expect(await call('ADD', 'late', netns)).toMatchObject({ ok: false, body: { code: 11 } });
    expect(await call('STATUS', 'late', netns)).toMatchObject({ ok: false, body: { code: 50 } });
    for (const name of PODS) expect(await call('DEL', name, '')).toEqual({ ok: true });
    expect(await removeFromNode(shares)).toEqual({ removed: ['route 10.89.0.0/24 via 192.0.2.2'], left: [] });
    expect(await routes()).toEqual([]);
    expect(await removeFromNode(shares)).toEqual({ removed: [], left: [] });
    await uninstall.stop();
    expect(uninstall.message).toContain('does nothing any more');
  });

  it('is done by hand where no agent runs, once', async () => {
    await expect(byHand()).rejects.toThrow(/agent/);
    expect(existsSync(lab.root)).toBe(true);
    expect(await readdir(config().cniConfDir)).toEqual(['10-weir.conflist']);
    await installation.stop();
    await routing.stop();
    await core.stop();
    const { removed, left } = await byHand();
    expect([...left].sort()).toEqual(links());
    expect(removed).toEqual(
      expect.arrayContaining([lab.root, join(folder, 'net.d/10-weir.conflist'), join(folder, 'bin/weir-cni')]),
    );
    expect(existsSync(lab.state)).toBe(false);
    expect(await pods.stranger.reaches(pods.server)).toBe(true);
    expect((await byHand()).removed).toEqual([]);
  });

  it('is refused by hand while an agent answers on the socket', async () => {
    const socket = join(folder, 'weir.sock');
    const agent = createServer();
    await new Promise<void>((resolve) => agent.listen(socket, resolve));
    try {
      const refused = byHand(socket);
      await expect(refused).rejects.toThrow(`another agent listens on ${socket}`);
    } finally {
      await new Promise((resolve) => agent.close(resolve));
    }
    expect(await readdir(config().cniConfDir)).toEqual(['10-weir.conflist']);
  });
});

describe('Uninstall', () => {
  function shares(log: string[], more: Partial<Removal> = {}): () => readonly Removal[] {
    const step = (name: string) => async () => {
      log.push(name);
      return [name];
    };
    const refuse = async (): Promise<void> => {
      log.push('refuse');
    };
    // Of parts in any order.
    return () => [
      { network: step('routes'), inUse: async () => [] },
      { enforcement: step('datapath'), ...more },
      { runtime: step('cni'), refuse },
    ];
  }

  it('tries again from the start until every step has succeeded, and says why not yet', async () => {
    const log: string[] = [];
    const lines = recordingLogger();
    let failures = 2;
    const done = Promise.withResolvers<void>();
    const uninstall: Uninstall = new Uninstall({
      log: lines,
      retryMs: 1,
      markRemoved: async () => done.resolve(),
      shares: shares(log, {
        enforcement: async () => {
          if (failures-- > 0) throw new Error('EBUSY');
          expect(uninstall.message).toBe('Weir could not be removed from this node yet (uninstall m): EBUSY');
          return [];
        },
      }),
    });
    uninstall.wanted('m');
    await done.promise;
    expect(log).toEqual(['refuse', 'cni', 'refuse', 'cni', 'refuse', 'cni', 'routes']);
    expect(lines.lines.filter((line) => line.level === 'error')).toHaveLength(2);
    await uninstall.stop();
  });

  it('carries out a later mark too, and ends when the cluster cannot be told', async () => {
    const marks: string[] = [];
    const second = Promise.withResolvers<void>();
    const uninstall = new Uninstall({
      log: quiet,
      shares: shares([]),
      markRemoved: async (mark) => {
        marks.push(mark);
        if (mark === 'one') uninstall.wanted('two');
        else {
          second.resolve();
          await new Promise(() => undefined);
        }
      },
    });
    uninstall.wanted('one');
    await second.promise;
    expect(marks).toEqual(['one', 'two']);
    expect(uninstall.message).toContain('reporting that to the cluster');
    await uninstall.stop();
  });
});
