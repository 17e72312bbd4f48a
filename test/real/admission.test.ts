/**
 * What a real API server refuses by the chart's ValidatingAdmissionPolicies: the agent of one node writes nothing of another's (asked as agents are:
 * with the ServiceAccount's name, and the node that a pod's token names), and whoever may write the status of pods says no addresses of them.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { dump, load } from 'js-yaml';
import { CHART } from '../chart/render.ts';
import { RealCluster } from '../cluster/real/index.ts';
import { attempt, type Output } from '../cluster/run.ts';
import { eventually } from '../eventually.ts';
import { weirCluster } from './weir.ts';

const AGENT = 'system:serviceaccount:kube-system:weir-agent';

interface Kubeconfig {
  readonly users: { user: Record<string, unknown> }[];
}

const report = (node: string): object => ({
  apiVersion: 'weir.dev/v1alpha1',
  kind: 'NodePolicyStatus',
  metadata: { name: node },
  status: { revision: 1, failures: [] },
});
const endpoint = (name: string, node?: string): object => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumEndpoint',
  metadata: { name, namespace: 'default', ...(node === undefined ? {} : { annotations: { 'weir.dev/node': node } }) },
  status: { id: 1, identity: { id: 1001, labels: [] }, state: 'ready' },
});
const event = (name: string, host: string, involvedObject: object = { kind: 'Pod', name: 'p' }): object => ({
  apiVersion: 'v1',
  kind: 'Event',
  metadata: { name, namespace: 'default' },
  involvedObject: { apiVersion: 'v1', namespace: 'default', ...involvedObject },
  reason: 'AddressConflict',
  message: 'two have it',
  type: 'Warning',
  source: { component: 'weir-agent', host },
});

const refused = (text: string): object => ({ code: 1, stderr: expect.stringContaining(text) });

/** kubectl as somebody: fields of a kubeconfig's user. `name`: of the file. */
function impersonate(
  cluster: RealCluster,
  name: string,
  who: object,
  args: readonly string[],
  stdin?: string,
): Promise<Output> {
  const config = load(readFileSync(cluster.kubeconfig, 'utf8')) as Kubeconfig;
  for (const each of config.users) Object.assign(each.user, who);
  const path = join(cluster.folder, `${name}.conf`);
  writeFileSync(path, dump(config), { mode: 0o600 });
  return attempt('kubectl', ['--kubeconfig', path, ...args], stdin === undefined ? {} : { stdin });
}

