/** `weir explain` from files, as its users see it. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { FlowExplanation } from '../api/models.ts';
import { parseEnd, parseTraffic } from './flow-arguments.ts';
import { runCli } from './program.ts';

const CLUSTER = `
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: a, labels: {app: web}}
  spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]}
  status: {podIPs: [{ip: 10.1.0.7}, {ip: "fd00::7"}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: api, namespace: a, labels: {app: api}}
  spec: {nodeName: n2, containers: [{name: c}]}
  status: {podIPs: [{ip: 10.1.1.8}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: proxy, namespace: kube-system}
  spec: {nodeName: n1, hostNetwork: true, containers: [{name: c}]}
  status: {podIPs: [{ip: 192.168.0.1}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: done, namespace: a, labels: {app: api}}
  spec: {nodeName: n2, containers: [{name: c}]}
  status: {phase: Succeeded, podIPs: [{ip: 10.1.1.9}]}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: jobs, namespace: b}
  spec: {template: {metadata: {labels: {app: api}}, spec: {containers: [{name: c}]}}}
- apiVersion: v1
  kind: Namespace
  metadata: {name: b, labels: {team: blue}}
- apiVersion: v1
  kind: Node
  metadata: {name: n1}
  status: {addresses: [{type: InternalIP, address: 192.168.0.1}]}
- apiVersion: v1
  kind: Node
  metadata: {name: n2, labels: {zone: one}}
  status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: a}
  spec: {clusterIPs: [10.96.0.5], selector: {app: web}}
- apiVersion: v1
  kind: Service
  metadata: {name: kubernetes, namespace: default}
  spec: {clusterIPs: [10.96.0.1]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
  addressType: IPv4
  endpoints: [{addresses: [192.168.0.2]}]
`;

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-explain-'));
  await writeFile(join(folder, 'cluster.yaml'), CLUSTER);
});
afterAll(() => rm(folder, { recursive: true }));

async function weir(...args: readonly string[]): Promise<{ code: number; out: string; err: string }> {
  let [out, err] = ['', ''];
  const code = await runCli({
    args: ['explain', ...args],
    version: '9.9.9',
    out: { write: (text) => (out += text) },
    err: { write: (text) => (err += text) },
    signal: new AbortController().signal,
  });
  return { code, out: out.replaceAll(`${folder}/`, ''), err: err.replaceAll(`${folder}/`, '') };
}

/** With one policy of namespace a. */
async function explain(spec: string, source: string, destination: string, port: string, ...more: readonly string[]) {
  const policy = `apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: p, namespace: a}\nspec:\n${spec}\n`;
  await writeFile(join(folder, 'policy.yaml'), policy);
  return weir(source, destination, port, '-f', join(folder, 'cluster.yaml'), join(folder, 'policy.yaml'), ...more);
}
const verdict = async (...args: Parameters<typeof explain>): Promise<string> => {
  const { code, out, err } = await explain(...args);
  expect(err).toBe('');
  expect(code).toBe(out.startsWith('ALLOWED') ? 0 : 1);
  return out.split(':')[0] ?? '';
};

const WEB = '  endpointSelector: {matchLabels: {app: web}}';

it('names the rules at both ends, with their places', async () => {
  const spec = `${WEB}
  ingress:
    - fromEndpoints: [{}]
    - toPorts: [{ports: [{port: "80"}]}]
  ingressDeny:
    - fromEndpoints: [{matchLabels: {app: api}}]`;
  const { code, out } = await explain(spec, 'a/api', 'a/web', '80');
  expect(code).toBe(1);
  expect(out).toBe(`DENIED: a/api -> a/web TCP 80
egress at a/api: allowed, no policy selects the pod in this direction
ingress at a/web: denied, a deny rule matches
  decides: CiliumNetworkPolicy a/p spec.ingressDeny[0], deny (policy.yaml:10:7)
  matches, outranked: CiliumNetworkPolicy a/p spec.ingress[0], allow (policy.yaml:7:7)
  matches, outranked: CiliumNetworkPolicy a/p spec.ingress[1], allow (policy.yaml:8:7)
`);
});

