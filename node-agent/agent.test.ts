/**
 * The agent as a process on a node of its own (a network namespace), called by the real shim, with pods that talk. It runs under the chart's
 * seccomp profile.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { crds, type KubeObject } from '@weir/kube';
import { inNetns } from 'libbpf-ts';
import { makeCertificate } from '../shared/process/testing/certificates.ts';
import { createApiServer } from '../test/cluster/apiserver/index.ts';
import { confined } from '../test/seccomp/profiles.ts';
import { buildCni } from './cni/index.ts';
import { dropsOf, LabPod } from './datapath/testing/lab.ts';
import { runCommand } from './host/command.ts';
import { AgentProcess } from './testing/agent-process.ts';
import { TestNamespaces } from './testing/netns.ts';
import { call } from './testing/request.ts';

const MAIN = join(import.meta.dirname, 'main.ts');

let folder = '';
let namespaces: TestNamespaces;
let node = '';
let shim = '';
let bpfRoot = '';
const agents: AgentProcess[] = [];
const pods: LabPod[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-agent-'));
  namespaces = new TestNamespaces('weir-ag');
  node = await namespaces.add('node');
  bpfRoot = `/sys/fs/bpf/${basename(node)}`;
  shim = await buildCni({ out: join(folder, 'weir-cni') });
});
afterEach(async () => {
  for (const pod of pods.splice(0)) pod.kill();
  for (const agent of agents.splice(0)) await agent.ended('SIGKILL');
  await rm(bpfRoot, { recursive: true, force: true });
  await namespaces.dispose();
  await rm(folder, { recursive: true });
});

const path = (name: string): string => join(folder, name);

/** Nobody tells this node of policies, and pods without labels would be closed. */
const ALONE = ['--no-kubernetes', '--pod-cidr', '10.87.0.0/24', '--policy-enforcement', 'never'];

/** Runs `weir-agent` on the node. */
function weirAgent(command: string, more: readonly string[] = ALONE): AgentProcess {
  const args = [
    ...['--node-name', 'n1', '--bpf-root', bpfRoot, '--socket', path('weir.sock'), '--state-dir', path('state')],
    ...['--cni-binary', path('weir-cni'), '--cni-install', path('bin'), '--cni-conf-dir', path('net.d')],
    ...['--ct-entries', '4096', ...more, command],
  ];
  const agent = new AgentProcess(node, confined('agent', [MAIN, ...args]));
  agents.push(agent);
  return agent;
}

async function startAgent(more?: readonly string[]): Promise<AgentProcess> {
  const agent = weirAgent('run', more);
  await agent.running();
  return agent;
}

