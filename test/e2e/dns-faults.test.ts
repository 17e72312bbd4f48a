/** Agent and DNS proxy are killed at any point while pods ask and connect: no packet passes that must not, and none is lost that an answer promised. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';

const SECONDS = process.env.CI ? 40 : 15;
const SEED = Math.floor(Math.random() * 2 ** 31);
const HOSTS = 12;
/** Each name has an address of its own; those of the first zone are allowed. */
const addressOf = (zone: number, index: number): string => `198.51.${zone}.${index + 1}`;
const zoneOf = (zone: number, domain: string) =>
  Object.fromEntries(Array.from({ length: HOSTS }, (_, at) => [`h${at}.${domain}`, [addressOf(zone, at)]]));

const policy = {
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'names', namespace: 'default' },
  spec: {
    endpointSelector: { matchLabels: { app: 'client' } },
    egress: [
      {
        toEndpoints: [{ matchLabels: { app: 'dns' } }],
        toPorts: [
          {
            ports: [{ port: '53', protocol: 'ANY' }],
            rules: { dns: [{ matchPattern: '*.allowed.example' }, { matchPattern: '*.asked.example' }] },
          },
        ],
      },
      { toFQDNs: [{ matchPattern: '*.allowed.example' }], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }] },
    ],
  },
};

let cluster: Cluster;
beforeAll(async () => {
  const outside = [100, 101].flatMap((zone) => Array.from({ length: HOSTS }, (_, at) => addressOf(zone, at)));
  cluster = await Cluster.start({ outside, dnsProxies: true });
  await cluster.createPods([
    { name: 'client', labels: { app: 'client' }, node: 1 },
    { name: 'near', labels: { app: 'dns' }, node: 1 },
    { name: 'far', labels: { app: 'dns' }, node: 2 },
  ]);
  for (const name of ['near', 'far'])
    await (await cluster.host(name)).process.names({
      ...zoneOf(100, 'allowed.example'),
      ...zoneOf(101, 'asked.example'),
      ...zoneOf(101, 'secret.example'),
    });
  await cluster.applyObjects([policy]);
  await cluster.programmed('cnp/names');
});
afterAll(() => cluster?.stop());

/** Numbers from 0 up to 1, the same for each seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return state / 2 ** 32;
  };
}

it(`for ${SECONDS} s (seed ${SEED})`, async () => {
  const random = randomOf(SEED);
  const { process: client } = await cluster.host('client');
  const servers = await Promise.all(['near', 'far'].map(async (name) => (await cluster.host(name)).address));
  const node = cluster.node(1);
  const wrong: string[] = [];
  const seen = { answered: 0, unanswered: 0, refused: 0, reached: 0, dropped: 0 };
  const end = Date.now() + SECONDS * 1000;
  /** On a busy machine it takes longer until each has been seen often. */
  const goesOn = (): boolean =>
    Date.now() < end ||
    (wrong.length === 0 &&
      [seen.answered, seen.refused, seen.reached, seen.dropped].some((count) => count <= SECONDS / 2));
  /** The last fault, for who reads of something wrong. */
  let fault = 'none';
  const probe = (address: string) => client.probe({ protocol: 'tcp', address, port: 80, timeoutMs: 1500 });
  const ask = async (server: string, name: string) => {
    const answer = await client.lookUp({ server, name, type: 'A', timeoutMs: 800 });
    return String(answer);
  };
  const askers = servers.map(async (server, which) => {
    for (let at = which; goesOn(); at += 1) {
      const index = at % HOSTS;
      const allowed = await ask(server, `h${index}.allowed.example`);
      if (allowed === addressOf(100, index)) {
        seen.answered += 1;
        const result = await probe(allowed);
        if (result === 'reached') seen.reached += 1;
        else wrong.push(`${allowed} was answered, and ${result}, after: ${fault}`);
      } else if (allowed === 'ETIMEOUT') seen.unanswered += 1;
      else wrong.push(`h${index}.allowed.example: ${allowed}, after: ${fault}`);
      const secret = await ask(server, `h${index}.secret.example`);
      if (secret === 'EREFUSED') seen.refused += 1;
      else if (secret !== 'ETIMEOUT') wrong.push(`h${index}.secret.example: ${secret}, after: ${fault}`);
      const asked = await ask(server, `h${index}.asked.example`);
      if (asked !== 'ETIMEOUT' && asked !== addressOf(101, index))
        wrong.push(`h${index}.asked.example: ${asked}, after: ${fault}`);
    }
  });
  const attacker = (async () => {
    for (let at = 0; goesOn(); at += 1) {
      const address = addressOf(101, at % HOSTS);
      const result = await client.probe({ protocol: 'tcp', address, port: 80, timeoutMs: 100 });
      if (result === 'dropped') seen.dropped += 1;
      else wrong.push(`${address}: ${result}, after: ${fault}`);
    }
  })();
  const killers = (async () => {
    while (goesOn()) {
      await sleep(random() * 1500);
      // Every other time not before the one of last time has answered.
      const { answered } = seen;
      if (random() < 0.5) while (seen.answered === answered && goesOn()) await sleep(10);
      const [agent, proxy] = [random() < 0.5, random() < 0.6];
      fault = `${agent ? 'agent ' : ''}${proxy ? 'proxy ' : ''}killed at ${new Date().toISOString()}`;
      await Promise.all([agent && node.agent.kill9(), proxy && node.dnsProxy.kill9()]);
      await sleep(random() * 500);
      if (proxy) node.launchDnsProxy();
      if (agent) await node.startAgent();
    }
  })();
  await Promise.all([...askers, attacker, killers]);
  expect(wrong).toEqual([]);
});
