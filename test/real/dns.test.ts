/** Policies with names on a real Kubernetes: pods ask CoreDNS by its Service, and reach what the names have. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { askableContainer, askableVolume, type RealCluster } from '../cluster/real/index.ts';
import { eventually } from '../eventually.ts';
import {
  type Account,
  buildClients,
  clientsMount,
  clientsVolume,
  KINDS,
  type Kind,
  keepAsking,
  resolve,
} from './dns/clients.ts';
import { KUBE_DNS, startKubeDns } from './dns/kube-dns.ts';
import { weirCluster } from './weir.ts';

const kinds = Object.keys(KINDS) as Kind[];
/** A name and an address of its own for each program, so that none has another's address. */
const named = (kind: Kind): string => `${kind.replace(' ', '-')}.example.com`;
const addressed = (kind: Kind): string => `203.0.113.${11 + kinds.indexOf(kind)}`;
const [API, SECRET, OTHER] = ['203.0.113.9', '198.51.100.7', '198.51.100.8'] as const;
const ZONE = {
  'api.example.com': API,
  'secret.example.org': SECRET,
  'other.example.net': OTHER,
  ...Object.fromEntries(kinds.map((kind) => [named(kind), addressed(kind)])),
};
const OUTSIDE = Object.values(ZONE);

const DNS = { matchLabels: { 'k8s:io.kubernetes.pod.namespace': 'kube-system', 'k8s-app': 'kube-dns' } };
const policy = (app: string, names: readonly object[], reach: object) => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: app, namespace: 'default' },
  spec: {
    endpointSelector: { matchLabels: { app } },
    egress: [
      { toEndpoints: [DNS], toPorts: [{ ports: [{ port: '53', protocol: 'ANY' }], rules: { dns: names } }] },
      { toFQDNs: [reach], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }] },
    ],
  },
});
const ANY = policy('any', [{ matchPattern: '*' }], { matchPattern: '*.example.com' });
/** With the names that the search domains make, as a resolver ends at the first that is refused. */
const STRICT = policy('strict', [{ matchName: 'api.example.com' }, { matchPattern: '**.cluster.local' }], {
  matchName: 'api.example.com',
});
/** Without them. */
const BARE = policy('bare', [{ matchName: 'api.example.com' }], { matchName: 'api.example.com' });

const client = (app: string, node: number) => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: `${app}-${node}`, namespace: 'default', labels: { app } },
  spec: {
    nodeSelector: { 'kubernetes.io/hostname': `node-${node}` },
    terminationGracePeriodSeconds: 1,
    containers: [
      ((container) => ({ ...container, volumeMounts: [...container.volumeMounts, clientsMount] }))(
        askableContainer({}),
      ),
    ],
    volumes: [askableVolume, clientsVolume],
  },
});
/** On however busy a machine, only a proxy that does not come back is away for longer. */
const LONGEST_AWAY_MS = 60_000;
const PODS = [1, 2].flatMap((node) => ['any', 'strict', 'bare'].map((app) => ({ app, node, name: `${app}-${node}` })));

