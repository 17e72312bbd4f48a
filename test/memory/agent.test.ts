/** What an agent keeps depends on the world as it is, not on how much has happened. */
import { expect, it } from '@jest/globals';
import { labelsKey } from '@weir/labels';
import type { PeerRef, ResolvedRule } from '@weir/policy';
import { tableKey } from '../../node-agent/create-tables.ts';
import {
  Agent,
  APPS,
  type App,
  hashOf,
  IDENTITIES,
  type Input,
  input,
  Node,
  podLabels,
  start,
} from '../../node-agent/datapath/testing/transition-world.ts';
import { Random } from '../chaos/random.ts';
import { type Kept, kept } from './kept.ts';

const EDITS = 2000;
/** In one round. */
const EVERY = 4;

function rules(random: Random): ResolvedRule[] {
  const peer = (): PeerRef =>
    random.pick<() => PeerRef>([
      () => ({ peerSet: hashOf(random.pick(APPS)) }),
      () => ({ entity: random.pick(['cluster', 'all', 'world'] as const) }),
      () => ({ cidr: `192.0.${random.between(0, 255)}.${random.between(0, 255)}/32` }),
      () => ({ cidr: `192.${random.between(0, 255)}.0.0/16`, except: ['192.0.2.64/26'] }),
    ])();
  const ports = [
    { protocol: 'TCP' as const, from: random.between(1, 60_000), to: 60_000 },
    { protocol: 'TCP' as const, name: random.pick(['web', 'db']) },
  ];
  return Array.from({ length: random.between(1, 3) }, (_, index) => ({
    subject: hashOf(random.pick(APPS)),
    direction: random.pick(['ingress', 'egress'] as const),
    verdict: random.pick(['allow', 'allow', 'deny'] as const),
    peers: Array.from({ length: random.between(0, 3) }, peer),
    ...(random.next() < 0.5 ? {} : { ports: [random.pick(ports)] }),
    defaultDeny: random.next() < 0.8,
    cookie: random.between(1, 1_000_000),
    path: `spec[${index}]`,
  }));
}

/** Nobody looks at its packets. */
class QuietNode extends Node {
  override look(): void {
    this.now += 1;
  }
}

/** Pods elsewhere, policies and identities that are there at present, beside those of the final world. */
class Story {
  readonly #random = new Random(11);
  readonly #pods = new Map<string, Input>();
  #named = 0;

  #gone(name: string, input: Input): void {
    this.#pods.set(name, input);
  }

  edit(): Input {
    const random = this.#random;
    const uid = random.pick(['p', 'q', `u${random.between(0, 5)}`]);
    this.#named += 1;
    const id = 400 + (this.#named % 4000);
    const port = { name: random.pick(['web', 'db']), port: random.between(1, 60_000), protocol: 'TCP' as const };
    return random.pick<() => Input>([
      () => input.policy(uid, this.#named, rules(random)),
      () => input.policy(uid, this.#named, rules(random)),
      () => input.policy(uid, this.#named, undefined),
      () => input.peerSet(random.pick(APPS), random.some([...IDENTITIES], random.between(0, 4))),
      () => this.#comes(id, random.pick(APPS)),
      () => this.#comes(id, random.pick(APPS)),
      () => this.#goes(),
      () => this.#goes(),
      () => input.remote(random.between(0, 2), random.pick([undefined, ...IDENTITIES]), [port]),
      () => input.pod(random.between(1, 2), random.pick(APPS), [port]),
      () => input.endpoint(random.between(1, 2), random.next() < 0.7),
    ])();
  }

  /** Back to the world as it began, with two policies. */
  *end(): Generator<Input> {
    for (const gone of this.#pods.values()) yield gone;
    yield input.remote(2, undefined);
    for (let at = 0; at < 6; at += 1) yield input.policy(`u${at}`, 1, undefined);
    yield* start();
  }

  #comes(id: number, app: App): Input {
    const name = `come-${id}`;
    const labels = { ...podLabels(app), 'k8s:version': `v${id}` };
    this.#gone(name, (tables, db) =>
      db.write([tables.identities, tables.remoteEndpoints], (txn) => {
        txn.delete(tables.identities, tableKey.identity(id));
        txn.delete(tables.remoteEndpoints, tableKey.pod('ns', name));
      }),
    );
    return (tables, db) =>
      db.write([tables.identities, tables.remoteEndpoints], (txn) => {
        txn.upsert(tables.identities, { id, labels, labelsKey: labelsKey(labels) });
        txn.upsert(tables.remoteEndpoints, {
          namespace: 'ns',
          name,
          addresses: [`10.0.${10 + Math.floor(id / 200)}.${1 + (id % 200)}`],
          identity: id,
          node: '203.0.113.7',
          namedPorts: [],
        });
      });
  }

  #goes(): Input {
    if (this.#pods.size === 0) return () => undefined;
    const name = this.#random.pick([...this.#pods.keys()]);
    const gone = this.#pods.get(name) as Input;
    this.#pods.delete(name);
    return gone;
  }
}

const FINAL: readonly Input[] = [
  input.policy('p', 100_000, [
    {
      subject: hashOf('a'),
      direction: 'ingress',
      verdict: 'allow',
      peers: [{ peerSet: hashOf('b') }, { cidr: '192.0.2.0/24' }],
      defaultDeny: true,
      cookie: 1,
      path: 'spec',
    },
  ]),
  input.policy('q', 100_000, undefined),
];

/** The kernel, and timers, which are linked with all others. */
const NOT_OURS = new Set(['MemoryMap', 'QuietNode', 'Timeout']);
/** Once for each table that was ever written. */
const FIXED = /^(new )?(Draft|Marker)\b|^TableStore\.#committed\./;

/** Until nothing is left to be done, by the passing of time either. */
async function rest(node: Node, agent: Agent): Promise<void> {
  for (let round = 0; round < 20; round += 1) {
    node.now += 600_000;
    await agent.round();
  }
  node.begin();
}

function sizes(node: Node, agent: Agent): Kept {
  const { watchesFired: _, ...stats } = agent.db.stats();
  const maps = Object.entries(node.maps).map(([name, map]) => [`map ${name}`, [...map.keys()].length]);
  return {
    ...Object.fromEntries(maps),
    ...Object.fromEntries(agent.db.tables().map(({ name, rows }) => [`table ${name}`, rows])),
    ...stats,
    ...Object.fromEntries(Object.entries(kept({ agent }, NOT_OURS)).filter(([name]) => !FIXED.test(name))),
  };
}

it('an agent that has seen thousands of edits keeps as much as one that began with the final world', async () => {
  const node = new QuietNode();
  const agent = await Agent.start(node, start());
  await rest(node, agent);
  const active = process.getActiveResourcesInfo().length;
  const story = new Story();
  for (let edit = 0; edit < EDITS; edit += EVERY) {
    node.begin();
    agent.apply(Array.from({ length: EVERY }, () => story.edit()));
    node.now += 700;
    await agent.round();
  }
  agent.apply([...story.end(), ...FINAL]);
  await rest(node, agent);
  const before = new QuietNode();
  const fresh = await Agent.start(before, [...start(), ...FINAL]);
  await rest(before, fresh);
  const sized = sizes(before, fresh);
  expect(Object.keys(sized).length).toBeGreaterThan(100);
  expect(sizes(node, agent)).toEqual(sized);
  expect(process.getActiveResourcesInfo().length).toBeLessThanOrEqual(active);
  await agent.end();
  await fresh.end();
});