it('reads world-ipv4 by the pod networks of the Nodes in the files', async () => {
  const ask = (nodes: readonly string[]) =>
    explain(
      `${WEB}\n  ingress: [{fromEntities: [world-ipv4]}]\n${nodes.map((spec, at) => `---\napiVersion: v1\nkind: Node\nmetadata: {name: x${at}}\nspec: ${spec}\n`).join('')}`,
      '203.0.113.9',
      'a/web',
      '80',
    );
  const [one, two] = ['{podCIDRs: [10.1.9.0/24]}', '{podCIDRs: [10.1.8.0/24, "fd00:8::/64"]}'];
  const single = await ask([one]);
  expect([single.code, single.err]).toEqual([
    1,
    expect.stringContaining('world-ipv4 selects nobody in a cluster of one'),
  ]);
  const dual = await ask([one, two]);
  expect([dual.code, dual.err]).toEqual([0, '']);
  expect((await ask([])).err).toContain('it is not known of how many');
});

it('knows nodes by their labels, and never the own one', async () => {
  const nodes = (lists: string, to: string): Promise<string> => verdict(`${WEB}\n  ${lists}`, 'a/web', to, '443');
  const one = 'egress: [{toNodes: [{matchLabels: {zone: one}}]}]';
  expect(await nodes(one, '192.168.0.2')).toBe('ALLOWED');
  expect(await nodes(one, 'node/n2')).toBe('ALLOWED');
  expect(await nodes('egress: [{toNodes: [{matchLabels: {zone: two}}]}]', 'node/n2')).toBe('DENIED');
  expect(await nodes('egress: [{toNodes: [{}]}]', 'node/n1')).toBe('DENIED');
  expect(
    await nodes(`egress: [{toEntities: [all]}]\n  egressDeny: [{toNodes: [{matchLabels: {zone: one}}]}]`, 'node/n2'),
  ).toBe('DENIED');
});

it('names who closes a pod where no rule matches', async () => {
  const { out } = await explain(`${WEB}\n  ingress: [{}]`, 'a/api', 'a/web', '80');
  expect(out).toContain(
    'ingress at a/web: denied, policies select the pod, and none of their rules allows it\n' +
      '  selects the pod: CiliumNetworkPolicy a/p spec (policy.yaml:4:1)\n',
  );
});

it('looks at both ends even where the first denies', async () => {
  const { out } = await explain(
    '  endpointSelector: {}\n  ingress: [{}]\n  egress: [{}]',
    'a/api',
    'a/web',
    '80',
    '-o',
    'json',
  );
  const { ends } = JSON.parse(out) as FlowExplanation;
  expect(ends.map(({ direction, verdict: each }) => `${direction} ${each}`)).toEqual([
    'egress denied',
    'ingress denied',
  ]);
});

