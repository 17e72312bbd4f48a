/** `weir policy diff`, as its users see it. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { PolicyDiff } from './policy-diff.ts';
import { runCli } from './program.ts';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-diff-'));
  const pod = (namespace: string, name: string, app: string, more = '') =>
    `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}, namespace: ${namespace}, labels: {app: ${app}}}\nspec: {containers: [{name: c${more}}]}\n---\n`;
  await writeFile(
    join(folder, 'pods.yaml'),
    [
      pod('a', 'web', 'web', ', ports: [{name: http, containerPort: 8080}]'),
      pod('a', 'api-1', 'api'),
      pod('a', 'api-2', 'api'),
      pod('b', 'cli', 'cli'),
    ].join(''),
  );
});
afterAll(() => rm(folder, { recursive: true }));

async function weir(...args: readonly string[]): Promise<{ code: number; out: string; err: string }> {
  let [out, err] = ['', ''];
  const code = await runCli({
    args: ['policy', 'diff', ...args],
    version: '9.9.9',
    out: { write: (text) => (out += text) },
    err: { write: (text) => (err += text) },
    signal: new AbortController().signal,
  });
  return { code, out: out.replaceAll(`${folder}/`, ''), err: err.replaceAll(`${folder}/`, '') };
}

const policy = (spec: string, name = 'p') =>
  `apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: ${name}, namespace: a}\nspec: ${spec}\n`;
const WEB = 'endpointSelector: {matchLabels: {app: web}}';
const API = 'fromEndpoints: [{matchLabels: {app: api}}]';
const port = (number: string, protocol = 'TCP') => `toPorts: [{ports: [{port: "${number}", protocol: ${protocol}}]}]`;

/** Lines of changes, with the pods. */
async function diff(old: string, next: string, ...more: readonly string[]): Promise<readonly string[]> {
  await writeFile(join(folder, 'old.yaml'), old);
  await writeFile(join(folder, 'new.yaml'), next);
  const pods = more.includes('--no-pods') ? [] : ['-f', join(folder, 'pods.yaml')];
  const options = more.filter((each) => each !== '--no-pods');
  const { code, out, err } = await weir(join(folder, 'old.yaml'), join(folder, 'new.yaml'), ...options, ...pods);
  expect(err).toBe('');
  const lines = out.trimEnd().split('\n').slice(0, -1);
  expect(code).toBe(lines.length === 0 ? 0 : 1);
  return lines;
}

describe('nothing changes', () => {
  const old = policy(`{${WEB}, ingress: [{${API}, ${port('80')}}, {${API}, ${port('81')}}]}`);
  it.each([
    ['the same', old],
    [
      'in another order, under another name',
      policy(`{${WEB}, ingress: [{${API}, ${port('81')}}, {${API}, ${port('80')}}]}`, 'q'),
    ],
    [
      'as a range',
      policy(`{${WEB}, ingress: [{${API}, toPorts: [{ports: [{port: "80", endPort: 81, protocol: TCP}]}]}]}`),
    ],
    [
      'in two policies',
      `${policy(`{${WEB}, ingress: [{${API}, ${port('80')}}]}`)}---\n${policy(`{${WEB}, ingress: [{${API}, ${port('81')}}]}`, 'q')}`,
    ],
    [
      'with a rule that selects nobody',
      `${old}---\n${policy('{endpointSelector: {matchLabels: {app: none}}, ingress: [{}]}', 'q')}`,
    ],
  ])('%s', async (_, next) => {
    expect(await diff(old, next)).toEqual([]);
  });
});

