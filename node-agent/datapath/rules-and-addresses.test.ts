/** Rounds in which rules change and addresses go over to other identities: no packet may meet what never was. */
import { describe, expect, it } from '@jest/globals';
import type { ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import {
  Agent,
  APPS,
  type App,
  hashOf,
  IDENTITIES,
  type Input,
  input,
  Node,
  PROBES,
  start,
} from './testing/transition-world.ts';

/** Identities that nobody knows before the round. */
const NEW = APPS.map((_, index) => 310 + index);

const members = (app: App, also: readonly number[]): Input =>
  // Ascending: the new ones are greater.
  input.peerSet(app, [IDENTITIES[APPS.indexOf(app)] ?? 0, ...also]);

/** Pods that are relabelled: of other nodes to labels that nobody had, of this node. */
interface Round {
  readonly rules: readonly ResolvedRule[] | undefined;
  readonly remote: readonly { readonly index: number; readonly app: App | undefined; readonly fresh: boolean }[];
  readonly local: readonly { readonly id: number; readonly app: App }[];
  readonly also?: readonly Input[];
}

const app = fc.constantFrom<App>(...APPS);
const rules: fc.Arbitrary<ResolvedRule[]> = fc
  .array(
    fc.record({
      subject: app.map(hashOf),
      direction: fc.constantFrom('ingress' as const, 'egress' as const),
      verdict: fc.constantFrom('allow' as const, 'allow' as const, 'deny' as const),
      peers: fc.option(fc.array(app, { maxLength: 3 }), { nil: undefined }),
      defaultDeny: fc.boolean(),
    }),
    { minLength: 1, maxLength: 4 },
  )
  .map((list) =>
    list.map(({ peers, ...rest }, index) => ({
      ...rest,
      ...(peers === undefined ? {} : { peers: peers.map((each) => ({ peerSet: hashOf(each) })) }),
      cookie: index + 1,
      path: `spec[${index}]`,
    })),
  );
const round: fc.Arbitrary<Round> = fc.record({
  rules: fc.option(rules, { freq: 8, nil: undefined }),
  remote: fc.uniqueArray(
    fc.record({ index: fc.nat(2), app: fc.option(app, { freq: 2, nil: undefined }), fresh: fc.boolean() }),
    {
      minLength: 1,
      maxLength: 2,
      selector: ({ index }) => index,
    },
  ),
  local: fc.uniqueArray(fc.record({ id: fc.constantFrom(1, 2), app }), { maxLength: 1, selector: ({ id }) => id }),
});

async function settled(history: readonly Input[]): Promise<Map<number, boolean[]>> {
  const node = new Node();
  const agent = await Agent.start(node, history);
  await agent.round();
  const verdicts = node.verdicts();
  await agent.end();
  return verdicts;
}

/**
 * Plays a round: nobody knows which of its changes was first in the world. Throws where a packet passes that is let through neither before it nor after
 * it or, with `strict`, is dropped that passes before and after.
 */
async function play(
  before: readonly ResolvedRule[],
  { rules: after, remote, local, also = [] }: Round,
  strict = false,
): Promise<void> {
  const node = new Node();
  const history = [...start(), input.policy('p', 1, before)];
  const agent = await Agent.start(node, history);
  await agent.round();
  const first = node.verdicts();
  const changes = [
    ...APPS.flatMap((each, index) => [members(each, [NEW[index] ?? 0]), input.identity(NEW[index] ?? 0, each)]),
    input.policy('p', 2, after),
    ...also,
    ...local.map(({ id, app: labels }) => input.pod(id, labels)),
    ...remote.map(({ index, app: labels, fresh }) =>
      input.remote(index, labels === undefined ? undefined : (fresh ? NEW : IDENTITIES)[APPS.indexOf(labels)]),
    ),
  ];
  node.begin();
  agent.apply(changes);
  await agent.round();
  const last = node.verdicts();
  for (const { endpoint, verdicts, operation } of node.log) {
    for (const [index, verdict] of verdicts.entries()) {
      const probe = PROBES[index];
      const [was, is] = [first.get(endpoint)?.[index], last.get(endpoint)?.[index]];
      if (verdict ? was || is : !strict || !was || !is) continue;
      throw new Error(
        `after "${operation}" endpoint ${endpoint} ${verdict ? 'allows' : 'drops'} ${JSON.stringify(probe)}`,
      );
    }
  }
  expect(node.problems).toEqual([]);
  expect(node.overstaying()).toEqual([]);
  expect(agent.failing).toEqual([]);
  await agent.end();
  expect(last).toEqual(await settled([...history, ...changes]));
}

describe('a round in which rules change and pods get other labels', () => {
  const allow = (name: App, cookie: number): ResolvedRule => ({
    subject: hashOf('a'),
    direction: 'ingress',
    verdict: 'allow',
    peers: [{ peerSet: hashOf(name) }],
    defaultDeny: true,
    cookie,
    path: `spec[${cookie}]`,
  });
  const { peers: _, ...everybody } = allow('a', 9);

  const denied = [
    everybody,
    { ...allow('b', 2), verdict: 'deny' as const },
    { ...allow('c', 3), verdict: 'deny' as const },
  ];
  const noNode: Input = (tables, db) =>
    db.write([tables.nodes], (txn) => {
      txn.upsert(tables.nodes, { name: 'other', addresses: [], podCidrs: ['10.0.0.0/16'], kubeApiserver: false });
    });
  const gone = { remote: [{ index: 1, app: undefined, fresh: false }], local: [] };
  const to = (name: App, fresh: boolean, index = 1) => ({ remote: [{ index, app: name, fresh }], local: [] });
  it.each<readonly [string, readonly ResolvedRule[], Round]>([
    [
      'the rules before it and after it allow it, by labels that nobody had',
      [allow('a', 1), allow('b', 2)],
      { rules: [allow('a', 1), allow('b', 2), allow('c', 3)], ...to('b', true, 0) },
    ],
    ['they deny it, by labels that nobody had', denied, { rules: [...denied, allow('d', 4)], ...to('c', true) }],
    [
      'the labels change, then the rule of the labels before goes: deny',
      denied,
      { rules: denied.toSpliced(1, 1), ...to('c', false) },
    ],
    ['the same: allow', [allow('b', 2), allow('c', 3)], { rules: [allow('c', 3)], ...to('c', false) }],
    [
      'the rule comes, then the labels that it is about: deny',
      denied.slice(0, 2),
      { rules: denied, ...to('c', false) },
    ],
    ['the same: allow', [allow('b', 2)], { rules: [allow('b', 2), allow('c', 3)], ...to('c', false) }],
    [
      'the address of a node goes, then rules come that name it as a CIDR',
      [{ ...allow('a', 1), peers: [{ entity: 'world' as const }] }],
      {
        rules: [allow('c', 2), { ...allow('c', 3), subject: hashOf('b'), peers: [{ cidr: '203.0.113.7/32' }] }],
        remote: [],
        local: [],
        also: [noNode],
      },
    ],
    ['it goes, then rules come that name it: allow', [allow('c', 2)], { rules: [allow('b', 3)], ...gone }],
    [
      'the same of what nobody was denied: deny',
      [{ ...allow('c', 2), verdict: 'deny' as const, defaultDeny: false }],
      { rules: [{ ...allow('b', 3), verdict: 'deny' as const, defaultDeny: false }], ...gone },
    ],
  ])('where %s, a pod is judged all the time as before and after', (_, before, change) => play(before, change, true));

  it('judges every packet as before it or as after it', async () => {
    await fc.assert(
      fc.asyncProperty(rules, round, (before, change) => play(before, change, true)),
      { numRuns: runs(25), endOnFailure: true },
    );
  });
});