describe('ends', () => {
  const from = (entity: string) => `${WEB}\n  ingress: [{fromEntities: [${entity}]}]`;
  it.each([
    ['world', 'world', 'ALLOWED'],
    ['world', '203.0.113.77', 'ALLOWED'],
    ['world', 'a/api', 'DENIED'],
    ['host', 'host', 'ALLOWED'],
    ['host', 'node/n1', 'ALLOWED'],
    ['host', 'kube-system/proxy', 'ALLOWED'],
    ['host', '192.168.0.2', 'DENIED'],
    ['remote-node', 'node/n2', 'ALLOWED'],
    ['remote-node', 'remote-node', 'ALLOWED'],
    ['kube-apiserver', '192.168.0.2', 'ALLOWED'],
    ['kube-apiserver', 'kube-apiserver', 'ALLOWED'],
    ['kube-apiserver', 'remote-node', 'DENIED'],
    ['health', 'health', 'ALLOWED'],
    ['cluster', '10.1.1.8', 'ALLOWED'],
    ['cluster', '10.1.1.9', 'DENIED'],
    ['world', 'unknown', 'DENIED'],
  ])('a rule for %s, and %s: %s', async (entity, source, expected) => {
    expect(await verdict(from(entity), source, 'pod/a/web', '80')).toBe(expected);
  });

  it('world is an address that no CIDR names', async () => {
    const cidr = (text: string) => `${WEB}\n  ingress: [{fromCIDR: [${text}]}]`;
    expect(await verdict(cidr('203.0.113.0/24'), 'world', 'a/web', '80')).toBe('DENIED');
    expect(await verdict(cidr('203.0.113.0/24, 198.51.100.0/24, 192.0.2.0/24'), 'world', 'a/web', '80')).toBe('DENIED');
    expect(await verdict(cidr('0.0.0.0/0'), 'world', 'a/web', '80')).toBe('ALLOWED');
    expect(await verdict(cidr('203.0.113.0/24'), '203.0.113.9', 'a/web', '80')).toBe('ALLOWED');
  });

  it('workloads, with labels of their namespace', async () => {
    const spec = `${WEB}\n  ingress: [{fromEndpoints: [{matchLabels: {io.cilium.k8s.namespace.labels.team: blue}}]}]`;
    expect((await explain(spec, 'b/jobs', 'a/web', '80')).out).toMatch(/^ALLOWED/);
    expect((await explain(spec, 'a/api', 'a/web', '80')).err).toContain('no file has Namespace a: ');
  });

  it('toServices finds Services and their slices', async () => {
    const spec = (name: string, namespace: string) =>
      `  endpointSelector: {matchLabels: {app: api}}\n  egress: [{toServices: [{k8sService: {serviceName: ${name}, namespace: ${namespace}}}]}]`;
    expect(await verdict(spec('web', 'a'), 'a/api', 'a/web', '80')).toBe('ALLOWED');
    const { code, err } = await explain(spec('other', 'a'), 'a/api', 'a/web', '80');
    expect(code).toBe(1);
    expect(err).toMatch(
      /^weir: policy\.yaml:6:\d+: CiliumNetworkPolicy a\/p spec\.egress\[0\]\.toServices\[0\]: no file has a Service .* \[ServiceNotFound\]\n$/,
    );
  });

  it.each([
    [['a/none', 'a/web', '80'], /no file has pod a\/none; there are a\/web, a\/api/],
    [['node/n9', 'a/web', '80'], /no file has node n9; there are n1, n2/],
    [['a/api', '10.96.0.5', '80'], /10\.96\.0\.5 is an address of Service a\/web: policies judge its backends/],
    [['world', 'host', '80'], /neither end is a pod/],
    [['a/api', 'a/web', 'dns/UDP'], /pod a\/web has no UDP port dns; there is http/],
    [['nobody', 'a/web', '80'], /"nobody" is no end of a flow/],
    [['a/api', 'a/web', '65536'], /65536 is no TCP port: 0 to 65535/],
    [['a/api', 'a/web', '80/XYZ'], /"80\/XYZ" is no port/],
  ])('%j is refused', async ([source = '', destination = '', port = ''], message) => {
    const { code, err, out } = await explain(`${WEB}\n  ingress: [{}]`, source, destination, port);
    expect([code, out]).toEqual([64, '']);
    expect(err).toMatch(message);
  });
});

describe('ports', () => {
  it.each([
    ['http', 'ALLOWED'],
    ['8080', 'ALLOWED'],
    ['8080/tcp', 'ALLOWED'],
    ['8080/UDP', 'DENIED'],
    ['8/ICMP', 'DENIED'],
  ])('%s', async (port, expected) => {
    const spec = `${WEB}\n  ingress: [{toPorts: [{ports: [{port: http, protocol: TCP}]}]}]`;
    expect(await verdict(spec, 'a/api', 'a/web', port)).toBe(expected);
  });

  it('are read', () => {
    expect(parseTraffic('GRE')).toEqual({ protocol: 'GRE', port: 0 });
    expect(parseTraffic('128/icmpv6')).toEqual({ protocol: 'ICMPv6', port: 128 });
    expect(parseEnd('pod/a/b')).toEqual({ kind: 'pod', namespace: 'a', name: 'b' });
    expect(parseEnd('fd00::7')).toEqual({ kind: 'address', address: 'fd00::7' });
  });
});

