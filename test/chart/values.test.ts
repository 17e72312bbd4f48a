/** Values, their documentation and their schema say the same; what makes no sense is refused by name. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { load } from 'js-yaml';
import { parseProxyConfig } from '../../node-agent/dns/proxy/config.ts';
import { parseConfig } from '../../operator/config.ts';
import { DEFAULT_LIMITS } from '../../operator/limits.ts';
import { OPERATOR_PARTS } from '../../operator/part-list.ts';
import { imageSpec, NODE_FLAGS } from '../../scripts/images/catalog.ts';
import { attempt, ROOT } from '../cluster/run.ts';
import { CHART, find, podSpec, render } from './render.ts';

interface Schema {
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
}
type Values = Readonly<Record<string, unknown>>;

const text = readFileSync(join(CHART, 'values.yaml'), 'utf8');
const defaults = load(text) as Values;
const schema = JSON.parse(readFileSync(join(CHART, 'values.schema.json'), 'utf8')) as Schema;
const everything = load(readFileSync(join(ROOT, 'test/chart/everything.yaml'), 'utf8')) as Values;

/** Where the schema goes on by keys of the chart's own, not of the user's or of Kubernetes. */
const isGroup = (at: Schema | undefined, value: unknown): boolean =>
  at?.type === 'object' &&
  at.additionalProperties === false &&
  typeof value === 'object' &&
  value !== null &&
  at.properties?.requests === undefined;

/** Every value by its path. */
function flatten(values: Values, at: Schema, path = ''): Map<string, unknown> {
  const out = new Map<string, unknown>();
  for (const [key, value] of Object.entries(values)) {
    const next = at.properties?.[key];
    if (isGroup(next, value)) {
      for (const entry of flatten(value as Values, next as Schema, `${path}${key}.`)) out.set(...entry);
    } else out.set(`${path}${key}`, value);
  }
  return out;
}

/** Every key of the schema by its path, groups included; `under` goes into lists and Kubernetes' own objects too. */
function* walk(at: Schema, path = '', under = false): Generator<readonly [string, Schema]> {
  for (const [key, next] of Object.entries(at.properties ?? {})) {
    yield [`${path}${key}`, next];
    if (under || next.properties?.requests === undefined) yield* walk(next, `${path}${key}.`, under);
    if (under && next.items !== undefined) yield* walk(next.items, `${path}${key}[].`, under);
  }
}

/** The comment above each key of values.yaml, by path. */
function comments(): Map<string, string> {
  const out = new Map<string, string>();
  const path: string[] = [];
  let words: string[] = [];
  for (const line of text.split('\n')) {
    const comment = /^ *# (.*)$/.exec(line);
    const key = /^( *)(\w+):/.exec(line);
    if (comment) words.push(comment[1] ?? '');
    else if (key) {
      path.length = (key[1] ?? '').length / 2;
      path.push(key[2] ?? '');
      out.set(path.join('.'), words.join(' '));
      words = [];
    } else words = [];
  }
  return out;
}

