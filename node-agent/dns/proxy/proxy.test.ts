/** The proxy as a process, with real packets. */
import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import packet from 'dns-packet';
import { eventually } from '../../../test/eventually.ts';
import type { DnsQuery, FromProxy, ToProxy } from '../protocol.ts';
import { Agent, nameKeyHex, Rig } from './testing/rig.ts';

const ENDPOINT = 7;
const LISTENER = 3;
const IDENTITY = 0x0100_0001;
const RULES: readonly ToProxy[] = [
  { type: 'endpoint', endpoint: ENDPOINT, addresses: ['10.9.1.2', 'fd09:1::2'] },
  { type: 'listener', listener: LISTENER, names: ['*.example.com', 'big.test', 'alias.test'] },
  { type: 'selector', selector: 1, pattern: '*.example.com' },
  { type: 'identity', identity: IDENTITY, selectors: [1] },
];
const address = (data: string, ttl = 300) => ({ type: 'A', ttl, data });

const exec = promisify(execFile);

let rig: Rig;
let agent: Agent;
let serial = 100;

function question(name: string, type: 'A' | 'AAAA' = 'A'): { id: number; message: Buffer } {
  serial += 1;
  const questions = [{ name, type }];
  return {
    id: serial,
    message: packet.encode({ type: 'query', id: serial, flags: packet.RECURSION_DESIRED, questions }),
  };
}

const decoded = (hex: string): packet.DecodedPacket & { readonly rcode?: string } =>
  packet.decode(Buffer.from(hex, 'hex'));
const data = (hex: string): unknown[] => (decoded(hex).answers ?? []).map((each) => ('data' in each ? each.data : ''));
const isQuery =
  (name: string) =>
  (message: FromProxy): message is DnsQuery =>
    message.type === 'query' && message.name === name;

/** Says this, and waits until it is in force: who is told before a later question is not surely heard before it. */
async function rule(...messages: readonly ToProxy[]): Promise<void> {
  const { message, id } = question(`mark${serial + 1}.example.com`);
  const name = `mark${id}.example.com`;
  await rig.resolver.ask({ zone: { [name]: [address('192.0.2.98')] } });
  expect(await rig.ask([message], rig.redirect(ENDPOINT, LISTENER))).toHaveLength(1);
  agent.say(...messages, { type: 'forget', pattern: name });
  await agent.hear((heard) => heard.type === 'name-gone' && heard.name === name);
}

beforeAll(async () => {
  rig = new Rig('dns');
  await rig.start('--dns-identity-wait', '5000');
  await rig.resolver.ask({ zone: { 'ready.example.com': [address('192.0.2.99')] } });
  agent = await Agent.connect(rig.socket);
  agent.say(...RULES);
  await eventually(
    () => rig.ask([question('ready.example.com').message], rig.redirect(ENDPOINT, LISTENER), { waitMs: 1000 }),
    ({ length }) => length > 0,
  );
});
afterAll(async () => {
  agent?.close();
  await rig?.stop();
});
beforeEach(async () => {
  agent?.close();
  agent = await Agent.connect(rig.socket);
  agent.say(...RULES, { type: 'complete' });
  await agent.hear(({ type }) => type === 'names-complete');
  await rig.resolver.ask({ zone: {}, asked: true });
});

describe.each([4, 6] as const)('over IPv%i', (family) => {
  it.each(['udp', 'tcp'] as const)(
    'answers by %s what a rule allows, once its address is in the kernel',
    async (protocol) => {
      const name = `${protocol}${family}.example.com`;
      const found = `192.0.2.${family + (protocol === 'udp' ? 10 : 20)}`;
      await rig.resolver.ask({ zone: { [name]: [address(found)] } });
      const port = rig.redirect(ENDPOINT, LISTENER, protocol, family);
      const { message, id } = question(name);
      const [came, ...more] = await rig.ask([message], port, { protocol, family, row: found });
      expect(more).toEqual([]);
      expect(decoded(came?.hex ?? '').id).toBe(id);
      expect(data(came?.hex ?? '')).toEqual([found]);
      expect(came?.identity).toBe(IDENTITY);
      expect(await agent.hear(isQuery(name))).toMatchObject({
        endpoint: ENDPOINT,
        verdict: 'answered',
        rcode: 'NOERROR',
        protocol,
        qtype: 'A',
        port: 53,
      });
    },
  );
});

