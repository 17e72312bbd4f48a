import { describe, expect, it } from '@jest/globals';
import { scopeOf } from '@weir/identity';
import type { PeerRef, ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { runs, sample } from '../../test/runs.ts';
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
  REMOTE,
  start,
} from './testing/transition-world.ts';

interface Step {
  readonly name: string;
  readonly inputs: readonly Input[];
  /** Milliseconds until the next. */
  readonly wait: number;
  /** Dies at this map operation of the step. */
  readonly crash: number | undefined;
}

const app = fc.constantFrom<App>(...APPS);
const some = fc.subarray([...IDENTITIES]);
const peer: fc.Arbitrary<PeerRef> = fc.oneof(
  { weight: 4, arbitrary: app.map((each) => ({ peerSet: hashOf(each) })) },
  { weight: 1, arbitrary: fc.constant({ entity: 'cluster' as const }) },
  { weight: 1, arbitrary: fc.constant({ entity: 'all' as const }) },
  { weight: 1, arbitrary: fc.constant({ entity: 'world' as const }) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      { cidr: '192.0.2.0/24', except: ['192.0.2.64/26'] },
      { cidr: '192.0.2.5/32' },
      { cidr: '0.0.0.0/0' },
    ),
  },
);
const ports = fc.option(
  fc.subarray(
    [
      { protocol: 'TCP' as const, from: 80, to: 80 },
      { protocol: 'TCP' as const, from: 400, to: 500 },
      { protocol: 'UDP' as const, from: 53, to: 53 },
      { protocol: 'TCP' as const, name: 'web' },
    ],
    { minLength: 1 },
  ),
  { nil: undefined },
);
/** Container ports of a pod: what the rules' port name means there. */
const containerPorts = fc
  .subarray([80, 443])
  .map((list) => list.map((port) => ({ name: 'web', port, protocol: 'TCP' as const })));
const rules: fc.Arbitrary<ResolvedRule[]> = fc
  .array(
    fc.record({
      subject: app.map(hashOf),
      direction: fc.constantFrom('ingress' as const, 'egress' as const),
      verdict: fc.constantFrom('allow' as const, 'allow' as const, 'deny' as const),
      peers: fc.option(fc.array(peer, { maxLength: 2 }), { nil: undefined }),
      ports,
      defaultDeny: fc.boolean(),
    }),
    { minLength: 1, maxLength: 3 },
  )
  .map((list) =>
    list.map(({ peers, ports: wanted, ...rest }, index) => ({
      ...rest,
      ...(peers === undefined ? {} : { peers }),
      ...(wanted === undefined ? {} : { ports: wanted }),
      cookie: index + 1,
      path: `spec[${index}]`,
    })),
  );

let generation = 0;
const change: fc.Arbitrary<{ name: string; inputs: Input[] }> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.tuple(fc.constantFrom('p', 'q'), fc.option(rules, { freq: 4, nil: undefined })).map(([uid, list]) => {
      generation += 1;
      return { name: `policy ${uid} ${JSON.stringify(list)}`, inputs: [input.policy(uid, generation, list)] };
    }),
  },
  {
    weight: 3,
    arbitrary: fc
      .tuple(app, some)
      .map(([each, ids]) => ({ name: `set ${each} ${ids.join()}`, inputs: [input.peerSet(each, ids)] })),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.constantFrom(...IDENTITIES), fc.option(app, { freq: 2, nil: undefined }))
      .map(([id, each]) => ({ name: `identity ${id} ${each}`, inputs: [input.identity(id, each)] })),
  },
  {
    weight: 3,
    arbitrary: fc
      .tuple(fc.nat(REMOTE.length - 1), fc.option(fc.constantFrom(...IDENTITIES), { nil: undefined }), containerPorts)
      .map(([index, id, list]) => ({
        name: `remote ${index} ${id} ${list.map(({ port }) => port).join()}`,
        inputs: [input.remote(index, id, list)],
      })),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.constantFrom(1, 2), app, containerPorts).map(([id, each, list]) => ({
      name: `pod ${id} ${each} ${list.map(({ port }) => port).join()}`,
      inputs: [input.pod(id, each, list)],
    })),
  },
  {
    weight: 1,
    arbitrary: fc
      .tuple(fc.constantFrom(1, 2), fc.boolean())
      .map(([id, present]) => ({ name: `endpoint ${id} ${present}`, inputs: [input.endpoint(id, present)] })),
  },
);

