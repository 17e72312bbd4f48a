/** Rounds in which rules change and addresses go over to other identities: no packet may meet what never was. */
import { describe, expect, it } from '@jest/globals';
import type { ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { Agent, APPS, type App, hashOf, type Input, input, Node, PROBES } from './testing/transition-world.ts';

const START = APPS.map((_, index) => 300 + index);
/** Identities that nobody knows before the round. */
const NEW = APPS.map((_, index) => 310 + index);

const members = (app: App, also: readonly number[]): Input =>
  input.peerSet(
    app,
    [START[APPS.indexOf(app)] ?? 0, ...also].sort((a, b) => a - b),
  );

function start(): Input[] {
  return [
    input.base(),
    ...APPS.flatMap((app, index) => [members(app, []), input.identity(START[index] ?? 0, app)]),
    input.remote(0, 300),
    input.remote(1, 301),
    input.pod(1, 'a'),
    input.pod(2, 'b'),
    input.endpoint(1, true),
    input.endpoint(2, true),
  ];
}

/** Pods that are relabelled: of other nodes to labels that nobody had, of this node. */
interface Round {
  readonly rules: readonly ResolvedRule[] | undefined;
  readonly remote: readonly { readonly index: number; readonly app: App | undefined }[];
  readonly local: readonly { readonly id: number; readonly app: App }[];
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
  remote: fc.uniqueArray(fc.record({ index: fc.nat(2), app: fc.option(app, { freq: 6, nil: undefined }) }), {
    minLength: 1,
    maxLength: 2,
    selector: ({ index }) => index,
  }),
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

/** Plays a round; throws where a verdict is none of: before; by the new rules, of whom the peers were; after. */
async function play(before: readonly ResolvedRule[], { rules: after, remote, local }: Round): Promise<void> {
  const node = new Node();
  const history = [...start(), input.policy('p', 1, before)];
  const agent = await Agent.start(node, history);
  await agent.round();
  const first = node.verdicts();
  // What each endpoint is to enforce, and who the peers that nobody knows yet will be.
  const ruling = [
    ...APPS.flatMap((each, index) => [members(each, [NEW[index] ?? 0]), input.identity(NEW[index] ?? 0, each)]),
    input.policy('p', 2, after),
  ];
  const relabelled = local.map(({ id, app: labels }) => input.pod(id, labels));
  const moves = remote.map(({ index, app: labels }) =>
    input.remote(index, labels === undefined ? undefined : NEW[APPS.indexOf(labels)]),
  );
  const between = [await settled([...history, ...ruling]), await settled([...history, ...ruling, ...relabelled])];
  node.begin();
  agent.apply([...ruling, ...relabelled, ...moves]);
  await agent.round();
  const last = node.verdicts();
  for (const { endpoint, verdicts, operation } of node.log) {
    for (const [index, verdict] of verdicts.entries()) {
      if ([first, ...between, last].some((each) => each.get(endpoint)?.[index] === verdict)) continue;
      throw new Error(
        `after "${operation}" endpoint ${endpoint} ${verdict ? 'allows' : 'drops'} ${JSON.stringify(PROBES[index])}`,
      );
    }
  }
  expect(node.problems).toEqual([]);
  expect(node.overstaying()).toEqual([]);
  expect(agent.failing).toEqual([]);
  await agent.end();
  expect(last).toEqual(await settled([...history, ...ruling, ...relabelled, ...moves]));
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

  it('drops nothing of a pod that the rules before it and after it allow by labels that nobody had', async () => {
    await play([allow('a', 1), allow('b', 2)], {
      rules: [allow('a', 1), allow('b', 2), allow('c', 3)],
      remote: [{ index: 0, app: 'b' }],
      local: [],
    });
  });

  it('lets nothing through of a pod that the rules before it and after it deny by labels that nobody had', async () => {
    const denied = [
      everybody,
      { ...allow('b', 2), verdict: 'deny' as const },
      { ...allow('c', 3), verdict: 'deny' as const },
    ];
    await play(denied, { rules: [...denied, allow('d', 4)], remote: [{ index: 1, app: 'c' }], local: [] });
  });

  it('gives each packet a verdict of rules and peers as they were at some moment', async () => {
    await fc.assert(fc.asyncProperty(rules, round, play), { numRuns: 25, endOnFailure: true });
  });
});
