/** Programs that others wrote at both ends: dnsmasq answers, and glibc and c-ares ask as they do it. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, expect, it } from '@jest/globals';
import { eventually } from '../../../test/eventually.ts';
import type { DnsQuery, FromProxy } from '../protocol.ts';
import { Agent, nameKeyHex, Rig } from './testing/rig.ts';

const ENDPOINT = 7;
const LISTENER = 3;
const IDENTITY = 0x0100_0001;
const MANY = Array.from({ length: 60 }, (_, at) => `192.0.5.${at}`);
/** Ports that the pod's programs use: the kernel has redirected flows of each. */
const PORTS = 200;

let rig: Rig;
let agent: Agent;
let dnsmasq: ChildProcess;

/** Runs a program in the pod, with a resolv.conf of its own. */
async function inPod(...command: readonly string[]): Promise<string> {
  const mounted = 'mount --bind "$0" /etc/resolv.conf && exec "$@"';
  const args = [`--net=/run/netns/${rig.netns('pod')}`, 'unshare', '-m', 'sh', '-c', mounted];
  const { stdout } = await promisify(execFile)('nsenter', [...args, join(rig.folder, 'resolv.conf'), ...command]);
  return stdout;
}

const resolved = (name: string): Promise<string> =>
  inPod('getent', 'ahosts', name).catch(({ stdout }: { stdout: string }) => `nothing ${stdout}`);
const said = (name: string): Pick<DnsQuery, 'protocol' | 'verdict' | 'rcode'>[] =>
  agent.heard
    .filter((message: FromProxy): message is DnsQuery => message.type === 'query' && message.name === name)
    .map(({ protocol, verdict, rcode }) => ({ protocol, verdict, ...(rcode === undefined ? {} : { rcode }) }));

beforeAll(async () => {
  rig = new Rig('resolvers');
  await rig.start();
  rig.resolver.child.kill();
  await once(rig.resolver.child, 'exit');
  const zone = [
    '--host-record=api.example.com,192.0.2.1,2001:db8::1',
    '--cname=www.example.com,api.example.com',
    ...MANY.map((address) => `--host-record=many.example.com,${address}`),
    '--host-record=other.test,192.0.2.9',
  ];
  const flags = [
    '--keep-in-foreground',
    '--no-resolv',
    '--no-hosts',
    '--conf-file=/dev/null',
    '--user=root',
    '--pid-file=',
  ];
  const listen = [
    '--bind-interfaces',
    '--listen-address=10.9.2.2',
    '--local=/com/',
    '--local=/test/',
    '--local-ttl=60',
  ];
  dnsmasq = spawn('nsenter', [`--net=/run/netns/${rig.netns('server')}`, 'dnsmasq', ...flags, ...listen, ...zone], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  await promisify(execFile)('nsenter', [
    `--net=/run/netns/${rig.netns('pod')}`,
    'sysctl',
    '-qw',
    `net.ipv4.ip_local_port_range=20001 ${20_000 + PORTS}`,
  ]);
  writeFileSync(
    join(rig.folder, 'resolv.conf'),
    'nameserver 10.9.2.2\nsearch svc.cluster.test example.com\noptions ndots:2\n',
  );
  for (const protocol of ['udp', 'tcp'] as const) {
    rig.restartPorts();
    for (let port = 0; port < PORTS; port += 1) rig.redirect(ENDPOINT, LISTENER, protocol);
  }
  agent = await Agent.connect(rig.socket);
  agent.say(
    { type: 'endpoint', endpoint: ENDPOINT, addresses: ['10.9.1.2'] },
    { type: 'listener', listener: LISTENER, names: ['*.example.com'] },
    { type: 'selector', selector: 1, pattern: '*.example.com' },
    { type: 'identity', identity: IDENTITY, selectors: [1] },
    { type: 'complete' },
  );
  await eventually(
    () => resolved('api.example.com'),
    (text) => text.includes('192.0.2.1'),
  );
});
afterAll(async () => {
  agent?.close();
  dnsmasq?.kill();
  await rig?.stop();
});
beforeEach(() => {
  agent.heard.length = 0;
});

it('glibc gets both kinds of addresses by one socket', async () => {
  const text = await resolved('api.example.com');
  expect(text).toContain('192.0.2.1');
  expect(text).toContain('2001:db8::1');
  expect(rig.rows()).toMatchObject({
    [nameKeyHex('192.0.2.1')]: IDENTITY,
    [nameKeyHex('2001:db8::1')]: IDENTITY,
  });
  await eventually(
    () => Promise.resolve(said('api.example.com')),
    // What was asked before may be told late.
    (all) => all.filter(({ verdict }) => verdict === 'answered').length >= 2,
  );
});

it('an answer that is cut is asked for again by TCP, and 50 of its addresses count', async () => {
  const text = await resolved('many.example.com');
  expect(new Set(text.match(/192\.0\.5\.\d+/g)).size).toBe(MANY.length);
  await eventually(
    () => Promise.resolve(said('many.example.com')),
    (all) => all.some(({ protocol, verdict }) => protocol === 'tcp' && verdict === 'answered'),
  );
  expect(Object.keys(rig.rows()).filter((key) => MANY.map(nameKeyHex).includes(key))).toHaveLength(50);
});

it('a name that no rule has is not found', async () => {
  expect(await resolved('other.test.')).toBe('nothing ');
  await eventually(
    () => Promise.resolve(said('other.test')),
    (all) => all.length > 0,
  );
  expect(said('other.test').every(({ verdict, rcode }) => verdict === 'refused' && rcode === 'REFUSED')).toBe(true);
});

it('c-ares, as Node has it, is answered; so is that a name does not exist', async () => {
  const script = `
import { Resolver } from 'node:dns/promises';
const resolver = new Resolver();
resolver.setServers(['10.9.2.2']);
const all = await Promise.allSettled([resolver.resolve4('API.example.com'), resolver.resolve4('missing.example.com'), resolver.resolve4('other.test')]);
console.log(JSON.stringify(all.map(({ value, reason }) => value ?? reason.code)));
`;
  const text = await inPod(process.execPath, '--input-type=module', '-e', script);
  expect(JSON.parse(text)).toEqual([['192.0.2.1'], 'ENOTFOUND', 'EREFUSED']);
});

/** glibc asks no further search domain after REFUSED: who allows some names only, and has clients that search, wants NXDOMAIN. */
it('a search domain that no rule has ends the search of glibc when it is refused, and does not when it does not exist', async () => {
  expect(await resolved('www')).toBe('nothing ');
  await eventually(
    () => Promise.resolve(said('www.svc.cluster.test')),
    (all) => all.some(({ verdict, rcode }) => verdict === 'refused' && rcode === 'REFUSED'),
  );
  agent.close();
  await rig.endProxy('SIGTERM');
  await rig.startProxy('--dns-deny', 'nxdomain');
  agent = await Agent.connect(rig.socket);
  expect(await resolved('www')).toContain('192.0.2.1');
  await eventually(
    () => Promise.resolve(said('www.svc.cluster.test')),
    (all) => all.some(({ verdict, rcode }) => verdict === 'refused' && rcode === 'NXDOMAIN'),
  );
  expect(agent.heard).toContainEqual(
    expect.objectContaining({ type: 'name', name: 'www.example.com', address: '192.0.2.1' }),
  );
});