function steps(changes: number): fc.Arbitrary<Step[]> {
  return fc.array(
    fc
      .record({
        changes: fc.array(change, { minLength: 1, maxLength: changes }),
        wait: fc.constantFrom(0, 100, 1500),
        crash: fc.option(fc.nat(20), { nil: undefined, freq: 3 }),
      })
      .map(({ changes: list, ...rest }) => ({
        ...rest,
        name: list.map(({ name }) => name).join('; '),
        inputs: list.flatMap((each) => each.inputs),
        [fc.toStringMethod]: () =>
          `${list.map(({ name }) => name).join('; ')} (wait ${rest.wait}, crash ${rest.crash})`,
      })),
    { minLength: 2, maxLength: 8 },
  );
}

/** Plays the trace; throws where a verdict is neither the old nor the new one. */
async function play(trace: readonly Step[], work?: number): Promise<void> {
  const node = new Node();
  node.work = work;
  const history = start();
  let agent = await Agent.start(node, history);
  await agent.round();
  let before = node.verdicts();
  let placed = node.placing();
  for (const step of trace) {
    node.now += step.wait;
    node.begin();
    if (step.crash !== undefined) agent.doom(step.crash);
    agent.apply(step.inputs);
    history.push(...step.inputs);
    await agent.round();
    let lost = false;
    const died = agent.dead;
    if (died) {
      lost = agent.waits;
      await agent.end();
      agent = await Agent.start(node, history);
      await agent.round();
    } else agent.doom(Number.POSITIVE_INFINITY);
    const after = node.verdicts();
    const now = node.placing();
    for (const { endpoint, verdicts, operation } of node.log) {
      const old = before.get(endpoint);
      const wanted = after.get(endpoint);
      // What was in force only until its successor is known dies with the agent that knew it.
      if (wanted === undefined || lost || (step.crash !== undefined && agent.waits)) continue;
      for (const [index, verdict] of verdicts.entries()) {
        if (verdict === wanted[index] || (old !== undefined && verdict === old[index])) continue;
        // An address that was changing when the agent died is unknown until the next one knows.
        const unknown = died && !verdict;
        // Which port names the pod had whose address goes is not known to the successor of an agent that died: it cannot wait.
        const forgotten = died && agent.usesPortNames;
        if ((unknown || forgotten) && renamed(placed.identities[index], now.identities[index])) continue;
        throw new Error(
          `${step.name}: after "${operation}" endpoint ${endpoint} ${verdict ? 'allows' : 'drops'} ${JSON.stringify(PROBES[index])}`,
        );
      }
    }
    expect(node.problems).toEqual([]);
    expect(node.overstaying()).toEqual([]);
    expect(agent.failing).toEqual([]);
    before = after;
    placed = now;
  }
  if (!agent.waits) {
    const other = new Node();
    const fresh = await Agent.start(other, history);
    await fresh.round();
    expect(named(other.verdicts())).toEqual(named(before));
    await fresh.end();
  }
  await agent.end();
}

/** Addresses outside get numbers by the policies themselves: that is no change of who they are. */
function renamed(before = 0, after = 0): boolean {
  return before !== after && !(scopeOf(before) === 'world' && scopeOf(after) === 'world');
}

/** What is allowed, readable in a difference. */
function named(verdicts: ReadonlyMap<number, readonly boolean[]>): string[] {
  return [...verdicts]
    .flatMap(([id, list]) => PROBES.filter((_, index) => list[index]).map((probe) => `${id} ${JSON.stringify(probe)}`))
    .sort();
}