it('refuses a name that no rule has, and forwards nothing of it', async () => {
  const port = rig.redirect(ENDPOINT, LISTENER);
  const [came] = await rig.ask([question('example.org').message], port);
  expect(decoded(came?.hex ?? '').rcode).toBe('REFUSED');
  expect(await rig.resolver.ask({ asked: true })).toEqual([]);
  expect(await agent.hear(isQuery('example.org'))).toMatchObject({ verdict: 'refused', rcode: 'REFUSED' });
});

it('drops questions on flows that the kernel has not handed to it', async () => {
  const port = rig.redirect(ENDPOINT, 0);
  expect(await rig.ask([question('a.example.com').message], port, { waitMs: 500 })).toEqual([]);
  expect(await rig.ask([question('a.example.com').message], rig.redirect(ENDPOINT, 99), { waitMs: 500 })).toEqual([]);
  expect(await rig.resolver.ask({ asked: true })).toEqual([]);
  expect(await agent.hear(({ type }) => type === 'oddity')).toMatchObject({ oddity: 'no-flow' });
});

it('answers probes at its listeners on the loopback', async () => {
  await rig.endProxy('SIGTERM');
  await rig.startProxy('--bind', '127.0.0.1,::1', '--port', '10053');
  const probe = (at: string) => `console.log((await fetch('http://${at}:10053/')).status)`;
  for (const at of ['127.0.0.1', '[::1]']) {
    const node = [process.execPath, '--input-type=module', '-e', probe(at)];
    const { stdout } = await exec('nsenter', [`--net=/run/netns/${rig.netns('node')}`, ...node]);
    expect(stdout).toBe('200\n');
  }
  await rig.endProxy('SIGTERM');
  await rig.startProxy();
});

it('passes on no answer but that of the server that was asked, by its id and question', async () => {
  await rig.resolver.ask({ zone: { 'forged.example.com': 'forge' } });
  const port = rig.redirect(ENDPOINT, LISTENER);
  const [came] = await rig.ask([question('forged.example.com').message], port);
  expect(data(came?.hex ?? '')).toEqual(['192.0.2.1']);
  expect(rig.rows()).not.toHaveProperty(nameKeyHex('192.0.2.66'));
  await eventually(
    () => Promise.resolve(agent.oddities('unasked')),
    (count) => count >= 2,
  );
  expect(agent.oddities('unasked')).toBe(2);
});

it('asks as the pod did: letters keep their case, and the addresses of aliases are of the name that was asked', async () => {
  const name = 'CDN.Example.COM';
  const zone = {
    [name.toLowerCase()]: [
      { type: 'CNAME', ttl: 60, data: 'edge.test' },
      { name: 'edge.test', ...address('192.0.2.40') },
      { name: 'other.test', ...address('192.0.2.41') },
    ],
  };
  await rig.resolver.ask({ zone });
  const port = rig.redirect(ENDPOINT, LISTENER);
  const [came] = await rig.ask([question(name).message], port, { row: '192.0.2.40' });
  expect(came?.identity).toBe(IDENTITY);
  expect(await rig.resolver.ask({ asked: true })).toEqual([`${name} A udp`]);
  expect(rig.rows()).not.toHaveProperty(nameKeyHex('192.0.2.41'));
});

it('answers many questions of one socket, and of one connection', async () => {
  const names = Array.from({ length: 20 }, (_, at) => `n${at}.example.com`);
  await rig.resolver.ask({ zone: Object.fromEntries(names.map((name, at) => [name, [address(`192.0.3.${at}`)]])) });
  for (const protocol of ['udp', 'tcp'] as const) {
    const port = rig.redirect(ENDPOINT, LISTENER, protocol);
    const asked = names.map((name) => question(name).message);
    const came = await rig.ask(asked, port, { protocol });
    expect(new Set(came.flatMap(({ hex }) => data(hex)))).toEqual(new Set(names.map((_, at) => `192.0.3.${at}`)));
  }
});

