/** Policies that change while no agent runs: what the first plan of the next one lets through and drops on its way. */
import { describe, expect, it } from '@jest/globals';
import type { PeerRef, ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { runs, sample } from '../../test/runs.ts';
import { words } from './testing/kernel-view.ts';
import { Agent, hashOf, type Input, input, Node, PROBES, start } from './testing/transition-world.ts';

/**
 * What a policy says next. `crash`: the agent that comes then dies at this map operation; `meanwhile`: what the policy says after that; `lost`: the file of
 * numbers is, by then.
 */
interface Edit {
  readonly uid: 'p' | 'q';
  readonly rules: readonly ResolvedRule[] | undefined;
  readonly crash: number | undefined;
  readonly meanwhile: readonly ResolvedRule[] | undefined;
  readonly lost: boolean;
}

type Verdicts = ReturnType<Node['verdicts']>;

const rule = (fields: Partial<ResolvedRule>): ResolvedRule => ({
  subject: hashOf('a'),
  direction: 'ingress',
  verdict: 'allow',
  peers: [],
  defaultDeny: true,
  cookie: 1,
  path: 'spec[0]',
  ...fields,
});

/** Lives of agents on one node; between two of them nobody is there. */
class Lives {
  readonly node = new Node();
  readonly history: Input[];

  constructor(inputs: readonly Input[]) {
    this.history = [...start(), ...inputs];
  }

  /** An agent comes, and stops once all is done, or dies. Returns whether it did. */
  async live(operations = Number.POSITIVE_INFINITY): Promise<boolean> {
    const agent = await Agent.start(this.node, this.history, operations);
    await agent.round();
    const { dead } = agent;
    if (!dead) expect(agent.failing).toEqual([]);
    await agent.end();
    return dead;
  }

  /** Plays edits while no agent runs; returns what an agent then does wrong on its way. */
  async edited(
    edits: readonly Input[],
    { crash, meanwhile = [], lost = false }: { crash?: number; meanwhile?: readonly Input[]; lost?: boolean } = {},
  ): Promise<string[]> {
    const { node, history } = this;
    const settled = [node.verdicts()];
    node.now += 5000;
    node.begin();
    history.push(...edits);
    if (crash !== undefined && (await this.live(crash))) {
      if (meanwhile.length > 0) settled.push(await verdictsOf(history));
      history.push(...meanwhile);
      if (lost) node.numbers = { cidrs: {}, labels: {}, nodes: {}, revisions: 0 };
    }
    await this.live();
    settled.push(node.verdicts());
    return [...wrong(node, settled), ...node.problems, ...node.overstaying().map((flow) => `stays ${flow}`)];
  }
}

/** What an agent that knows nothing else comes to. */
async function verdictsOf(inputs: readonly Input[]): Promise<Verdicts> {
  const node = new Node();
  const agent = await Agent.start(node, inputs);
  await agent.round();
  await agent.end();
  return node.verdicts();
}

/** Verdicts on the way that no settled state gives. */
function wrong(node: Node, settled: readonly Verdicts[]): string[] {
  const found = new Set<string>();
  for (const { endpoint, verdicts, operation } of node.log) {
    const right = settled.map((each) => each.get(endpoint));
    for (const [index, verdict] of verdicts.entries()) {
      if (right.some((each) => each?.[index] === verdict)) continue;
      const what = `${endpoint} ${verdict ? 'allows' : 'drops'} ${JSON.stringify(PROBES[index])}`;
      found.add(`after "${operation}" endpoint ${what}`);
    }
  }
  return [...found];
}

const peer: fc.Arbitrary<PeerRef> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.constantFrom(
      { cidr: '0.0.0.0/0' },
      { cidr: '0.0.0.0/0', except: ['10.0.0.0/8', '192.0.2.0/24'] },
      { cidr: '192.0.2.0/24' },
      { cidr: '192.0.2.0/24', except: ['192.0.2.64/26'] },
      { cidr: '192.0.0.0/8', except: ['192.0.2.0/25'] },
      { cidr: '192.0.2.5/32' },
      { cidr: '192.0.2.64/26' },
      { cidr: '198.51.100.0/24' },
      { cidr: '203.0.113.0/24' },
      { cidr: '10.0.0.0/8', except: ['10.0.1.0/24'] },
    ),
  },
  { weight: 1, arbitrary: fc.constantFrom({ entity: 'all' as const }, { entity: 'world' as const }) },
  { weight: 1, arbitrary: fc.constantFrom('a', 'b', 'c').map((app) => ({ peerSet: hashOf(app as 'a') })) },
);
const ports = fc.subarray(
  [
    { protocol: 'TCP' as const, from: 80, to: 80 },
    { protocol: 'TCP' as const, from: 1, to: 65535 },
    { protocol: 'UDP' as const, from: 53, to: 53 },
  ],
  { minLength: 1, maxLength: 2 },
);
const rules: fc.Arbitrary<ResolvedRule[]> = fc
  .array(
    fc.record({
      subject: fc.constantFrom(hashOf('a'), hashOf('a'), hashOf('b')),
      direction: fc.constantFrom('ingress' as const, 'egress' as const),
      verdict: fc.constantFrom('allow' as const, 'allow' as const, 'deny' as const),
      peers: fc.array(peer, { minLength: 1, maxLength: 2 }),
      ports: fc.option(ports, { nil: undefined, freq: 2 }),
      defaultDeny: fc.boolean(),
    }),
    { minLength: 1, maxLength: 3 },
  )
  .map((list) =>
    list.map(({ ports: numbers, ...rest }, index) => ({
      ...rest,
      ...(numbers === undefined ? {} : { ports: numbers }),
      cookie: index + 1,
      path: `spec[${index}]`,
    })),
  );