describe('a transition of the kernel', () => {
  it('gives every packet the old verdict or the new one, whatever changes and wherever the agent dies', async () => {
    await fc.assert(
      fc.asyncProperty(steps(1), (trace) => play(trace)),
      { numRuns: runs(40), endOnFailure: true },
    );
  });

  it('gives the old verdict or the new one, too, where each plan compiles one shape of a namespace at most', async () => {
    await fc.assert(
      fc.asyncProperty(steps(1), (trace) => play(trace, 0)),
      { numRuns: runs(40), endOnFailure: true },
    );
  });

  /** The changes one after another, dying at operations of the last: at each where CI is set. */
  async function everywhere(...changes: readonly Input[]): Promise<void> {
    for (const crash of sample(Array.from({ length: 25 }, (_, at) => at))) await dying(crash, changes);
  }
  /** The changes one after another, dying at the operation of the last. */
  async function dying(crash: number | undefined, changes: readonly Input[]): Promise<void> {
    await play(
      changes.map((each, index) => ({
        name: `change ${index}, crash ${crash}`,
        inputs: [each],
        wait: 1500,
        crash: index === changes.length - 1 ? crash : undefined,
      })),
    );
  }
  const rule = (fields: Partial<ResolvedRule>): ResolvedRule => ({
    subject: hashOf('a'),
    direction: 'ingress',
    verdict: 'allow',
    peers: [{ peerSet: hashOf('b') }],
    defaultDeny: true,
    cookie: 1,
    path: 'spec[0]',
    ...fields,
  });

  it('a CIDR is never there without its exceptions, when an agent starts with rules that changed while it was away', async () => {
    await everywhere(
      input.policy('p', 1, [rule({ direction: 'egress', peers: [] })]),
      input.policy('p', 2, [
        rule({ direction: 'egress', peers: [{ cidr: '192.0.2.0/24', except: ['192.0.2.64/26'] }] }),
      ]),
    );
  });

  it('does not empty a direction that words still enforce', async () => {
    const both = [rule({}), rule({ direction: 'egress', cookie: 2 })];
    await everywhere(input.policy('p', 1, both), input.policy('p', 2, [rule({ direction: 'egress', cookie: 2 })]));
  });

  it('leaves no established flow through an address range that no rule names any more', async () => {
    const range = rule({ direction: 'egress', peers: [{ cidr: '192.0.2.0/24', except: ['192.0.2.64/26'] }] });
    await everywhere(input.policy('p', 1, [range]), input.policy('p', 2, [rule({ peers: [] })]));
  });

  it('changes what a port name means by one step, whichever pod comes, goes or changes with it', async () => {
    const web = (port: number) => [{ name: 'web', port, protocol: 'TCP' as const }];
    const ports = [{ protocol: 'TCP' as const, name: 'web' }];
    for (const verdict of ['allow', 'deny'] as const) {
      const { peers: _, ...anyone } = rule({ direction: 'egress', verdict, ports, cookie: 2 });
      const open = rule({ direction: 'egress', peers: [{ entity: 'all' }] });
      const policy = input.policy('p', 1, verdict === 'allow' ? [anyone] : [anyone, open]);
      const traces = [
        [input.remote(0, 301, web(80)), input.remote(1, 301, web(443))],
        [input.remote(0, 301, web(80)), input.remote(1, 301, web(443)), input.remote(0, undefined)],
        [input.remote(0, 301, web(80)), input.remote(0, 302, web(80))],
        [input.remote(0, 301, web(80)), input.remote(0, 301, web(443))],
        [input.remote(0, 301, web(80)), input.remote(0, undefined)],
      ];
      for (const trace of traces) {
        for (const crash of sample([undefined, 0, 2, 4, 8])) await dying(crash, [policy, ...trace]);
      }
    }
  });

  it('cuts established flows although the agent dies between a change and the revision that tells of it', async () => {
    const peers = [{ peerSet: hashOf('c') }];
    await everywhere(input.remote(2, 302), input.policy('p', 1, [rule({ peers })]), input.identity(302, undefined));
  });

  it.each([
    ['is deleted', undefined, true],
    ['is deleted', undefined, false],
    ['means other labels', 'c', true],
    ['means other labels', 'c', false],
  ] as const)(
    'judges an address as it was until it is unknown or another when its identity %s (%s, a pod here has it: %s)',
    async (_, app, here) => {
      const { peers: __, ...everybody } = rule({});
      const policy = input.policy('p', 1, [everybody, rule({ verdict: 'deny', cookie: 2 })]);
      const changes = [policy, input.peerSet('b', []), input.endpoint(2, here), input.identity(301, app)];
      for (const crash of [undefined, 0, 2, 4, 8]) await dying(crash, changes);
    },
  );
});