it('answers a client that has ended its side of the connection', async () => {
  await rig.resolver.ask({ zone: { 'half.example.com': [address('192.0.2.90')] } });
  const port = rig.redirect(ENDPOINT, LISTENER, 'tcp');
  const [came] = await rig.ask([question('half.example.com').message], port, { protocol: 'tcp', half: true });
  expect(data(came?.hex ?? '')).toEqual(['192.0.2.90']);
});

it('keeps the socket of a port for a while, and lets nothing in by it that is not asked for', async () => {
  await rig.resolver.ask({ zone: { 'a.example.com': 'twice', 'b.example.com': [address('192.0.2.2')] } });
  const port = rig.redirect(ENDPOINT, LISTENER);
  agent.heard.length = 0;
  const first = await rig.ask([question('a.example.com').message], port);
  expect(first.map(({ hex }) => data(hex))).toEqual([['192.0.2.1']]);
  await agent.hear((message) => message.type === 'oddity' && message.oddity === 'unasked');
  const again = await rig.ask([question('b.example.com').message], port);
  expect(again.map(({ hex }) => data(hex))).toEqual([['192.0.2.2']]);
  // Who may ask is judged anew.
  rig.restrict(ENDPOINT, port);
  expect(await rig.ask([question('b.example.com').message], port, { waitMs: 200 })).toEqual([]);
  await eventually(
    () => Promise.resolve(rig.socketsOf(port)),
    (sockets) => sockets === 0,
  );
});

it('passes on an answer that is longer than a packet', async () => {
  const many = Array.from({ length: 200 }, (_, at) => address(`192.0.4.${at}`));
  await rig.resolver.ask({ zone: { 'big.test': many } });
  const [came] = await rig.ask([question('big.test').message], rig.redirect(ENDPOINT, LISTENER));
  expect(data(came?.hex ?? '')).toHaveLength(200);
});

it('gives up a server that cannot be reached, and says so', async () => {
  const port = rig.redirect(ENDPOINT, LISTENER);
  await rig.resolver.ask({ zone: { 'x.example.com': 'garbage' } });
  expect(await rig.ask([question('x.example.com').message], port, { waitMs: 500 })).toEqual([]);
  expect(await agent.hear((message) => message.type === 'oddity' && message.oddity === 'malformed')).toBeDefined();
});

it('waits for the identity of an address, and asks for it once', async () => {
  agent.close();
  agent = await Agent.connect(rig.socket, (message, self) => {
    if (message.type === 'wanted') self.say({ type: 'identity', identity: 0x0100_0002, selectors: message.selectors });
  });
  await rule(...RULES, { type: 'selector', selector: 2, pattern: 'both.example.com' }, { type: 'complete' });
  await rig.resolver.ask({ zone: { 'both.example.com': [address('192.0.2.50'), address('192.0.2.51')] } });
  const port = rig.redirect(ENDPOINT, LISTENER);
  const [came] = await rig.ask([question('both.example.com').message], port, { row: '192.0.2.51' });
  expect(came?.identity).toBe(0x0100_0002);
  expect(agent.heard.filter(({ type }) => type === 'wanted')).toEqual([{ type: 'wanted', selectors: [1, 2] }]);
});

it('passes on the answer of a server that ends the connection behind it, also where it waits for an identity', async () => {
  await rule({ type: 'selector', selector: 5, pattern: 'ends.example.com' });
  await rig.resolver.ask({ zone: { 'ends.example.com': [address('192.0.2.61')] }, closing: true });
  const port = rig.redirect(ENDPOINT, LISTENER, 'tcp');
  const [came] = await rig.ask([question('ends.example.com').message], port, { protocol: 'tcp' });
  expect(data(came?.hex ?? '')).toEqual(['192.0.2.61']);
  await agent.hear((message) => message.type === 'wanted' && message.selectors.join() === '1,5');
});

it('uses what it has when the agent gives no identity in time: never one of more than the name is of', async () => {
  await rule(
    { type: 'selector', selector: 3, pattern: 'late.example.com' },
    { type: 'identity', identity: 0x0100_0009, selectors: [1, 3, 4] },
  );
  await rig.resolver.ask({ zone: { 'late.example.com': [address('192.0.2.60')] } });
  const port = rig.redirect(ENDPOINT, LISTENER);
  const [came] = await rig.ask([question('late.example.com').message], port, { row: '192.0.2.60' });
  expect(came?.identity).toBe(IDENTITY);
});