describe('changes', () => {
  it('of ports, from whom to whom', async () => {
    expect(
      await diff(
        policy(`{${WEB}, ingress: [{${API}, ${port('80')}}]}`),
        policy(`{${WEB}, ingress: [{${API}, toPorts: [{ports: [{port: "81", endPort: 90, protocol: TCP}]}]}]}`),
      ),
    ).toEqual([
      'a/api-1 and 1 like it -> a/web: TCP 81-90: denied -> allowed',
      'a/api-1 and 1 like it -> a/web: TCP 80: allowed -> denied',
    ]);
  });

  it('a default deny closes everybody out', async () => {
    const lines = await diff(
      policy(`{${WEB}, egress: [{toEntities: [all]}]}`),
      policy(`{${WEB}, egress: [{toEntities: [world]}]}`),
    );
    expect(lines).toEqual([
      'a/web -> a/web: everything: allowed -> denied',
      'a/web -> a/api-1 and 1 like it: everything: allowed -> denied',
      'a/web -> b/cli: everything: allowed -> denied',
      'a/web -> host: everything: allowed -> denied',
      'a/web -> remote-node: everything: allowed -> denied',
      'a/web -> kube-apiserver: everything: allowed -> denied',
      ...['health', 'init', 'ingress', 'unmanaged'].map((name) => `a/web -> ${name}: everything: allowed -> denied`),
    ]);
  });

  it('what the other end denies stays denied', async () => {
    const closed = policy('{endpointSelector: {matchLabels: {app: api}}, egress: [{}]}', 'closed');
    const old = `${policy(`{${WEB}, ingress: [{}]}`)}---\n${closed}`;
    expect(await diff(old, `${policy(`{${WEB}, ingress: [{${API}}]}`)}---\n${closed}`)).toEqual([]);
  });

  it('of CIDRs, their exceptions, and what is around them', async () => {
    const cidr = (text: string) => policy(`{${WEB}, ingress: [{fromCIDRSet: [${text}]}]}`);
    expect(await diff(cidr('{cidr: 10.0.0.0/8}'), cidr('{cidr: 10.0.0.0/8, except: [10.1.0.0/16]}'))).toEqual([
      '10.1.0.0/16 -> a/web: everything: allowed -> denied',
    ]);
    expect(await diff(cidr('{cidr: 10.1.0.0/16}'), cidr('{cidr: 10.0.0.0/8}'))).toEqual([
      '10.0.0.0/8 -> a/web: everything: denied -> allowed',
    ]);
    expect(await diff(cidr('{cidr: 10.1.0.0/16}'), cidr('{cidr: 0.0.0.0/0}'))).toEqual([
      'world -> a/web: everything: denied -> allowed',
    ]);
    // One half of a prefix has no address that no narrower one names.
    expect(await diff(cidr('{cidr: 10.0.0.0/8}'), cidr('{cidr: 10.0.0.0/9}, {cidr: 10.128.0.0/9}'))).toEqual([]);
  });

  it('of names of ports', async () => {
    expect(
      await diff(policy(`{${WEB}, ingress: [{${port('8080')}}]}`), policy(`{${WEB}, ingress: [{${port('http')}}]}`)),
    ).toEqual([]);
    const lines = await diff(
      policy(`{${WEB}, ingress: [{${port('80')}}]}`),
      policy(`{${WEB}, ingress: [{${port('http')}}]}`),
    );
    expect(lines).toContain('b/cli -> a/web: TCP 8080: denied -> allowed');
    expect(lines).toContain('world -> a/web: TCP 80: allowed -> denied');
  });

  it('ICMP and whole protocols', async () => {
    const lines = await diff(
      policy(`{${WEB}, ingress: [{${API}}]}`),
      policy(`{${WEB}, ingress: [{${API}, icmps: [{fields: [{type: 8}]}]}]}`),
    );
    expect(lines).toEqual([
      'a/api-1 and 1 like it -> a/web: ICMP 0-7, 9-255; IGMP; IPIP; TCP; UDP; IPV6; GRE; ESP; AH; ICMPv6; VRRP; SCTP: allowed -> denied',
    ]);
  });

  it('a whole policy that comes or goes', async () => {
    const nothing = '[]';
    const closing = policy(`{${WEB}, ingress: [{${API}}]}`);
    const closed = await diff(nothing, closing);
    expect(closed).toContain('b/cli -> a/web: everything: allowed -> denied');
    expect(closed.some((each) => each.startsWith('a/api') || each.startsWith('host'))).toBe(false);
    expect(
      (await diff(closing, nothing)).map((each) => each.replace('denied -> allowed', 'allowed -> denied')),
    ).toEqual(closed);
  });
});

describe('without pods', () => {
  it('one stands for each selector, and one that none selects', async () => {
    const lines = await diff(
      policy(`{${WEB}, ingress: [{${API}}]}`),
      policy(`{${WEB}, ingress: [{fromEndpoints: [{}]}]}`),
      '--no-pods',
    );
    expect(lines).toEqual([
      'a/{app=web} -> a/{app=web}: everything: denied -> allowed',
      'a/{} -> a/{app=web}: everything: denied -> allowed',
    ]);
  });

  it('one that its service account tells from others is named by that', async () => {
    const subject = 'endpointSelector: {matchLabels: {io.cilium.k8s.policy.serviceaccount: robot}}';
    const lines = await diff('', policy(`{${subject}, ingress: [{fromEndpoints: [{}]}]}`), '--no-pods');
    expect(lines).toContain('world -> a/{io.cilium.k8s.policy.serviceaccount=robot}: everything: allowed -> denied');
  });
});

describe('the command', () => {
  it('takes folders, prints JSON, and bounds the text', async () => {
    await mkdir(join(folder, 'o'), { recursive: true });
    await mkdir(join(folder, 'n'), { recursive: true });
    await writeFile(join(folder, 'o', 'p.yaml'), policy(`{${WEB}, ingress: [{fromEntities: [all]}]}`));
    await writeFile(join(folder, 'n', 'p.yaml'), policy(`{${WEB}, ingress: [{}]}`));
    const args = [join(folder, 'o'), join(folder, 'n'), '-f', join(folder, 'pods.yaml')];
    const { changes, complete } = JSON.parse((await weir(...args, '-o', 'json')).out) as PolicyDiff;
    expect([changes.length > 5, complete]).toEqual([true, true]);
    const { out } = await weir(...args, '--limit', '2');
    expect(out.split('\n')).toHaveLength(5);
    expect(out).toMatch(/^and \d+ more\n\d+ pairs compared: 0 gain flows, \d+ lose some$/m);
  });

  it('answers with 64, 65 and 66', async () => {
    await writeFile(join(folder, 'good.yaml'), policy(`{${WEB}, ingress: [{}]}`));
    await writeFile(join(folder, 'broken.yaml'), 'a: [');
    const good = join(folder, 'good.yaml');
    expect((await weir(good)).code).toBe(64);
    expect((await weir(good, good, '--limit', 'x')).code).toBe(64);
    expect((await weir('-', '-')).code).toBe(64);
    expect((await weir(good, join(folder, 'broken.yaml'))).code).toBe(65);
    expect((await weir(good, join(folder, 'none'))).code).toBe(66);
  });
});
