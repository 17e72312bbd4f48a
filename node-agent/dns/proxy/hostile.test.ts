/** Pods that flood, and resolvers and agents that say anything: one pod's use takes nothing from another's, and the proxy goes on. */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import packet from 'dns-packet';
import { eventually } from '../../../test/eventually.ts';
import type { FromProxy, ToProxy } from '../protocol.ts';
import { Agent, Rig } from './testing/rig.ts';

/** Two pods: of IPv4 and of IPv6, as far as the proxy can tell. */
const [FLOODER, OTHER, LISTENER] = [7, 8, 3];
const RULES: readonly ToProxy[] = [
  { type: 'endpoint', endpoint: FLOODER, addresses: ['10.9.1.2'] },
  { type: 'endpoint', endpoint: OTHER, addresses: ['fd09:1::2'] },
  { type: 'listener', listener: LISTENER, names: ['*'] },
  { type: 'complete' },
];
const [QUESTIONS, CONNECTIONS] = [8, 3];

let rig: Rig;
let agent: Agent;
let serial = 0;

function question(name: string): Buffer {
  serial += 1;
  return packet.encode({ type: 'query', id: serial, questions: [{ name, type: 'A' }] });
}

const hasAnswered = async (options: { readonly waitMs?: number } = {}): Promise<boolean> => {
  const port = rig.redirect(OTHER, LISTENER, 'udp', 6);
  return (await rig.ask([question('fine.test')], port, { ...options, family: 6 })).length === 1;
};

const verdicts = (name: string): Promise<readonly string[]> =>
  Promise.resolve(
    agent.heard.flatMap((message: FromProxy) =>
      message.type === 'query' && message.name === name ? [message.verdict] : [],
    ),
  );

beforeAll(async () => {
  rig = new Rig('hostile');
  await rig.start(
    '--dns-max-questions',
    `${QUESTIONS}`,
    '--dns-max-connections',
    `${CONNECTIONS}`,
    '--dns-answer-wait',
    '2000',
  );
  agent = await Agent.connect(rig.socket);
  agent.say(...RULES);
  await agent.hear(({ type }) => type === 'names-complete');
  await rig.resolver.ask({
    zone: { 'fine.test': [{ type: 'A', ttl: 60, data: '192.0.2.1' }], 'slow.test': 'silence' },
  });
  await eventually(
    () => hasAnswered({ waitMs: 1000 }),
    (has) => has,
  );
});
afterAll(async () => {
  agent?.close();
  await rig?.stop();
});

it('drops questions beyond those that a pod may have under way, and answers others meanwhile', async () => {
  const port = rig.redirect(FLOODER, LISTENER);
  const flood = Array.from({ length: 30 }, () => question('slow.test'));
  expect(await rig.ask(flood, port, { waitMs: 100 })).toEqual([]);
  expect(await hasAnswered()).toBe(true);
  const said = await eventually(
    () => verdicts('slow.test'),
    (each) => each.length === 30,
  );
  expect(said.filter((verdict) => verdict === 'dropped')).toHaveLength(30 - QUESTIONS);
  // Those that no server answered have ended, and leave room.
  expect(said.filter((verdict) => verdict === 'failed')).toHaveLength(QUESTIONS);
  expect(await rig.ask([question('fine.test')], rig.redirect(FLOODER, LISTENER))).toHaveLength(1);
});

it('loses none of what a pod may send at once, so that no question of another pod is lost behind it', async () => {
  const burst = Array.from({ length: 2000 }, () => Buffer.alloc(1400));
  const lost = (): number[] =>
    readFileSync(`/proc/${rig.proxyPid}/net/udp`, 'utf8')
      .split('\n')
      .filter((line) => line.includes('00000000:0035 '))
      .map((line) => Number(line.trim().split(/\s+/).at(-1)));
  const before = lost();
  agent.heard.length = 0;
  process.kill(rig.proxyPid, 'SIGSTOP');
  try {
    expect(await rig.ask(burst, rig.redirect(FLOODER, 0), { waitMs: 1000 })).toEqual([]);
    expect(lost()).toEqual(before);
  } finally {
    process.kill(rig.proxyPid, 'SIGCONT');
  }
  // It was all there: none is of a flow that was handed to the proxy.
  await eventually(
    () => Promise.resolve(agent.oddities('no-flow')),
    (count) => count === burst.length,
  );
});

