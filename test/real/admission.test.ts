/**
 * What a real API server lets the agent of one node write of another's: nothing. The chart's ValidatingAdmissionPolicy, asked as agents
 * are: with the ServiceAccount's name, and the node that a pod's token names.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { dump, load } from 'js-yaml';
import { CHART } from '../chart/render.ts';
import { RealCluster } from '../cluster/real/index.ts';
import { attempt, type Output } from '../cluster/run.ts';
import { eventually } from '../eventually.ts';

const AGENT = 'system:serviceaccount:kube-system:weir-agent';

interface Kubeconfig {
  readonly users: { user: Record<string, unknown> }[];
}

const report = (node: string): object => ({
  apiVersion: 'weir.dev/v1alpha1',
  kind: 'NodePolicyStatus',
  metadata: { name: node },
  status: { revision: 1, policies: {}, failures: [] },
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
  }, 180_000);
  afterAll(() => cluster?.stop(), 60_000);

  /** kubectl as the agent whose token names this node; '' names none. */
  function kubectl(node: string, args: readonly string[], stdin?: string): Promise<Output> {
    const extra = node === '' ? {} : { 'as-user-extra': { 'authentication.kubernetes.io/node-name': [node] } };
    return kubectlAs(`agent-${node}`, { as: AGENT, ...extra }, args, stdin);
  }
  function kubectlAs(name: string, who: object, args: readonly string[], stdin?: string): Promise<Output> {
    const config = load(readFileSync(cluster.kubeconfig, 'utf8')) as Kubeconfig;
    for (const each of config.users) Object.assign(each.user, who);
    const path = join(cluster.folder, `${name}.conf`);
    writeFileSync(path, dump(config), { mode: 0o600 });
    return attempt('kubectl', ['--kubeconfig', path, ...args], stdin === undefined ? {} : { stdin });
  }
  function apply(node: string, object: object): Promise<Output> {
    const flags = ['--server-side', '--force-conflicts', '--field-manager=weir-agent'];
    return kubectl(node, ['apply', ...flags, '-f', '-'], JSON.stringify(object));
  }
  const refused = (text: string): object => ({ code: 1, stderr: expect.stringContaining(text) });

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