async function cni(command: string, container: string, netns: string): Promise<{ code: number; answer: unknown }> {
  const config = JSON.stringify({ cniVersion: '1.0.0', name: 'weir', type: 'weir-cni', socket: path('weir.sock') });
  const env = { CNI_COMMAND: command, CNI_CONTAINERID: container, CNI_NETNS: netns, CNI_IFNAME: 'eth0' };
  const child = spawn(shim, [], { env, stdio: ['pipe', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  child.stdin.end(config);
  await once(child, 'close');
  return { code: child.exitCode ?? -1, answer: text === '' ? undefined : JSON.parse(text) };
}

function podAt(name: string, address: string, netns: string): LabPod {
  return new LabPod({
    name,
    address,
    ifindex: 0,
    interfaceName: '',
    namespace: basename(netns),
    drops: () => dropsOf(bpfRoot),
  });
}

async function pod(name: string): Promise<LabPod> {
  const netns = await namespaces.add(name);
  const { code, answer } = await cni('ADD', name, netns);
  expect({ code, answer }).toMatchObject({ code: 0 });
  const [{ address }] = (answer as { ips: [{ address: string }] }).ips;
  const made = podAt(name, address.split('/')[0] ?? '', netns);
  pods.push(made);
  await made.ready();
  return made;
}

/** An API server inside the node, which it has as `n1`; `kubeconfig` is for agents there. */
async function kubernetes(): Promise<{ api: ReturnType<typeof createApiServer>; stop: () => Promise<void> }> {
  const api = createApiServer({ crds: crds() });
  const listener = createServer((socket) => api.handleSocket(socket));
  // Without a host the socket is made before listen() returns: inside the node.
  inNetns(node, () => listener.listen({ port: 6443 }));
  await writeFile(path('kubeconfig'), api.kubeconfig('http://127.0.0.1:6443'));
  await api.client.create(
    { group: '', version: 'v1', plural: 'nodes' },
    {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: 'n1' },
      spec: { podCIDR: '10.87.0.0/24', podCIDRs: ['10.87.0.0/24'] },
    },
  );
  const stop = async (): Promise<void> => {
    listener.close();
    await api.stop();
  };
  return { api, stop };
}

/** Asks a server on the node; `status text`. */
const fetched = (url: string): Promise<string> =>
  runCommand('nsenter', [
    ...[`--net=${node}`, 'env', `NODE_EXTRA_CA_CERTS=${path('tls/tls.crt')}`, process.execPath, '-e'],
    `fetch('${url}', { headers: { authorization: 'Bearer x' } }).then(async (r) => console.log(r.status, await r.text()))`,
  ]);

describe('weir-agent', () => {
  it('is restarted and replaced without the loss of a packet, and tells the runtime to wait meanwhile', async () => {
    const first = await startAgent();
    const [client, server] = [await pod('c1'), await pod('c2')];
    await client.startStream(server);
    expect(await client.reaches(server)).toBe(true);

    // A request that would wait for ever keeps no agent from ending in good order.
    const waiting = call(path('weir.sock'), 'GET', '/policy/wait?revision=99');
    expect(await first.ended('SIGTERM')).toBe(0);
    await waiting.catch(() => undefined);

    const late = await namespaces.add('c3');
    for (const command of ['ADD', 'DEL'])
      expect(await cni(command, 'c3', late)).toMatchObject({
        code: 1,
        answer: { code: 11, msg: expect.stringContaining(`the Weir agent is not reachable at ${path('weir.sock')}`) },
      });
    expect(await client.reaches(server)).toBe(true);

    // The successor comes with another plugin.
    const before = await stat(path('bin/weir-cni'));
    await writeFile(path('weir-cni'), '\n', { flag: 'a' });
    const second = await startAgent();
    expect((await stat(path('bin/weir-cni'))).size).toBe(before.size + 1);
    shim = path('bin/weir-cni');
    expect((await cni('ADD', 'c3', late)).code).toBe(0);
    expect((await cni('DEL', 'c3', late)).code).toBe(0);
    const { sent, lost } = await client.endStream();
    expect(sent).toBeGreaterThan(0);
    expect(lost).toBe(0);
    expect(await second.ended('SIGTERM')).toBe(0);
  });

  it('has pods reach who knows only the node, while it masquerades', async () => {
    const outside = await namespaces.add('outside');
    await runCommand('nsenter', [
      `--net=${node}`,
      'ip',
      'link',
      'add',
      'up0',
      'type',
      'veth',
      'peer',
      'eth0',
      'netns',
      outside,
    ]);
    for (const [netns, device, address] of [
      [node, 'up0', '198.51.100.1/24'],
      [outside, 'eth0', '198.51.100.2/24'],
    ] as const) {
      await runCommand('nsenter', [`--net=${netns}`, 'ip', 'address', 'add', address, 'dev', device]);
      await runCommand('nsenter', [`--net=${netns}`, 'ip', 'link', 'set', device, 'up']);
    }
    const server = podAt('outside', '198.51.100.2', outside);
    pods.push(server);
    await server.ready();
    const first = await startAgent([...ALONE, '--masquerade', 'on']);
    const client = await pod('c1');
    expect(await client.dial(server)).toBe(true);
    expect(await client.reaches(server)).toBe(true);
    expect(await first.ended('SIGTERM')).toBe(0);
    expect(await client.reaches(server)).toBe(true);
    const second = await startAgent();
    const hooks = await readdir(join(bpfRoot, 'hooks'));
    expect(hooks.filter((file) => file.startsWith('masquerade'))).toEqual([]);
    expect(hooks.filter((file) => file.startsWith('svc_uplink'))).toHaveLength(2);
    expect(await second.ended('SIGTERM')).toBe(0);
  });

  it('removes itself when its DaemonSet is marked, says so once, and ends in good order', async () => {
    const { api, ...cluster } = await kubernetes();
    try {
      const daemonSets = { group: 'apps', version: 'v1', plural: 'daemonsets', namespace: 'weir' };
      const template = { metadata: { labels: { app: 'weir' } }, spec: { containers: [{ name: 'a', image: 'a' }] } };
      await api.client.create(
        { group: '', version: 'v1', plural: 'namespaces' },
        {
          apiVersion: 'v1',
          kind: 'Namespace',
          metadata: { name: 'weir' },
        },
      );
      await api.client.create(daemonSets, {
        apiVersion: 'apps/v1',
        kind: 'DaemonSet',
        metadata: { name: 'weir-agent', namespace: 'weir' },
        spec: { selector: { matchLabels: { app: 'weir' } }, template },
      });
      const agent = await startAgent([
        ...['--kubeconfig', path('kubeconfig'), '--daemonset', 'weir/weir-agent'],
        ...['--health-address', '127.0.0.1:9879'],
      ]);
      const probe = (which: string): Promise<string> => fetched(`http://127.0.0.1:9879/${which}`);
      const reports = { group: 'weir.dev', version: 'v1alpha1', plural: 'nodepolicystatuses' };
      const listed = async () => (await api.client.list(reports)).items as unknown as readonly KubeObject[];
      const removed = async (): Promise<unknown> => {
        const [report] = await listed();
        return report?.metadata.annotations?.['weir.dev/removed'];
      };
      while (!(await probe('readyz')).startsWith('200')) await new Promise((resolve) => setTimeout(resolve, 50));

      // A reader of events does not mind, and does no harm when it goes.
      const reader = httpRequest({ socketPath: path('weir.sock'), path: '/v1/monitor' }).end();
      const [stream] = (await once(reader, 'response')) as [IncomingMessage];
      const annotations = { 'weir.dev/uninstall': '2026-01-01T00:00:00Z' };
      await api.client.patch({ ...daemonSets, name: 'weir-agent' }, 'merge', { metadata: { annotations } });
      while ((await removed()) !== '2026-01-01T00:00:00Z') await new Promise((resolve) => setTimeout(resolve, 50));
      expect(await readdir(path('net.d'))).toEqual([]);
      expect(await readdir(path('bin'))).toEqual([]);
      expect(existsSync(bpfRoot)).toBe(false);
      while (!(await probe('readyz')).includes('does nothing any more')) await new Promise((r) => setTimeout(r, 20));
      expect(await probe('readyz')).toMatch(/^503 Weir has been removed from this node/);
      expect(await probe('healthz')).toMatch(/^200 /);

      await api.client.delete({ ...reports, name: 'n1' });
      await api.client.delete({ ...daemonSets, name: 'weir-agent' });
      stream.destroy();
      expect(await probe('healthz')).toMatch(/^200 /);
      const code = await agent.ended('SIGTERM');
      expect(`${agent.output}exit code ${code}`).toMatch(/exit code 0$/);
      expect(await listed()).toEqual([]);
    } finally {
      await cluster.stop();
    }
  });

  it('serves metrics by TLS to who may get them, and probes to anybody', async () => {
    const cluster = await kubernetes();
    try {
      await mkdir(path('tls'));
      await makeCertificate(path('tls'));
      const agent = await startAgent([
        ...['--kubeconfig', path('kubeconfig'), '--health-address', '127.0.0.1:9879'],
        ...['--metrics-address', '127.0.0.1:9880', '--metrics-cert-path', path('tls')],
      ]);
      expect(await readFile(`/proc/${agent.child.pid}/status`, 'utf8')).toMatch(/^Seccomp:\s2$/m);
      expect(await fetched('http://127.0.0.1:9879/healthz')).toMatch(/^200 /);
      expect(await fetched('http://127.0.0.1:9879/metrics')).toMatch(/^404 /);
      // This API server reviews no tokens: nobody gets anything.
      expect(await fetched('https://localhost:9880/metrics')).toMatch(
        /^503 the API server cannot be asked .*tokenreviews/,
      );
      expect(await agent.ended('SIGTERM')).toBe(0);
    } finally {
      await cluster.stop();
    }
  });

  it('ends in order when a signal comes while it starts', async () => {
    const agent = weirAgent('run');
    while (!existsSync(bpfRoot)) await new Promise((resolve) => setTimeout(resolve, 1));
    expect(await agent.ended('SIGTERM')).toBe(0);
    expect(agent.output).toContain('agent is stopping');
    expect(await (await startAgent()).ended('SIGTERM')).toBe(0);
  });

  it('is cleaned up by hand, but not under a running agent', async () => {
    const agent = await startAgent();
    const [client, server] = [await pod('c1'), await pod('c2')];
    const refused = weirAgent('cleanup');
    expect(await refused.ended()).toBe(1);
    expect(refused.output).toContain('another agent listens on');
    expect(await readdir(path('net.d'))).toEqual(['10-weir.conflist']);
    await agent.ended('SIGKILL');

    const cleanup = weirAgent('cleanup');
    const code = await cleanup.ended();
    // With its output, which says why it is another.
    expect(`${cleanup.output}exit code ${code}`).toMatch(/exit code 0$/);
    for (const gone of [bpfRoot, path('state'), path('net.d/10-weir.conflist'), path('bin/weir-cni')]) {
      expect(cleanup.output).toContain(`removed ${gone}\n`);
      expect(existsSync(gone)).toBe(false);
    }
    expect(cleanup.output.match(/stays: interface weir[0-9a-f]{11} /g)).toHaveLength(2);
    expect(await client.reaches(server)).toBe(true);
    // With the flags of an agent in a cluster, where there is none.
    const inCluster = ['--metrics-address', '127.0.0.1:0', '--metrics-cert-path', path('tls'), '--daemonset', 'weir/a'];
    for (const flags of [ALONE, inCluster]) {
      const again = weirAgent('cleanup', flags);
      const ending = await again.ended();
      expect(`${again.output}exit code ${ending}`).toMatch(/exit code 0$/);
      expect(again.output).not.toContain('removed ');
      expect(again.output).toMatch(/^nothing else of Weir was left on this node$/m);
    }
    // What stays is what the shim's next DEL, or the end of the pod, takes away.
    const left = await runCommand('nsenter', [`--net=${node}`, 'ip', '-brief', 'link', 'show', 'type', 'veth']);
    expect(left.trim().split('\n')).toHaveLength(2);
  });
});