it('counts a question that is asked again once', async () => {
  const again = question('again.test');
  await rig.resolver.ask({
    zone: { 'fine.test': [{ type: 'A', ttl: 60, data: '192.0.2.1' }], 'again.test': 'silence' },
  });
  const port = rig.redirect(FLOODER, LISTENER);
  const asked = Array.from({ length: 3 * QUESTIONS }, () => again);
  expect(await rig.ask(asked, port, { waitMs: 100 })).toEqual([]);
  const said = await eventually(
    () => verdicts('again.test'),
    (each) => each.length === 3 * QUESTIONS,
  );
  expect(new Set(said)).toEqual(new Set(['failed']));
});

it('answers what is no question as it should, and goes on', async () => {
  const [good, header] = [question('fine.test'), Buffer.from([0, 9, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0])];
  const answer = Buffer.from(good);
  answer.writeUInt8(0x80 | answer.readUInt8(2), 2);
  const port = rig.redirect(OTHER, LISTENER, 'udp', 6);
  const sent = [Buffer.alloc(0), Buffer.alloc(5), answer, Buffer.alloc(1200, 1), header, good];
  const came = await rig.ask(sent, port, { family: 6, least: 3, waitMs: 500 });
  expect(new Set(came.map(({ hex }) => (packet.decode(Buffer.from(hex, 'hex')) as { rcode?: string }).rcode))).toEqual(
    new Set(['FORMERR', 'NOERROR']),
  );
  expect(came).toHaveLength(3);
});

it('learns nothing from an answer that comes when its pod is gone, and gives it to nobody', async () => {
  const gone = 9;
  agent.say({ type: 'endpoint', endpoint: gone, addresses: ['10.9.1.2'] });
  const known = { type: 'A', ttl: 60, data: '192.0.2.2' };
  await rig.resolver.ask({ zone: { 'held.test': 'held', 'known.test': [known] }, asked: true });
  expect(await rig.ask([question('known.test')], rig.redirect(gone, LISTENER))).toHaveLength(1);
  const asking = rig.ask([question('held.test')], rig.redirect(gone, LISTENER), { waitMs: 1000 });
  let asked: readonly string[] = [];
  await eventually(
    async () => {
      asked = [...asked, ...((await rig.resolver.ask({ asked: true })) as readonly string[])];
      return asked;
    },
    (all) => all.includes('held.test A udp'),
  );
  agent.say({ type: 'endpoint-gone', endpoint: gone });
  await agent.hear((message) => message.type === 'name-gone' && message.endpoint === gone);
  await rig.resolver.ask({ release: true });
  expect(await asking).toEqual([]);
  expect(agent.heard).not.toContainEqual(expect.objectContaining({ type: 'name', name: 'held.test' }));
});

it('closes connections beyond those that a pod may have, and misused ones', async () => {
  const ports = Array.from({ length: CONNECTIONS + 2 }, () => rig.redirect(FLOODER, LISTENER, 'tcp'));
  expect(await rig.pod.ask({ hold: CONNECTIONS, ports, from: '10.9.1.2', to: '10.9.2.2' })).toBe(CONNECTIONS);
  await eventually(
    () => Promise.resolve(agent.oddities('connection')),
    (count) => count >= 2,
  );
  expect(agent.oddities('connection')).toBe(2);
  // A message that is longer than any question.
  const port = rig.redirect(OTHER, LISTENER, 'tcp', 6);
  expect(await rig.ask([Buffer.alloc(5000)], port, { protocol: 'tcp', family: 6 })).toEqual([]);
  expect(await hasAnswered()).toBe(true);
});

it('ends the connection of an agent that says what is no message, and takes the next one', async () => {
  const socket = connect(rig.socket);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.on('error', () => undefined).resume();
  socket.write('{"type":"listener","listener":3,"names":["UPPER"]}\n');
  await closed;
  expect(await hasAnswered()).toBe(true);
  agent = await Agent.connect(rig.socket);
  await agent.hear(({ type }) => type === 'names-complete');
});

it('takes what the agent says of a pod that has more names in its rules than a MiB holds, and what comes after it', async () => {
  const label = 'x'.repeat(60);
  const names = Array.from({ length: 6000 }, (_, at) => `n${at}.${label}.${label}.${label}`);
  const last = LISTENER + 1;
  agent.say({ type: 'listener', listener: 9, names }, { type: 'listener', listener: last, names: ['fine.test'] });
  const came = await eventually(
    async () => await rig.ask([question('fine.test')], rig.redirect(OTHER, last, 'udp', 6), { family: 6, waitMs: 500 }),
    ({ length }) => length > 0,
  );
  expect(came).toHaveLength(1);
});