describe('the agent of one node', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await RealCluster.start({ nodes: 0 });
    const { code, stderr } = await cluster.helm.attempt(['install', 'weir', CHART, '-n', 'kube-system']);
    if (code !== 0) throw new Error(stderr);
    // The API server takes a new policy up after a moment.
    await eventually(
      () => apply('node-1', report('node-2')),
      ({ code }) => code !== 0,
    );
    await cluster.kubectl(['delete', 'nodepolicystatus', '--all']);
  });
  afterAll(() => cluster?.stop());

  /** kubectl as the agent whose token names this node; '' names none. */
  function kubectl(node: string, args: readonly string[], stdin?: string): Promise<Output> {
    const extra = node === '' ? {} : { 'as-user-extra': { 'authentication.kubernetes.io/node-name': [node] } };
    return kubectlAs(`agent-${node}`, { as: AGENT, ...extra }, args, stdin);
  }
  function kubectlAs(name: string, who: object, args: readonly string[], stdin?: string): Promise<Output> {
    return impersonate(cluster, name, who, args, stdin);
  }
  function apply(node: string, object: object, ...more: readonly string[]): Promise<Output> {
    const flags = ['--server-side', '--force-conflicts', '--field-manager=weir-agent', ...more];
    return kubectl(node, ['apply', ...flags, '-f', '-'], JSON.stringify(object));
  }
  it('writes the report of its node, and no other', async () => {
    expect(await apply('node-1', report('node-1'))).toMatchObject({ code: 0 });
    expect(await apply('node-1', report('node-1'))).toMatchObject({ code: 0 });
    expect(await apply('node-1', report('node-2'))).toMatchObject(
      refused('the agent of node node-1 writes the report of that node, and not that of node-2'),
    );
    await cluster.applyObjects([report('node-2')]);
    expect(await apply('node-1', report('node-2'))).toMatchObject({ code: 1 });
  });

  it("writes and deletes the endpoints that it made, and none of another node's", async () => {
    expect(await apply('node-1', endpoint('one', 'node-1'))).toMatchObject({ code: 0 });
    const theirs = refused('this endpoint is of node node-1, and the agent of node node-2');
    expect(await apply('node-2', endpoint('one', 'node-2'))).toMatchObject(theirs);
    const remove = ['delete', '--raw', '/apis/cilium.io/v2/namespaces/default/ciliumendpoints/one'];
    expect(await kubectl('node-2', remove)).toMatchObject(theirs);
    expect(await apply('node-1', endpoint('one', 'node-2'))).toMatchObject(refused('must be node-1'));
    expect(await apply('node-1', endpoint('two'))).toMatchObject(refused('annotation weir.dev/node must be node-1'));
    expect(await kubectl('node-1', remove)).toMatchObject({ code: 0 });
    // Of an agent from before the annotation.
    await cluster.applyObjects([endpoint('old')]);
    expect(await apply('node-2', endpoint('old', 'node-2'))).toMatchObject({ code: 0 });
  });

  it('makes Events that name it, and on no other node', async () => {
    expect(await apply('node-1', event('a', 'node-1'))).toMatchObject({ code: 0 });
    expect(await apply('node-2', event('a', 'node-2'))).toMatchObject(refused('not of the agent of node node-2'));
    expect(await apply('node-1', event('b', 'node-2'))).toMatchObject(refused('source.host must be node-1'));
    const on = (name: string): object => ({ kind: 'Node', name, namespace: '' });
    expect(await apply('node-1', event('c', 'node-1', on('node-2')))).toMatchObject(refused('must be on this one'));
    expect(await apply('node-1', event('d', 'node-1', on('node-1')))).toMatchObject({ code: 0 });
  });

  it('writes condition WeirProblem and annotation weir.dev/addresses of its node, and nothing else of any', async () => {
    await cluster.applyObjects(
      ['node-3', 'node-4'].map((name) => ({ apiVersion: 'v1', kind: 'Node', metadata: { name, labels: { a: 'b' } } })),
    );
    const patch = (agent: string, name: string, { metadata = {}, status = {} }: Partial<Record<string, object>>) =>
      apply(agent, { apiVersion: 'v1', kind: 'Node', metadata: { name, ...metadata }, status }, '--subresource=status');
    const condition = (type: string) => ({ status: { conditions: [{ type, status: 'True' }] } });
    expect(await patch('node-3', 'node-3', condition('WeirProblem'))).toMatchObject({ code: 0, stderr: '' });
    expect(await patch('node-3', 'node-4', condition('WeirProblem'))).toMatchObject(refused('and not of node-4'));
    const addresses = (text: string) => ({ metadata: { annotations: { 'weir.dev/addresses': text } } });
    expect(await patch('node-3', 'node-3', addresses('192.0.2.1'))).toMatchObject({ code: 0, stderr: '' });
    const annotation = ['get', 'node', 'node-3', '-o', 'jsonpath={.metadata.annotations.weir\\.dev/addresses}'];
    expect(await cluster.kubectl(annotation)).toBe('192.0.2.1');
    expect(await patch('node-3', 'node-4', addresses('192.0.2.1'))).toMatchObject(refused('and not of node-4'));
    const more = refused('an agent writes no more of its node than condition WeirProblem');
    expect(await patch('node-3', 'node-3', addresses('1'.repeat(5000)))).toMatchObject(more);
    for (const object of [
      condition('Ready'),
      { metadata: { labels: { a: 'c' } } },
      { metadata: { labels: { 'node-role.kubernetes.io/control-plane': '' } } },
      { metadata: { annotations: { a: 'c' } } },
      { metadata: { annotations: { 'weir.dev/addresses': '192.0.2.1', a: 'c' } } },
      { status: { addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] } },
      { status: { capacity: { cpu: '900' } } },
      { status: { daemonEndpoints: { kubeletEndpoint: { Port: 1 } } } },
      { status: { nodeInfo: { kernelVersion: '9' } } },
      { status: { volumesInUse: ['v'] } },
      { status: { images: [{ names: ['i'], sizeBytes: 1 }] } },
    ])
      expect({ object, ...(await patch('node-3', 'node-3', object)) }).toMatchObject(more);
  });

  it('whose token names no node writes nothing, and is told what to set', async () => {
    expect(await apply('', report('node-1'))).toMatchObject(refused('--set agent.boundToNode=false'));
  });

  it('is where the controller manager put its pods, whatever its kubelet says', async () => {
    const node = (name: string, spec?: object): string =>
      JSON.stringify({ apiVersion: 'v1', kind: 'Node', metadata: { name }, ...(spec === undefined ? {} : { spec }) });
    const kubelet = (name: string, ...args: readonly string[]): Promise<Output> =>
      kubectlAs(
        name,
        { as: `system:node:${name}`, 'as-groups': ['system:nodes', 'system:authenticated'] },
        args.slice(0, -1),
        args.at(-1),
      );
    const create = ['create', '-f', '-'];
    const taken = node('node-7', { podCIDR: '10.0.0.0/8', podCIDRs: ['10.0.0.0/8'] });
    expect(await kubelet('node-7', ...create, taken)).toMatchObject(refused('may not set spec.podCIDR'));
    expect(await kubelet('node-7', ...create, node('node-7'))).toMatchObject({ code: 0 });
    const patch = (spec: object): readonly string[] => ['patch', 'node', 'node-7', '-p', JSON.stringify(spec), ''];
    const set = await kubelet('node-7', ...patch({ spec: { podCIDR: '10.9.0.0/24', podCIDRs: ['10.9.0.0/24'] } }));
    expect(set).toMatchObject({ code: 1 });
    expect(await kubelet('node-7', ...patch({ metadata: { annotations: { a: 'b' } } }))).toMatchObject({ code: 0 });
  });

  it('others write as their roles allow', async () => {
    expect(await cluster.applyObjects([endpoint('by-an-admin', 'node-9')])).toContain('by-an-admin');
  });
});