describe('the values of charts/weir', () => {
  const described = [...walk(schema)].filter(([path]) => path !== 'global');

  it('have two operators elect a leader by the times that LeaderElector has of itself (shared/kube/failover.test.ts)', async () => {
    const operator = find(await render(), 'Deployment', 'weir-operator');
    expect((operator.spec as { readonly replicas?: number }).replicas).toBe(2);
    const config = parseConfig(podSpec(operator)?.containers[0]?.args ?? [], {}, OPERATOR_PARTS, { exit: false });
    expect(config).toMatchObject({ command: 'run', leaderElect: true, leaderNamespace: 'kube-system' });
    // No flag sets them.
    const times = Object.keys(config).filter((name) => /lease|renew|retry|leader/i.test(name));
    expect(times.sort()).toEqual(['leaderElect', 'leaderName', 'leaderNamespace']);
  });

  it('start the DNS proxy as the image starts the agent, by flags that it knows', async () => {
    const proxyOf = async (flags: readonly string[] = []) =>
      podSpec(find(await render(flags), 'DaemonSet', 'weir-agent'))?.containers.find(
        ({ name }) => name === 'dns-proxy',
      );
    const command = (await proxyOf())?.command;
    expect(command).toEqual(['node', ...NODE_FLAGS, '/app/dns-proxy.mjs']);
    expect(imageSpec('node-agent').entrypoint.slice(0, 3)).toEqual(command?.slice(0, 3));
    const set = await proxyOf(['--set', 'dnsProxy.deny=nxdomain,dnsProxy.minTtl=3600,agent.logLevel=warn']);
    expect(parseProxyConfig(set?.args ?? [])).toMatchObject({
      config: { dnsDeny: 'nxdomain', dnsMinTtl: 3600, logLevel: 'warn' },
    });
  });

  it('without the DNS proxy have no container of it, and the agent knows', async () => {
    const agentOf = async (flags: readonly string[]) =>
      podSpec(find(await render(flags), 'DaemonSet', 'weir-agent'))?.containers ?? [];
    const off = await agentOf(['--set', 'dnsProxy.enabled=false']);
    expect(off.map(({ name }) => name)).toEqual(['agent']);
    expect(off[0]?.args).toContain('--dns-proxy=off');
    const on = await agentOf([]);
    expect(on.map(({ name }) => name)).toEqual(['agent', 'dns-proxy']);
    expect(on[0]?.args).not.toContain('--dns-proxy=off');
    expect(on[0]?.args).toContain('--dns-rate=1000');
  });

  it('are those of the schema, each with the same description', () => {
    expect(Object.fromEntries(comments())).toEqual(
      Object.fromEntries(described.map(([path, { description }]) => [path, description])),
    );
  });

  it('have the limits that the operator has without them', () => {
    expect((defaults.operator as { readonly limits: unknown }).limits).toEqual(DEFAULT_LIMITS);
  });

  it('have a description of at least three words, in lists too', () => {
    const poor = [...walk(schema, '', true)].filter(([, { description = '' }]) => description.split(' ').length < 3);
    expect(poor.map(([path]) => path)).toEqual([]);
  });

  it('admit no unknown key anywhere', () => {
    const open = [...walk(schema, '', true), ['', schema] as const].filter(
      ([path, { properties, additionalProperties }]) =>
        path !== 'global' && properties !== undefined && additionalProperties !== false,
    );
    expect(open.map(([path]) => path)).toEqual([]);
  });

  it('test/chart/everything.yaml sets each of them to something else', () => {
    const set = flatten(everything, schema);
    const known = flatten(defaults, schema);
    expect([...set.keys()].sort()).toEqual([...known.keys()].sort());
    for (const [path, value] of known) expect([path, set.get(path)]).not.toEqual([path, value]);
  });

  it.each([
    ['policyEnforcement=sometimes', ['/policyEnforcement', 'always']],
    ['agent.ctEntires=5', ['/agent', 'ctEntires']],
    ['agent.ctEntries=5', ['/agent/ctEntries', '1,024']],
    ['operator.replicas=0', ['/operator/replicas', 'minimum']],
    ['operator.limits.identitiesPerNamespace=70000', ['/operator/limits/identitiesPerNamespace', '65,280']],
    ['operator.limits.matchesPerPolicy=1', ['/operator/limits', 'matchesPerPolicy']],
    ['agent.extraCapabilities={CAP_NET_RAW}', ['/agent/extraCapabilities/0']],
    ['agent.image.digest=0123', ['/agent/image/digest', 'sha256']],
    ['agent.healthPort=10053', ['agent.healthPort is 10053', "Weir's DNS proxy"]],
    ['dnsProxy.deny=drop', ['/dnsProxy/deny', 'nxdomain']],
    ['dnsProxy.minTtl=86401', ['/dnsProxy/minTtl', '86,400']],
    ['dnsProxy.rate=0', ['/dnsProxy/rate', '1']],
    ['cni.binDir=opt/cni', ['/cni/binDir']],
    ['agent.tolerations[0].operator=Sometimes', ['/agent/tolerations/0/operator', 'Exists']],
    ['agent.resources.limit.cpu=1', ['/agent/resources', 'limit']],
    ['unknown=1', ['unknown']],
    ['agent.healthPort=9234', ['agent.healthPort and operator.healthPort are both 9234']],
    ['policyWebhook.port=9878', ['agent.healthPort and policyWebhook.port are both 9878']],
    ['agent.healthPort=10250', ['agent.healthPort is 10250', 'kubelet']],
    ['operator.healthPort=10256', ['operator.healthPort is 10256', 'kube-proxy']],
    ['operator.healthPort=6443', ['operator.healthPort is 6443', 'kube-apiserver']],
    ['operator.healthPort=10259', ['operator.healthPort is 10259', 'kube-scheduler']],
    ['agent.healthPort=10257', ['agent.healthPort is 10257', 'kube-controller-manager']],
    ['agent.healthPort=2380', ['agent.healthPort is 2380', 'etcd']],
    ['apiServer.host=https://192.0.2.1', ['/apiServer/host']],
    ['apiServer.host=192.0.2.1:6443', ['/apiServer/host']],
    ['apiServer.port=8443', ['apiServer.port is 8443', 'apiServer.host']],
    ['kubeProxyReplacement=true', ['kubeProxyReplacement is true', 'apiServer.host']],
  ])('%s is refused by name', async (setting, words) => {
    const { code, stderr } = await attempt('helm', ['template', 'weir', CHART, '--set', setting]);
    expect(code).not.toBe(0);
    for (const word of words) expect(stderr).toContain(word);
  });

  it('a parent chart may use Weir', async () => {
    const { code } = await attempt('helm', ['template', 'weir', CHART, '--set', 'global.region=x']);
    expect(code).toBe(0);
  });
});