describe('names of hosts', () => {
  const SPEC = `${WEB}
  egress:
    - toEndpoints: [{}]
      toPorts: [{ports: [{port: "53", protocol: UDP}], rules: {dns: [{matchPattern: "*.example.com"}]}}]
    - toFQDNs: [{matchPattern: "*.example.com"}]
      toPorts: [{ports: [{port: "443", protocol: TCP}]}]`;
  it.each([
    ['a/web', 'api.example.com', '443', 'ALLOWED'],
    ['a/web', 'API.Example.com.', '443', 'ALLOWED'],
    ['a/web', 'api.example.com', '80', 'DENIED'],
    ['a/web', 'api.example.org', '443', 'DENIED'],
    ['a/web', '203.0.113.9', '443', 'DENIED'],
    // What may be asked passes; which names the proxy decides.
    ['a/web', 'a/api', '53/UDP', 'ALLOWED'],
    ['a/web', 'a/api', '53/TCP', 'DENIED'],
  ])('%s -> %s %s: %s', async (from, to, port, expected) => {
    expect(await verdict(SPEC, from, to, port)).toBe(expected);
  });

  it('are destinations only, and no slips of addresses', async () => {
    expect((await explain(SPEC, 'api.example.com', 'a/web', '80')).code).toBe(64);
    expect(() => parseEnd('10.0.0.256')).toThrow('no end of a flow');
    expect(() => parseEnd('wrold')).toThrow('no end of a flow');
    expect(parseEnd('API.example.com.')).toEqual({ kind: 'host', host: 'api.example.com' });
  });
});

it('what asks for a proxy is denied, beside a broader allow, too', async () => {
  const spec = `${WEB}
  ingress:
    - fromEndpoints: [{}]
    - fromEndpoints: [{}]
      toPorts: [{ports: [{port: "80", protocol: TCP}], rules: {http: [{method: GET}]}}]`;
  const { code, out } = await explain(spec, 'a/api', 'a/web', '80');
  expect(code).toBe(1);
  expect(out).toContain(`ingress at a/web: denied, a rule asks for a proxy, and there is none
  decides: CiliumNetworkPolicy a/p spec.ingress[1].toPorts[0], redirect (policy.yaml:9:17)
  matches, outranked: CiliumNetworkPolicy a/p spec.ingress[0], allow (policy.yaml:7:7)
`);
});

describe('policies with problems', () => {
  it('are judged fail-closed, as in a cluster, and told', async () => {
    const spec = `${WEB}\n  ingress: [{fromEndpoints: [{}], toPorts: [{ports: [{port: "010"}]}]}]`;
    const { code, out, err } = await explain(spec, 'a/api', 'a/web', '8');
    expect([code, out.split(':')[0]]).toEqual([1, 'DENIED']);
    expect(err).toMatch(
      /^weir: policy\.yaml:6:\d+: CiliumNetworkPolicy a\/p spec\.ingress\[0\]\S*: "010" .*\[InvalidSpec\]$/m,
    );
  });

  it('of a CiliumCIDRGroup that no file has are told, as a deny of it is lost', async () => {
    const spec = (group: string) =>
      `${WEB}\n  egressDeny: [{toCIDRSet: [{${group}}]}]\n  egress: [{toEntities: [all]}]`;
    for (const group of ['cidrGroupRef: partners', 'cidrGroupSelector: {matchLabels: {kind: saas}}']) {
      const { code, err } = await explain(spec(group), 'a/web', '198.51.100.7', '80');
      expect(code).toBe(0);
      expect(err).toMatch(
        / spec\.egressDeny\[0\]\.toCIDRSet\[0\]\.cidrGroup\w+: no file has a CiliumCIDRGroup .* \[CIDRGroupNotFound\]\n$/,
      );
    }
    const group =
      'apiVersion: cilium.io/v2\nkind: CiliumCIDRGroup\nmetadata: {name: partners}\nspec: {externalCIDRs: [198.51.100.0/24]}\n';
    await writeFile(join(folder, 'group.yaml'), group);
    expect(
      await explain(spec('cidrGroupRef: partners'), 'a/web', '198.51.100.7', '80', '-f', join(folder, 'group.yaml')),
    ).toMatchObject({ code: 1, err: '' });
  });

  it('of a file that is no YAML there is no answer', async () => {
    expect(await explain('\t- x', 'a/api', 'a/web', '80')).toMatchObject({ code: 65, out: '' });
    expect((await weir('a/api', 'a/web', '80', '-f', join(folder, 'none'))).code).toBe(66);
  });

  it('of two of one name the last counts', async () => {
    const policy = (spec: string) =>
      `apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: p, namespace: a}\nspec: ${spec}\n`;
    const text = `${policy('{endpointSelector: {}, ingress: [{}]}')}---\n${policy('{endpointSelector: {}, ingress: [{fromEntities: [all]}]}')}`;
    await writeFile(join(folder, 'two.yaml'), text);
    expect(
      (await weir('a/api', 'a/web', '80', '-f', join(folder, 'cluster.yaml'), join(folder, 'two.yaml'))).code,
    ).toBe(0);
  });
});