const TENANT = 'system:serviceaccount:default:tenant';
/** A name that a template must escape. */
const OTHER_WRITER = "o'neill";
const ADMIN = 'system:serviceaccount:default:admin';

describe('whoever may write the status of pods', () => {
  let cluster: RealCluster;
  let node: string;
  beforeAll(async () => {
    cluster = await weirCluster({ nodes: 1, install: { podAddresses: { otherWriters: [OTHER_WRITER] } } });
    node = cluster.node(1).name;
    const apiGroup = 'rbac.authorization.k8s.io';
    const rbac = { apiVersion: `${apiGroup}/v1`, metadata: { name: 'tenant', namespace: 'default' } };
    const user = (name: string): object => ({ kind: 'User', apiGroup, name });
    await cluster.applyObjects([
      {
        ...rbac,
        kind: 'Role',
        rules: [{ apiGroups: [''], resources: ['pods', 'pods/status'], verbs: ['get', 'create', 'patch', 'update'] }],
      },
      {
        ...rbac,
        kind: 'RoleBinding',
        roleRef: { apiGroup, kind: 'Role', name: 'tenant' },
        subjects: [TENANT, OTHER_WRITER, `system:node:${node}`].map(user),
      },
      {
        ...rbac,
        kind: 'ClusterRoleBinding',
        metadata: { name: 'admin' },
        roleRef: { apiGroup, kind: 'ClusterRole', name: 'cluster-admin' },
        subjects: [user(ADMIN)],
      },
    ]);
    // Their addresses, and that they are ready, are what their kubelet writes.
    await cluster.createPods([{ name: 'server', node: 1, tcp: [80] }]);
  }, 240_000);
  afterAll(() => cluster?.stop());

  const podOf = async (name: string): Promise<{ readonly status: Readonly<Record<string, unknown>> }> =>
    JSON.parse(await cluster.kubectl(['get', 'pod', name, '-o', 'json'])) as never;
  /** A pod that no kubelet has, as the tenant makes it. */
  const placeless = (name: string, status: object = {}): string =>
    JSON.stringify({
      ...{ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace: 'default' }, status },
      spec: { schedulerName: 'nobody', containers: [{ name: 'c', image: 'i' }] },
    });
  let files = 0;
  const as = (who: object | string, args: readonly string[], stdin?: string): Promise<Output> => {
    files += 1;
    return impersonate(cluster, `user-${files}`, typeof who === 'string' ? { as: who } : who, args, stdin);
  };
  const patch = (who: object | string, pod: string, status: object): Promise<Output> =>
    as(who, ['patch', 'pod', pod, '--subresource=status', '--type=merge', '-p', JSON.stringify({ status })]);
  const claim = { podIP: '10.0.0.99', podIPs: [{ ip: '10.0.0.99' }] };
  const no = (user = TENANT): object =>
    refused(
      `only the kubelet of its node (user system:node:${node} of group system:nodes) changes the addresses in the status of pod server, or lets it run again once it has ended, and not ${user}: who must is listed in helm value podAddresses.otherWriters`,
    );

  it('says no address of them, nor takes one away; what else it says stands', async () => {
    const before = (await podOf('server')).status;
    expect(before).toMatchObject({ podIP: expect.any(String), hostIP: expect.any(String) });
    await eventually(
      () => patch(TENANT, 'server', claim),
      ({ code }) => code !== 0,
    );
    expect(await patch(TENANT, 'server', claim)).toMatchObject(no());
    expect(await patch(TENANT, 'server', { podIP: null, podIPs: null })).toMatchObject(no());
    const host = { hostIP: '192.0.2.99', hostIPs: [{ ip: '192.0.2.99' }] };
    expect(await patch(TENANT, 'server', host)).toMatchObject(no());
    const condition = { type: 'example.com/said', status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z' };
    const add = { op: 'add', path: '/status/conditions/-', value: condition };
    const ordinary = ['patch', 'pod', 'server', '--subresource=status', '--type=json', '-p', JSON.stringify([add])];
    expect(await as(TENANT, ordinary)).toMatchObject({ code: 0 });
    const { podIP, podIPs, hostIP, hostIPs, conditions } = (await podOf('server')).status;
    expect({ podIP, podIPs, hostIP, hostIPs }).toEqual({
      podIP: before.podIP,
      podIPs: before.podIPs,
      hostIP: before.hostIP,
      hostIPs: before.hostIPs,
    });
    expect(conditions).toContainEqual(expect.objectContaining({ type: 'example.com/said' }));
  });

  it('says none when it makes a pod, and none of a pod that has no node', async () => {
    expect(await as(TENANT, ['create', '-f', '-'], placeless('made', claim))).toMatchObject({ code: 0 });
    expect((await podOf('made')).status).not.toHaveProperty('podIP');
    expect(await patch(TENANT, 'made', claim)).toMatchObject(
      refused('changes the addresses in the status of pod made'),
    );
  });

  it('does not let a pod that has ended run again, whose address another may have', async () => {
    await cluster.kubectl(['create', '-f', '-'], placeless('ended'));
    expect(await patch(TENANT, 'ended', { phase: 'Succeeded' })).toMatchObject({ code: 0 });
    expect(await patch(TENANT, 'ended', { phase: 'Running' })).toMatchObject(refused('lets it run again'));
    expect(await patch(TENANT, 'ended', { phase: 'Failed' })).toMatchObject({ code: 0 });
  });

  it('is no kubelet by a username alone', async () => {
    expect(await patch(`system:node:${node}`, 'server', claim)).toMatchObject(no(`system:node:${node}`));
  });

  it('may as cluster-admin, or when it is listed', async () => {
    for (const [who, ip] of [
      [ADMIN, '10.0.0.97'],
      [OTHER_WRITER, '10.0.0.98'],
    ] as const)
      expect(await patch(who, 'made', { podIP: ip, podIPs: [{ ip }] })).toMatchObject({ code: 0 });
  });

  it('keeps no kubelet from its work, not even by an expression that fails', async () => {
    const policy = JSON.parse(
      await cluster.kubectl(['get', 'validatingadmissionpolicy', 'weir-pod-addresses', '-o', 'json']),
    ) as { readonly spec: { readonly matchConditions: readonly { readonly name: string }[] } };
    const kubelets = policy.spec.matchConditions.filter(({ name }) => name === 'by-another-than-its-kubelet');
    expect(kubelets).toHaveLength(1);
    const failing = { name: 'broken', expression: "object.status.nothing == 'x'" };
    await cluster.kubectl([
      ...['patch', 'validatingadmissionpolicy', 'weir-pod-addresses', '--type=merge', '-p'],
      JSON.stringify({ spec: { matchConditions: [...kubelets, failing] } }),
    ]);
    await eventually(
      () => patch(ADMIN, 'made', { phase: 'Pending' }),
      ({ code }) => code !== 0,
    );
    await cluster.createPods([{ name: 'later', node: 1, tcp: [80] }]);
    expect((await podOf('later')).status).toMatchObject({ podIP: expect.any(String) });
    expect(await cluster.probe('later', 'server', { timeoutMs: 3000 })).toBe('reached');
  });
});