const edit: fc.Arbitrary<Edit> = fc.record({
  uid: fc.constantFrom('p' as const, 'p' as const, 'q' as const),
  rules: fc.option(rules, { nil: undefined, freq: 8 }),
  crash: fc.option(fc.nat(30), { nil: undefined, freq: 2 }),
  meanwhile: fc.option(rules, { nil: undefined, freq: 2 }),
  lost: fc.boolean(),
});

async function play(first: readonly ResolvedRule[], edits: readonly Edit[]): Promise<void> {
  const lives = new Lives([input.policy('p', 1, first)]);
  await lives.live();
  for (const [at, { uid, rules: next, crash, meanwhile, lost }] of edits.entries()) {
    const after = meanwhile === undefined ? [] : [input.policy(uid, 3 + 2 * at, meanwhile)];
    const dying = crash === undefined ? {} : { crash, meanwhile: after, lost };
    expect(await lives.edited([input.policy(uid, 2 + 2 * at, next)], dying)).toEqual([]);
    const before = words(lives.node.maps);
    expect(await lives.edited([])).toEqual([]);
    expect(words(lives.node.maps)).toEqual(before);
  }
  expect(lives.node.verdicts()).toEqual(await verdictsOf(lives.history));
}

describe('a policy that is edited while no agent runs', () => {
  const within = (except: readonly string[]) => ({ cidr: '0.0.0.0/0', except: [...except] });
  const traces: readonly [string, readonly ResolvedRule[], readonly ResolvedRule[]][] = [
    [
      'names exceptions for the first time, and more ports',
      [rule({ peers: [within([])], ports: [{ protocol: 'TCP', from: 1, to: 65535 }] })],
      [rule({ peers: [within(['10.0.0.0/8', '192.0.2.0/24'])] })],
    ],
    [
      'allows one port of a range that it denied as a part of another',
      [rule({ direction: 'egress', verdict: 'deny', defaultDeny: false, peers: [within(['10.0.0.0/8'])] })],
      [
        rule({
          direction: 'egress',
          peers: [{ cidr: '198.51.100.0/24' }],
          ports: [{ protocol: 'TCP', from: 80, to: 80 }],
        }),
      ],
    ],
    [
      'allows a range but for a part of it that it allowed, and everybody else',
      [rule({ peers: [{ cidr: '192.0.2.0/24' }] })],
      [rule({ peers: [{ cidr: '192.0.2.0/24', except: ['192.0.2.64/26'] }] }), rule({ peers: [{ entity: 'all' }] })],
    ],
  ];

  it.each(traces)('%s: no packet meets what neither of the two says', async (_, before, after) => {
    for (const crash of sample(Array.from({ length: 20 }, (_, at) => at))) {
      const lives = new Lives([input.policy('p', 1, before)]);
      await lives.live();
      const meanwhile = crash % 2 === 0 ? [] : [input.policy('p', 3, before)];
      const dying = crash === 0 ? {} : { crash, meanwhile, lost: crash % 4 > 1 };
      expect(await lives.edited([input.policy('p', 2, after)], dying)).toEqual([]);
    }
  });

  it('gives every packet a verdict of before or after, whatever the rules say and wherever the next agent dies', async () => {
    await fc.assert(fc.asyncProperty(rules, fc.array(edit, { minLength: 1, maxLength: 3 }), play), {
      numRuns: runs(25),
      endOnFailure: true,
    });
  });
});

describe('an agent that starts and finds its rules unchanged', () => {
  /** Rules with ranges, exceptions and the API server, which is on a node: its own number is one that no address has. */
  const inputs = [
    input.policy('p', 1, [
      rule({ peers: [{ cidr: '0.0.0.0/0', except: ['192.0.2.0/24', '10.0.0.0/8'] }] }),
      rule({ direction: 'egress', cookie: 2, peers: [{ cidr: '203.0.113.7/32' }, { entity: 'kube-apiserver' }] }),
      rule({ direction: 'egress', verdict: 'deny', cookie: 3, peers: [{ peerSet: hashOf('c') }] }),
    ]),
    input.policy('q', 1, [rule({ subject: hashOf('b'), peers: [{ cidr: '203.0.113.7/32' }] })]),
    ((tables, db) =>
      db.write([tables.apiserverAddresses], (txn) =>
        txn.upsert(tables.apiserverAddresses, { address: '203.0.113.7' }),
      )) satisfies Input,
  ];

  it.each<[string, Input[]]>([
    ['', []],
    [', though pods have come', [input.identity(310, 'c'), input.peerSet('c', [302, 310]), input.remote(2, 310)]],
  ])('takes all slots over%s', async (_, come) => {
    const lives = new Lives(inputs);
    await lives.live();
    const before = lives.node.placing().slots;
    expect(new Set(before.values()).size).toBe(2);
    expect(await lives.edited(come)).toEqual([]);
    expect(lives.node.placing().slots).toEqual(before);
    expect(lives.node.log.filter(({ operation }) => operation.startsWith('setInner'))).toEqual([]);
  });
});