describe('when it ends', () => {
  it.each(['SIGTERM', 'SIGKILL'] as const)(
    'by %s: rows stay, and the next one goes on without an agent',
    async (signal) => {
      const name = `${signal.toLowerCase()}.example.com`;
      const found = `192.0.2.${signal === 'SIGTERM' ? 70 : 71}`;
      await rig.resolver.ask({ zone: { [name]: [address(found)] } });
      await rig.ask([question(name).message], rig.redirect(ENDPOINT, LISTENER), { row: found });
      const before = rig.rows();
      expect(before).toHaveProperty(nameKeyHex(found));
      agent.close();
      expect(await rig.endProxy(signal)).toBe(signal === 'SIGTERM' ? 0 : null);
      expect(rig.rows()).toEqual(before);
      // Of somebody else: nobody's name.
      rig.maps.names.update(Buffer.from(nameKeyHex('198.51.100.1'), 'hex'), Buffer.from([9, 0, 0, 0]));
      rig.maps.names.delete(Buffer.from(nameKeyHex(found), 'hex'));
      await rig.startProxy();
      expect(rig.rows()).toEqual(before);
      const [came] = await rig.ask([question(name).message], rig.redirect(ENDPOINT, LISTENER), { row: found });
      expect(came?.identity).toBe(before[nameKeyHex(found)]);
      expect(
        decoded((await rig.ask([question('no.test').message], rig.redirect(ENDPOINT, LISTENER)))[0]?.hex ?? '').rcode,
      ).toBe('REFUSED');
    },
  );
});

it('killed at any time under questions: no answer is before its address in the kernel, and no name is answered that no rule has', async () => {
  const names = Array.from({ length: 40 }, (_, at) => `k${at}.example.com`);
  const found = '192.0.6.1';
  const zone = Object.fromEntries([...names, 'k.test'].map((name) => [name, [address(found)]]));
  await rig.resolver.ask({ zone });
  let [answered, lost] = [0, 0];
  for (let round = 0; round < 20 || Math.min(answered, lost) <= 10; round += 1) {
    agent.close();
    const asked = [...names, 'k.test'].map((name) => question(name).message);
    const asking = rig.ask(asked, rig.redirect(ENDPOINT, LISTENER), { row: found, waitMs: 200 });
    // Another instant each time: early ones lose questions, late ones are after answers.
    await sleep(4 * (round % 40));
    await rig.endProxy('SIGKILL');
    const came = await asking;
    for (const { hex, identity } of came) {
      const { questions = [], rcode } = decoded(hex);
      if (questions[0]?.name === 'k.test') expect(rcode).toBe('REFUSED');
      else expect([data(hex), identity]).toEqual([[found], IDENTITY]);
    }
    answered += came.length;
    lost += asked.length - came.length;
    await rig.startProxy();
    agent = await Agent.connect(rig.socket);
    agent.say(...RULES, { type: 'complete' }, { type: 'forget', pattern: '*' });
    // The next round begins without the row.
    await eventually(
      () => Promise.resolve(Object.keys(rig.rows()).length),
      (rows) => rows === 0,
    );
  }
  expect(await rig.resolver.ask({ asked: true })).not.toContain('k.test A udp');
});

it('forgets what a new agent does not say', async () => {
  await rig.resolver.ask({ zone: { 'gone.example.com': [address('192.0.2.80')] } });
  await rig.ask([question('gone.example.com').message], rig.redirect(ENDPOINT, LISTENER), { row: '192.0.2.80' });
  expect(rig.rows()).toHaveProperty(nameKeyHex('192.0.2.80'));
  agent.close();
  agent = await Agent.connect(rig.socket);
  await agent.hear((message) => message.type === 'name' && message.name === 'gone.example.com');
  agent.say({ type: 'complete' });
  await agent.hear((message) => message.type === 'name-gone' && message.name === 'gone.example.com');
  await eventually(
    () => Promise.resolve(Object.keys(rig.rows()).length),
    (rows) => rows === 0,
  );
});