describe('names in policies, on a real Kubernetes', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await weirCluster({ install: { dnsProxy: { enabled: false } }, outside: OUTSIDE });
    await buildClients(cluster);
    await startKubeDns(cluster, ZONE);
    await cluster.applyObjects(PODS.map(({ app, node }) => client(app, node)));
    await cluster.kubectl(['wait', '--for=condition=Ready', 'pod', '--all', '--timeout=90s']);
  }, 300_000);
  afterAll(() => cluster?.stop());

  const reach = (pod: string, address: string) => cluster.probe(pod, address, { port: 80, timeoutMs: 1000 });
  const condition = (name: string, type: string): Promise<string> => {
    const of = `.status.conditions[?(@.type=="${type}")]`;
    return cluster.kubectl([
      'get',
      'cnp',
      name,
      '-o',
      `jsonpath={${of}.status} {${of}.reason} {.status.summary.nodes}: {${of}.message}`,
    ]);
  };

  it('without a proxy no name is answered, and the policy says so', async () => {
    expect(await resolve(cluster, 'any-1', 'netgo', 'api.example.com')).toBe(API);
    await cluster.applyObjects([ANY, STRICT, BARE]);
    expect(
      await eventually(
        () => condition('any', 'Programmed'),
        (text) => text.includes('DnsProxyFailing'),
      ),
    ).toMatch(/^False NodeFailed 0\/2: node-1: DnsProxyFailing: .*this node has no DNS proxy/);
    expect(await condition('any', 'Valid')).toMatch(/^True /);
    expect(await resolve(cluster, 'any-1', 'netgo', 'api.example.com')).toContain('failed');
    expect(await reach('any-1', API)).toBe('dropped');
  });

  it('an upgrade brings the proxy', async () => {
    await cluster.upgrade({ dnsProxy: { enabled: true } });
    await cluster.programmed('cnp/any');
    await cluster.programmed('cnp/strict');
    expect(await condition('any', 'Programmed')).toMatch(/^True .* 2\/2: /);
    expect(await condition('any', 'Valid')).toMatch(/^True /);
  });

  describe.each([1, 2])('on node %i', (node) => {
    it.each(kinds)('%s finds a name by the Service, and reaches its address and no other', async (kind) => {
      const pod = `any-${node}`;
      expect(await cluster.kubectl(['exec', pod, '--', 'cat', '/etc/resolv.conf'])).toMatch(
        new RegExp(`search default.svc.cluster.local .*\nnameserver ${KUBE_DNS}\noptions ndots:5`),
      );
      expect(await reach(pod, addressed(kind))).toBe('dropped');
      expect(await resolve(cluster, pod, kind, named(kind))).toBe(addressed(kind));
      expect(await reach(pod, addressed(kind))).toBe('reached');
      expect(await resolve(cluster, pod, kind, 'secret.example.org')).toBe(SECRET);
      expect(await reach(pod, SECRET)).toBe('dropped');
      expect(await resolve(cluster, pod, kind, 'kube-dns.kube-system.svc.cluster.local')).toBe(KUBE_DNS);
    });

    it.each(kinds)('%s finds the one name that rules have, behind search domains, and no other', async (kind) => {
      const pod = `strict-${node}`;
      expect(await resolve(cluster, pod, kind, 'api.example.com')).toBe(API);
      expect(await reach(pod, API)).toBe('reached');
      expect(await resolve(cluster, pod, kind, 'secret.example.org')).toContain('failed');
      expect(await reach(pod, addressed(kind))).toBe('dropped');
    });

    it('shows the names', async () => {
      const { stdout } = await cluster.node(node).weir(['fqdn', 'cache', 'list']);
      expect(stdout).toMatch(new RegExp(`^\\d+ +api.example.com +${API} `, 'm'));
      expect((await cluster.node(node).weir(['status'])).stdout).toMatch(/^DNS proxy: +Ok/m);
    });
  });

  /** Ends a program inside a node as a crash does; kubelet starts its container again. */
  const crash = async (node: number, program: string): Promise<void> => {
    const { stdout } = await cluster.enter(node, ['pgrep', '-f', `node .*/app/${program}`]);
    const [pid = ''] = stdout.trim().split('\n');
    expect(pid).toMatch(/^\d+$/);
    expect((await cluster.enter(node, ['kill', '-9', pid])).code).toBe(0);
  };
  const NAMES = [`api.example.com.=${API}`, 'secret.example.org.='];
  const asking = async (pod: string, what: () => Promise<unknown>): Promise<Account> => {
    const stop = keepAsking(cluster, pod, NAMES);
    try {
      await sleep(1000);
      await what();
      await sleep(1000);
    } catch (error) {
      await stop().catch(() => undefined);
      throw error;
    }
    return stop();
  };
  const ready = (node: number) =>
    eventually(
      async () =>
        (
          await cluster
            .node(node)
            .weir(['status'])
            .catch(() => ({ stdout: '' }))
        ).stdout,
      (text) => /^DNS proxy: +Ok/m.test(text),
    );

  it('questions are answered while the agent is away', async () => {
    const account = await asking('strict-1', async () => {
      await crash(1, 'agent.mjs');
      await ready(1);
    });
    expect(account).toMatchObject({ lost: 0, wrong: [] });
    expect(account.answered).toBeGreaterThan(20);
  });

  it('questions are answered again when the proxy is back; meanwhile what pods had found can be reached', async () => {
    const account = await asking('strict-1', async () => {
      await crash(1, 'dns-proxy.mjs');
      for (let times = 0; times < 5; times += 1) {
        expect(await reach('strict-1', API)).toBe('reached');
        expect(await reach('strict-1', SECRET)).toBe('dropped');
      }
      await ready(1);
    });
    console.log('proxy crash', account);
    expect(account.wrong).toEqual([]);
    expect(account.away).toBeLessThan(LONGEST_AWAY_MS);
  });

  it('an upgrade loses the questions of a moment, and answers none wrongly', async () => {
    const stop = [1, 2].map((node) => keepAsking(cluster, `strict-${node}`, NAMES));
    await sleep(1000);
    await cluster.upgrade({ agent: { logLevel: 'debug' }, dnsProxy: { deny: 'nxdomain' } });
    await sleep(1000);
    for (const account of await Promise.all(stop.map((each) => each()))) {
      console.log('upgrade', account);
      expect(account.wrong).toEqual([]);
      expect(account.answered).toBeGreaterThan(20);
      expect(account.away).toBeLessThan(LONGEST_AWAY_MS);
    }
  });

  it.each(kinds)('%s goes on to the next search domain after NXDOMAIN', async (kind) => {
    expect(await resolve(cluster, 'bare-2', kind, 'api.example.com')).toBe(API);
    expect(await resolve(cluster, 'bare-2', kind, 'secret.example.org')).toContain('failed');
  });

  it('an uninstall takes all of it off the nodes', async () => {
    await cluster.uninstall();
    const left =
      'find /var/run/weir -mindepth 1; ip rule; ip -6 rule; ip route show table 2005; ip -6 route show table 2005';
    for (const node of [1, 2]) {
      const { stdout } = await cluster.enter(node, ['sh', '-c', `${left} 2>/dev/null; true`]);
      expect(stdout).not.toMatch(/weir|2005|fwmark/);
    }
  });
});
