/** What a policy may cost, alone and with the others of its namespace. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import type { Table } from '@weir/statedb';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { namespaceRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { DEFAULT_LIMITS, NO_LIMITS, type PolicyLimits } from '../limits.ts';
import { hashesOf } from '../names.ts';
import { ccnp, cnp, knp, namespace, pod } from '../testing.ts';
import type { PolicyObjectKind, PolicyRow, ResolvedRow } from '../types.ts';
import type { ModelOptions } from './model.ts';
import { TestModel } from './testing/test-model.ts';
import { clock, Desired, drain, Inputs, step } from './testing/trace.ts';
import { SHARE_MS } from './time-share.ts';

/** As many distinct selectors; beside them the subject's. */
const peers = (count: number, from = 0): object => ({
  endpointSelector: {},
  ingress: [{ fromEndpoints: Array.from({ length: count }, (_, n) => ({ matchLabels: { app: `a${from + n}` } })) }],
});

/** As many distinct selectors that match everything in the namespace; the subject's does, too. */
const broad = (count: number, from = 0): object => ({
  endpointSelector: {},
  ingress: [
    {
      fromEndpoints: Array.from({ length: count }, (_, n) => ({
        matchExpressions: [{ key: 'app', operator: 'NotIn', values: [`none${from + n}`] }],
      })),
    },
  ],
});

class World {
  readonly model: TestModel;
  readonly desired = new Desired();
  readonly #generations = new Map<string, number>();

  constructor(limits: Partial<PolicyLimits>, more: Partial<ModelOptions> = {}) {
    this.model = new TestModel({
      ...more,
      cluster: 'default',
      identityGraceMs: 0,
      now: () => clock.now,
      policyLimits: { ...NO_LIMITS, ...limits },
    });
    this.model.setNamespace(namespaceRow(namespace('a')));
  }

  start(): this {
    this.model.adoptionDone();
    return this;
  }

  /** Pods of namespace `a`, each with an identity of its own. */
  pods(...apps: readonly string[]): this {
    for (const app of apps) this.model.setPod(podRow(pod(`a/${app}`, { app })));
    return this;
  }

  cnp(where: string, spec: object): this {
    return this.set(cnp(where, spec), 'CiliumNetworkPolicy');
  }

  set(object: Parameters<typeof policyRow>[0], kind: PolicyObjectKind): this {
    const { key } = policyRow(object, kind);
    const generation = (this.#generations.get(key) ?? 0) + 1;
    this.#generations.set(key, generation);
    this.load(policyRow({ ...object, metadata: { ...object.metadata, uid: `u-${key}`, generation } }, kind));
    return this;
  }

  load(row: PolicyRow): void {
    this.model.setPolicy(row);
  }

  /** What is in force: key of the ResolvedPolicy, and the generation. */
  get inForce(): string[] {
    drain(this.model, this.desired);
    return [...this.desired.resolved].map(([name, { source }]) => `${name} ${source.generation}`).sort();
  }

  /** Conditions of a policy: type, status, reason; and the message of Valid. */
  status(key: string): { conditions: string[]; message: string | undefined } {
    drain(this.model, this.desired);
    const conditions = this.desired.statuses.get(key)?.status.conditions ?? [];
    return {
      conditions: conditions.map(({ type, status, reason }) => `${type} ${status} ${reason}`),
      message: conditions.find(({ type }) => type === 'Valid')?.message,
    };
  }
}

const REFUSED = [
  'Valid False BudgetExceeded',
  'ResolvedRefs Unknown BudgetExceeded',
  'Programmed False BudgetExceeded',
  'Ready False BudgetExceeded',
];

describe('a policy that costs more than one may', () => {
  it.each<readonly [string, Partial<PolicyLimits>, object, string]>([
    [
      'selectors',
      { selectorsPerPolicy: 10 },
      peers(11),
      'needs 12 selectors, and one may need 10: split it, or raise --selectors-per-policy (value operator.limits.selectorsPerPolicy)',
    ],
    ['selectors, with the subjects', { selectorsPerPolicy: 10 }, peers(10), 'needs 11 selectors'],
    [
      'large selectors',
      { selectorsPerPolicy: 10 },
      {
        endpointSelector: {
          matchExpressions: [{ key: 'app', operator: 'NotIn', values: Array.from({ length: 100 }, (_, n) => `a${n}`) }],
        },
        ingress: [{}],
      },
      'needs 11 selectors (it has 1: one counts once for each 10 requirements and values, and that once for each namespace that it looks into), and one may need 10: split it',
    ],
    [
      'selectors that look everywhere',
      { selectorsPerPolicy: 16 },
      {
        endpointSelector: {},
        ingress: [
          {
            fromEndpoints: [
              {
                matchExpressions: [
                  { key: 'io.kubernetes.pod.namespace', operator: 'Exists' },
                  { key: 'app', operator: 'NotIn', values: ['a'] },
                ],
              },
            ],
          },
        ],
      },
      'needs 17 selectors (it has 2: ',
    ],
    [
      'selectors that look everywhere, but for what nearly every pod has',
      { selectorsPerPolicy: 16 },
      {
        endpointSelector: {},
        ingress: [
          {
            fromEndpoints: [
              {
                matchLabels: { 'io.cilium.k8s.policy.serviceaccount': 'default' },
                matchExpressions: [{ key: 'io.kubernetes.pod.namespace', operator: 'Exists' }],
              },
            ],
          },
        ],
      },
      'needs 17 selectors (it has 2: ',
    ],
    [
      'selectors that look into many namespaces',
      { selectorsPerPolicy: 4 },
      {
        endpointSelector: {},
        ingress: [
          {
            fromEndpoints: [
              {
                matchExpressions: [
                  { key: 'k8s:io.kubernetes.pod.namespace', operator: 'In', values: ['a', 'b', 'c', 'd'] },
                ],
              },
            ],
          },
        ],
      },
      'needs 5 selectors (it has 2: ',
    ],
    [
      'rules',
      { rulesPerPolicy: 10 },
      { endpointSelector: {}, ingress: Array(6).fill({}), egressDeny: Array(5).fill({}) },
      'needs 11 rules, and one may need 10: split it, or raise --rules-per-policy (value operator.limits.rulesPerPolicy)',
    ],
    [
      'entries',
      { entriesPerPolicy: 20 },
      { endpointSelector: {}, ingress: [{ fromEndpoints: Array(20).fill({}) }] },
      'needs 21 entries in its lists (peers, ports, values, CIDRs), and one may need 20: split it, or raise --entries-per-policy (value operator.limits.entriesPerPolicy)',
    ],
    [
      'bytes',
      { bytesPerPolicy: 1_000 },
      { endpointSelector: {}, ingress: Array(10).fill({}) },
      'bytes once it is resolved, and one may need 1000: split it, or raise --bytes-per-policy (value operator.limits.bytesPerPolicy)',
    ],
    [
      'bytes of a selector',
      { bytesPerPolicy: 1_000 },
      {
        endpointSelector: { matchLabels: Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`label${n}`, 'x'])) },
        ingress: [{}],
      },
      'bytes for one of its selectors, and one may need 1000: split it, or raise --bytes-per-policy (value operator.limits.bytesPerPolicy)',
    ],
  ])(
    '%s: the last generation that did not stays in force, and its status says what it needs',
    (_, limits, spec, words) => {
      const world = new World(limits).start().cnp('a/p', peers(1));
      expect(world.inForce).toEqual(['cnp-a.p 1']);
      world.cnp('a/p', spec).cnp('a/q', spec);
      expect(world.inForce).toEqual(['cnp-a.p 1']);
      expect(world.desired.peerSets.size).toBe(2);
      const { conditions, message } = world.status('cnp/a/p');
      expect(conditions).toEqual(REFUSED);
      expect(message).toContain(words);
      expect(message).toMatch(/; generation 1 stays enforced$/);
      expect(world.status('cnp/a/q').message).toMatch(/; nothing of this policy is enforced$/);
      world.cnp('a/p', peers(2));
      expect(world.inForce).toEqual(['cnp-a.p 3']);
      expect(world.status('cnp/a/p').conditions[0]).toBe('Valid True Valid');
    },
  );

  it('is told by each kind, clusterwide ones too', () => {
    const world = new World({ selectorsPerPolicy: 30, selectorsPerNamespace: 5 }).start();
    const from = Array.from({ length: 30 }, (_, n) => ({ podSelector: { matchLabels: { app: `a${n}` } } }));
    world.set(knp('a/p', { podSelector: {}, ingress: [{ from }] }), 'NetworkPolicy');
    world.set(ccnp('p', peers(31)), 'CiliumClusterwideNetworkPolicy');
    world.set(ccnp('q', peers(9)), 'CiliumClusterwideNetworkPolicy');
    expect(world.inForce).toEqual(['ccnp-q 1']);
    expect(world.status('ccnp/p').conditions).toEqual(REFUSED);
    expect(world.status('knp/a/p').conditions).toEqual(REFUSED);
  });

  it('matches, counted for each selector; of a clusterwide policy, too', () => {
    const world = new World({ matchesPerPolicy: 10 }).pods('x', 'y', 'z').start();
    world
      .cnp('a/p', broad(2))
      .cnp('a/q', broad(3))
      .set(ccnp('q', broad(3)), 'CiliumClusterwideNetworkPolicy');
    expect(world.inForce).toEqual(['cnp-a.p 1']);
    expect(world.status('ccnp/q').conditions).toEqual(REFUSED);
    const { conditions, message } = world.status('cnp/a/q');
    expect(conditions).toEqual(REFUSED);
    expect(message).toContain(
      'the policy needs more than 10 matches (identities of its selectors, summed), and one may need 10: split it, let its selectors match fewer identities, or raise --matches-per-policy (value operator.limits.matchesPerPolicy)',
    );
    expect(world.desired.peerSets.size).toBe(3);
  });

  it('looks, where selectors ask for no label by its value; few are asked of those that do', () => {
    // Each selector asks for its namespace, too.
    const nobody = (count: number, name: string, asked: object = {}) => ({
      endpointSelector: {},
      ingress: [
        {
          fromEndpoints: Array.from({ length: count }, (_, n) => ({
            ...asked,
            matchExpressions: ['app', `${name}${n}`].map((key) => ({ key, operator: 'Exists' })),
          })),
        },
      ],
    });
    const world = new World({ matchesPerPolicy: 8 }).pods('x', 'y', 'z').start();
    world
      .cnp('a/p', nobody(5, 'p'))
      .cnp('a/q', nobody(7, 'q'))
      .cnp('a/r', nobody(20, 'r', { matchLabels: { app: 'u' } }));
    expect(world.inForce).toEqual(['cnp-a.p 1', 'cnp-a.r 1']);
    const { conditions, message } = world.status('cnp/a/q');
    expect(conditions).toEqual(REFUSED);
    expect(message).toContain('takes more than 64 looks');
    expect(message).toContain('--matches-per-policy');
    for (const app of ['y', 'z']) world.model.deletePod(`a/${app}`);
    expect(world.inForce).toHaveLength(2);
    clock.now += 1_500;
    // The number that was given last is kept.
    world.model.collect();
    expect(world.inForce).toEqual(['cnp-a.p 1', 'cnp-a.q 1', 'cnp-a.r 1']);
  });

  it('by default each of the limits can be reached: as many rules as one may have, with a selector each, are no more bytes than one may have', () => {
    const world = new World(DEFAULT_LIMITS).start();
    const { rulesPerPolicy, selectorsPerPolicy } = DEFAULT_LIMITS;
    world.cnp('a/p', {
      endpointSelector: {},
      ingress: Array.from({ length: rulesPerPolicy }, (_, n) => ({
        fromEndpoints: [{ matchLabels: { app: `a${n % (selectorsPerPolicy - 1)}` } }],
      })),
    });
    expect(world.status('cnp/a/p').message).toBe('The policy is valid.');
    expect(world.inForce).toEqual(['cnp-a.p 1']);
  });

  it('says the same of one selector that is written again and again: it is one', () => {
    const world = new World({ selectorsPerPolicy: 2 }).start();
    world.cnp('a/p', {
      endpointSelector: {},
      ingress: Array.from({ length: 100 }, () => ({ fromEndpoints: [{ matchLabels: { app: 'x' } }] })),
    });
    expect(world.inForce).toEqual(['cnp-a.p 1']);
  });
});

describe('the policies of a namespace', () => {
  let world: World;
  beforeEach(() => {
    world = new World({ selectorsPerNamespace: 10 }).start();
    world.cnp('a/one', peers(3)).cnp('a/two', peers(3)).cnp('a/three', peers(3)).cnp('b/one', peers(3));
  });

  it('have a budget together, which takes nothing from another namespace', () => {
    expect(world.inForce).toEqual(['cnp-a.one 1', 'cnp-a.two 1', 'cnp-b.one 1']);
    const { conditions, message } = world.status('cnp/a/three');
    expect(conditions).toEqual(REFUSED);
    expect(message).toBe(
      'the policy needs 4 selectors, and when it was read the other policies of namespace "a" had 8 of the 10 that all of them may have: remove some, or raise --selectors-per-namespace (value operator.limits.selectorsPerNamespace); nothing of this policy is enforced',
    );
  });

  it('have a budget of bytes, which their selectors use, too', () => {
    world = new World({ bytesPerNamespace: 1_600 }).start();
    const long = (name: string): object => ({
      endpointSelector: { matchLabels: { [name.repeat(50)]: 'x'.repeat(60) } },
      ingress: Array(2).fill({}),
    });
    world.cnp('a/one', long('a')).cnp('a/two', long('b')).cnp('a/three', long('c'));
    expect(world.inForce).toEqual(['cnp-a.one 1', 'cnp-a.two 1']);
    expect(world.status('cnp/a/three').conditions).toEqual(REFUSED);
    const bytes = (row: unknown): number => JSON.stringify(row).length;
    // Whichever cookies they get, they count as the longest.
    const longest = ({ rules: all }: ResolvedRow) => all.map((rule) => ({ ...rule, cookie: 0xffffffff }));
    const rules = [...world.desired.resolved.values()].reduce((sum, row) => sum + bytes(longest(row)), 0);
    const selectors = [...world.desired.peerSets.values()].reduce((sum, row) => sum + bytes(row.selector), 0);
    expect(rules).toBeLessThan(1_000);
    expect(world.status('cnp/a/three').message).toContain(`had ${rules + selectors} of the 1600 that`);
  });

  it('are so many at most, of all kinds together', () => {
    world = new World({ policiesPerNamespace: 2 }).start();
    world
      .cnp('a/one', peers(1))
      .set(knp('a/two', { podSelector: {} }), 'NetworkPolicy')
      .cnp('a/three', peers(1))
      .cnp('b/one', peers(1));
    world.set(ccnp('q', peers(1)), 'CiliumClusterwideNetworkPolicy');
    expect(world.inForce).toEqual(['ccnp-q 1', 'cnp-a.one 1', 'cnp-b.one 1', 'knp-a.two 1']);
    const { conditions, message } = world.status('cnp/a/three');
    expect(conditions).toEqual(REFUSED);
    expect(message).toContain(
      'namespace "a" has 2 other policies, refused ones too, and may have 2, so that this one is not read',
    );
    world.cnp('a/one', peers(2));
    expect(world.inForce).toContain('cnp-a.one 2');
    world.model.deletePolicy('knp/a/two');
    expect(world.inForce).toContain('cnp-a.three 1');
  });

  it('are so many at most with those that are refused: one more is not read until another leaves it its place', () => {
    world = new World({ policiesPerNamespace: 2, rulesPerPolicy: 1 }).start();
    const rules = (count: number): object => ({ endpointSelector: {}, ingress: Array(count).fill({}) });
    world
      .cnp('a/large', rules(2))
      .cnp('a/invalid', { endpointSelector: 1 })
      .cnp('a/one', rules(1))
      .cnp('a/two', rules(2));
    world.cnp('b/one', rules(1));
    expect(world.inForce).toEqual(['cnp-b.one 1']);
    expect(world.status('cnp/a/large').message).toContain('needs 2 rules');
    for (const key of ['cnp/a/one', 'cnp/a/two']) {
      expect(world.status(key).conditions).toEqual(REFUSED);
      expect(world.status(key).message).toContain('namespace "a" has 2 other policies');
    }
    world.cnp('a/two', rules(3)).cnp('a/large', rules(4));
    expect(world.status('cnp/a/two').message).toContain('namespace "a" has 2 other policies');
    expect(world.status('cnp/a/large').message).toContain('needs 4 rules');
    world.model.deletePolicy('cnp/a/two');
    world.model.deletePolicy('cnp/a/large');
    expect(world.inForce).toEqual(['cnp-a.one 1', 'cnp-b.one 1']);
    world.cnp('a/three', rules(1)).cnp('a/invalid', rules(1));
    expect(world.inForce).toEqual(['cnp-a.invalid 2', 'cnp-a.one 1', 'cnp-b.one 1']);
    const next = new World({ policiesPerNamespace: 2, rulesPerPolicy: 1 });
    next.model.adopt(world.desired.adopted());
    for (const row of policiesOf(world).toReversed()) next.load(row);
    next.start();
    expect(next.inForce).toEqual(['cnp-a.invalid 2', 'cnp-a.one 1', 'cnp-b.one 1']);
    expect(next.desired.plain()).toEqual(world.desired.plain());
  });

  it('take in who was refused as soon as another leaves room', () => {
    world.cnp('a/four', peers(1));
    expect(world.inForce).toEqual(['cnp-a.four 1', 'cnp-a.one 1', 'cnp-a.two 1', 'cnp-b.one 1']);
    world.model.deletePolicy('cnp/b/one');
    expect(world.inForce).not.toContain('cnp-a.three 1');
    world.cnp('a/one', peers(1));
    expect(world.inForce).toEqual(['cnp-a.four 1', 'cnp-a.one 2', 'cnp-a.two 1']);
    world.model.deletePolicy('cnp/a/two');
    expect(world.inForce).toEqual(['cnp-a.four 1', 'cnp-a.one 2', 'cnp-a.three 1']);
    expect(world.status('cnp/a/three').conditions[0]).toBe('Valid True Valid');
  });

  it('take in as many of those as a round has time for, and the others in the next rounds', () => {
    // Time passes with the first policy of a round, and not with statuses.
    let [asked, passed] = [0, 0];
    const stopwatch = (): number => {
      asked += 1;
      if (asked === 2) passed += SHARE_MS;
      return passed;
    };
    const slow = new World({ selectorsPerNamespace: 30 }, { stopwatch }).start().cnp('a/large', peers(28));
    for (let n = 0; n < 9; n += 1) slow.cnp(`a/p${n}`, peers(1, n));
    expect(slow.inForce).toEqual(['cnp-a.large 1']);
    slow.model.deletePolicy('cnp/a/large');
    for (let round = 1; round <= 9; round += 1) {
      asked = 0;
      slow.desired.apply(slow.model.flush());
      expect([slow.desired.resolved.size, slow.model.more]).toEqual([round, round < 9]);
    }
    expect(slow.inForce).toHaveLength(9);
  });

  it('keep what is in force when one grows beyond it, and let each shrink', () => {
    world.cnp('a/one', peers(6));
    expect(world.inForce).toEqual(['cnp-a.one 1', 'cnp-a.two 1', 'cnp-b.one 1']);
    world.cnp('a/one', peers(2, 50));
    expect(world.inForce).toEqual(['cnp-a.one 3', 'cnp-a.two 1', 'cnp-b.one 1']);
  });

  it('are those of before after a restart, in whatever order they come', () => {
    drain(world.model, world.desired);
    const rows = policiesOf(world);
    for (const order of [rows, rows.toReversed()]) {
      const next = new World({ selectorsPerNamespace: 10 });
      next.model.adopt(world.desired.adopted());
      for (const row of order) {
        next.load(row);
        next.model.take();
      }
      next.start();
      expect(next.inForce).toEqual(['cnp-a.one 1', 'cnp-a.two 1', 'cnp-b.one 1']);
      expect(next.desired.plain()).toEqual(world.desired.plain());
    }
  });

  it('stay in force under a smaller budget, until they are edited to more', () => {
    drain(world.model, world.desired);
    const next = new World({ selectorsPerNamespace: 2, selectorsPerPolicy: 3 });
    next.model.adopt(world.desired.adopted());
    for (const row of policiesOf(world)) next.load(row);
    next.start();
    expect(next.inForce).toEqual(['cnp-a.one 1', 'cnp-a.two 1', 'cnp-b.one 1']);
    expect(next.status('cnp/a/one').conditions).toEqual(REFUSED);
  });
});

describe('the CIDRs of a namespace', () => {
  /** As many CIDRs, a half of them exceptions of the others. */
  const cidrs = (count: number, at = 0): object => ({
    endpointSelector: {},
    egress: [
      {
        toCIDRSet: Array.from({ length: count / 2 }, (_, n) => ({
          cidr: `198.18.${at + n}.0/24`,
          except: [`198.18.${at + n}.8/29`],
        })),
      },
    ],
  });

  it('are counted as they are written, exceptions too; who names more is refused, and takes nothing from others', () => {
    const world = new World({ cidrsPerNamespace: 10 }).start();
    world
      .cnp('a/one', cidrs(6))
      .cnp('a/two', cidrs(6))
      .cnp('b/one', cidrs(8))
      .set(ccnp('p', cidrs(20)), 'CiliumClusterwideNetworkPolicy');
    const block = (n: number) => ({ ipBlock: { cidr: `203.0.${n}.0/24`, except: [`203.0.${n}.0/25`] } });
    world.set(knp('b/more', { podSelector: {}, egress: [{ to: [block(1), block(2)] }] }), 'NetworkPolicy');
    expect(world.inForce).toEqual(['ccnp-p 1', 'cnp-a.one 1', 'cnp-b.one 1']);
    const { conditions, message } = world.status('cnp/a/two');
    expect(conditions).toEqual(REFUSED);
    expect(message).toBe(
      'the policy needs 6 CIDRs (exceptions are such), and when it was read the other policies of namespace "a" had 6 of the 10 that all of them may have: remove some, or raise --cidrs-per-namespace (value operator.limits.cidrsPerNamespace); nothing of this policy is enforced',
    );
    expect(world.status('knp/b/more').conditions).toEqual(REFUSED);
    world.cnp('c/large', cidrs(12));
    expect(world.status('cnp/c/large').message).toBe(
      'the policy needs 12 CIDRs (exceptions are such), and all policies of namespace "c" together may have 10: let it need fewer, or raise --cidrs-per-namespace (value operator.limits.cidrsPerNamespace); nothing of this policy is enforced',
    );
    world.cnp('a/one', cidrs(4, 50));
    expect(world.inForce).toEqual(['ccnp-p 1', 'cnp-a.one 2', 'cnp-a.two 1', 'cnp-b.one 1']);
    world.model.deletePolicy('cnp/b/one');
    expect(world.inForce).toContain('knp-b.more 1');
  });

  it('stay in force under a smaller budget after a restart, and have none at 0', () => {
    const world = new World({ cidrsPerNamespace: 0 }).start().cnp('a/one', cidrs(6)).cnp('a/two', cidrs(6, 50));
    drain(world.model, world.desired);
    const next = new World({ cidrsPerNamespace: 4 });
    next.model.adopt(world.desired.adopted());
    for (const row of policiesOf(world)) next.load(row);
    next.start();
    expect(next.inForce).toEqual(['cnp-a.one 1', 'cnp-a.two 1']);
    next.cnp('a/three', cidrs(2, 90));
    expect(next.status('cnp/a/three').conditions).toEqual(REFUSED);
  });
});

describe('what the policies of a namespace match', () => {
  let world: World;
  beforeEach(() => {
    world = new World({ matchesPerNamespace: 20 }).pods('x', 'y', 'z').start();
    // 9 matches each, but for the small ones: the subjects and what is in another namespace.
    world.cnp('a/one', broad(2)).cnp('a/two', broad(2, 50)).cnp('a/three', broad(2, 70)).cnp('b/one', broad(9));
  });

  it('is a budget, which takes nothing from another namespace', () => {
    expect(world.inForce).toEqual(['cnp-a.one 1', 'cnp-a.two 1', 'cnp-b.one 1']);
    const { conditions, message } = world.status('cnp/a/three');
    expect(conditions).toEqual(REFUSED);
    expect(message).toContain(
      'the policy needs 9 matches (identities of its selectors, summed), which the other policies of namespace "a" do not leave of the 20 that all of them may have: remove some, or raise --matches-per-namespace (value operator.limits.matchesPerNamespace)',
    );
  });

  it('leaves room for whoever was refused when another shrinks or goes', () => {
    expect(world.inForce).not.toContain('cnp-a.three 1');
    world.cnp('a/one', broad(1));
    expect(world.inForce).not.toContain('cnp-a.three 1');
    world.model.deletePolicy('cnp/a/two');
    expect(world.inForce).toEqual(['cnp-a.one 2', 'cnp-a.three 1', 'cnp-b.one 1']);
  });

  it('leaves room, too, when another matches less and needs no less of anything else', () => {
    expect(world.inForce).not.toContain('cnp-a.three 1');
    const nobody = Array.from({ length: 2 }, (_, n) => ({ matchLabels: { app: `of-this-name-there-is-nobody-${n}` } }));
    world.cnp('a/one', { endpointSelector: { matchLabels: { app: 'x' } }, ingress: [{ fromEndpoints: nobody }] });
    expect(world.inForce).toContain('cnp-a.three 1');
  });

  it('grows with identities, which refuses no policy in force, nor one that shrinks, but new ones', () => {
    world.pods('more', 'and', 'again');
    expect(world.inForce).toEqual(['cnp-a.one 1', 'cnp-a.two 1', 'cnp-b.one 1']);
    world.cnp('a/four', broad(0)).cnp('a/one', broad(1));
    expect(world.inForce).toEqual(['cnp-a.one 2', 'cnp-a.two 1', 'cnp-b.one 1']);
    expect(world.status('cnp/a/four').message).toContain('needs 6 matches');
  });

  it('leaves room for whoever was refused when identities have been forgotten', () => {
    for (const app of ['x', 'y']) world.model.deletePod(`a/${app}`);
    expect(world.inForce).not.toContain('cnp-a.three 1');
    clock.now += 1_500;
    world.model.collect();
    drain(world.model, world.desired);
    // The number that was given last is kept, and its pod is gone: another takes its place.
    world.model.collect();
    expect(world.inForce).toEqual(['cnp-a.one 1', 'cnp-a.three 1', 'cnp-a.two 1', 'cnp-b.one 1']);
    expect(world.model.more).toBe(false);
  });
});

/** Policies that wait to be read, or to be read again. */
function waiting({ model }: World): number | undefined {
  return model.db.tables().find(({ name }) => name === 'queued-policies-again')?.rows;
}

describe('a policy that matched too much', () => {
  /** Writes to the policies that have been read. */
  const readings = ({ model }: World): number | undefined =>
    model.db.tables().find(({ name }) => name === 'parsed-policies')?.revision;
  const forget = (world: World, ...apps: readonly string[]): void => {
    for (const app of apps) world.model.deletePod(`a/${app}`);
    drain(world.model, world.desired);
    clock.now += 1_500;
    // The number that was given last is kept.
    world.pods('last');
    world.model.collect();
  };

  it('is read again only where an identity has been forgotten since', () => {
    const world = new World({ matchesPerPolicy: 10 }).pods('x', 'y', 'z').start().cnp('a/p', broad(3));
    expect(world.inForce).toEqual([]);
    const before = readings(world);
    world.pods('more');
    for (let n = 0; n < 3; n += 1) world.model.collect();
    drain(world.model, world.desired);
    expect(readings(world)).toBe(before);
    forget(world, 'x', 'y', 'more');
    expect(world.inForce).toEqual(['cnp-a.p 1']);
    const after = readings(world);
    forget(world, 'z');
    drain(world.model, world.desired);
    expect(readings(world)).toBe(after);
  });

  it('is read again at the next collection where identities had not left its sets when it was counted', () => {
    const world = new World({ matchesPerPolicy: 10 }).pods('x', 'y', 'z').start().cnp('a/p', broad(2));
    world.pods('more');
    expect(world.inForce).toEqual(['cnp-a.p 1']);
    forget(world, 'more', 'x');
    // In the round in which they are forgotten.
    world.cnp('a/q', broad(2));
    expect(world.inForce).toEqual(['cnp-a.p 1']);
    world.model.collect();
    expect(world.inForce).toEqual(['cnp-a.p 1', 'cnp-a.q 1']);
  });

  it('waits for no more than a selector of each other namespace when it is read again', () => {
    let passed = 0;
    // Each selector takes all the time of a round.
    const stopwatch = (): number => (passed += SHARE_MS);
    const world = new World({ matchesPerPolicy: 100 }, { stopwatch });
    world.model.setNamespace(namespaceRow(namespace('b')));
    world.pods(...Array.from({ length: 12 }, (_, n) => `x${n}`)).start();
    for (const app of ['y', 'z']) world.model.setPod(podRow(pod(`b/${app}`, { app })));
    for (let n = 0; n < 20; n += 1) world.cnp(`a/p${n}`, broad(20, n * 100));
    world.cnp('b/p', broad(70));
    drain(world.model, world.desired);
    expect(world.inForce).toEqual([]);
    world.model.deletePod('b/y');
    drain(world.model, world.desired);
    forget(world);
    let rounds = 0;
    for (; !world.desired.resolved.has('cnp-b.p') && rounds < 1_000; rounds += 1)
      world.desired.apply(world.model.flush());
    expect(rounds).toBeGreaterThan(70);
    expect(rounds).toBeLessThan(150);
    expect(world.inForce).toEqual(['cnp-b.p 1']);
  });

  it('and takes ten times its share of a round has none in the nine rounds after that', () => {
    let [passed, step] = [0, 0];
    const world = new World({ matchesPerPolicy: 100 }, { stopwatch: () => (passed += step) });
    const evaluated = (): number => world.model.db.tables().find(({ name }) => name === 'evaluated-sets')?.rows ?? 0;
    world.pods(...Array.from({ length: 12 }, (_, n) => `x${n}`)).start();
    world.cnp('a/p', broad(20));
    forget(world, 'x0');
    world.model.collect();
    // The stopwatch is looked at three times: at the beginning, and after a selector.
    step = 5.5 * SHARE_MS;
    const seen: number[] = [];
    for (let round = 0; round < 22; round += 1) {
      world.model.flush();
      seen.push(evaluated());
    }
    expect(seen.slice(0, 10)).toEqual(Array(10).fill(1));
    expect(seen.slice(10, 20)).toEqual(Array(10).fill(2));
    expect(seen.slice(20)).toEqual([3, 3]);
  });

  it('leaves nothing behind when it goes, or is another, while it is counted', () => {
    let passed = 0;
    const world = new World({ matchesPerPolicy: 100 }, { stopwatch: () => (passed += SHARE_MS) });
    world.pods(...Array.from({ length: 12 }, (_, n) => `x${n}`)).start();
    for (const n of [0, 1]) world.cnp(`a/p${n}`, broad(20, n * 100));
    drain(world.model, world.desired);
    const kept = (): number | undefined => world.model.db.tables().find(({ name }) => name === 'evaluated-sets')?.rows;
    expect(kept()).toBe(0);
    const begin = (): void => {
      world.model.deletePod('a/x0');
      forget(world);
      for (let n = 0; n < 3; n += 1) world.desired.apply(world.model.flush());
      expect(kept()).toBeGreaterThan(0);
    };
    begin();
    world.cnp('a/p0', broad(1)).cnp('a/p1', broad(1));
    drain(world.model, world.desired);
    expect(kept()).toBe(0);
    for (const n of [0, 1]) world.cnp(`a/p${n}`, broad(20, n * 100));
    drain(world.model, world.desired);
    world.pods('x0', 'later');
    begin();
    for (const n of [0, 1]) world.model.deletePolicy(`cnp/a/p${n}`);
    drain(world.model, world.desired);
    expect(kept()).toBe(0);
  });

  it('and is edited without end keeps no other of its namespace from being read', () => {
    let passed = 0;
    const world = new World({ matchesPerPolicy: 100 }, { stopwatch: () => (passed += SHARE_MS) });
    world.pods('x', 'y', 'z').start();
    world.desired.apply(world.model.flush());
    world.cnp('a/edited', broad(20));
    world.cnp('a/admin', broad(1, 100));
    for (let round = 0; round < 20 && !world.desired.resolved.has('cnp-a.admin'); round += 1) {
      world.desired.apply(world.model.flush());
      world.cnp('a/edited', broad(20, 200 + round));
    }
    expect(Array.from(world.desired.resolved.keys())).toEqual(['cnp-a.admin']);
    expect(waiting(world)).toBe(1);
    world.model.deletePolicy('cnp/a/edited');
    world.desired.apply(world.model.flush());
    expect(waiting(world)).toBe(0);
    expect(world.inForce).toEqual(['cnp-a.admin 1']);
  });

  it.each([
    ['invalid', { endpointSelector: 1 }],
    ['too large for itself', { endpointSelector: {}, ingress: Array(20).fill({}) }],
  ])('or is %s: the operator does not read all others of its namespace before it shows the first state', (_, spec) => {
    const limits = { matchesPerPolicy: 100, bytesPerPolicy: 2_000 };
    const world = new World(limits).pods('x', 'y', 'z').start();
    for (let n = 0; n < 5; n += 1) world.cnp(`a/bad${n}`, spec);
    world.cnp('b/good', broad(1));
    let passed = 0;
    const next = new World(limits, { stopwatch: () => (passed += SHARE_MS) });
    for (const row of policiesOf(world)) next.load(row);
    next.pods('x', 'y', 'z').start();
    next.desired.apply(next.model.flush());
    // One was read before, and one in this round.
    expect(waiting(next)).toBeGreaterThanOrEqual(3);
    expect(next.inForce).toEqual(['cnp-b.good 1']);
    expect(waiting(next)).toBe(0);
  });

  it('stays as it was when the operator starts and the next generation takes long, until that has been counted', () => {
    const limits = { matchesPerPolicy: 100 };
    const world = new World(limits).pods('x', 'y', 'z').start().cnp('a/p', broad(2));
    expect(world.inForce).toEqual(['cnp-a.p 1']);
    const adopted = world.desired.adopted();
    world.cnp('a/p', broad(5, 10)).cnp('a/q', broad(5, 20));
    let passed = 0;
    const next = new World(limits, { stopwatch: () => (passed += SHARE_MS) });
    next.model.adopt(adopted);
    for (const row of policiesOf(world)) next.load(row);
    next.pods('x', 'y', 'z').start();
    next.desired.apply(next.model.flush());
    expect(Array.from(next.desired.resolved.values(), ({ source }) => source.generation)).toEqual([1]);
    const [first] = next.desired.statuses.values();
    expect(first?.status.conditions[0]?.message).toContain('waits for its turn to be read');
    expect(next.inForce).toEqual(['cnp-a.p 2', 'cnp-a.q 1']);
    expect(next.desired.peerSets.size).toBe(11);
    // Later the same is said of one that is being counted.
    next.cnp('a/r', broad(5, 30));
    next.desired.apply(next.model.flush());
    const conditions = next.desired.statuses.get('cnp/a/r')?.status.conditions ?? [];
    expect(conditions.map(({ status, reason }) => `${status} ${reason}`)).toEqual([
      'Unknown Waiting',
      'Unknown Waiting',
      'False Progressing',
      'False Waiting',
    ]);
    expect(next.desired.resolved.has('cnp-a.r')).toBe(false);
    next.model.deletePolicy('cnp/a/r');
    expect(next.inForce).toEqual(['cnp-a.p 2', 'cnp-a.q 1']);
  });

  it('keeps nobody waiting when the operator starts: the next ones of its namespace are read after that', () => {
    const limits = { matchesPerPolicy: 10 };
    const world = new World(limits).pods('x', 'y', 'z').start();
    world
      .cnp('a/one', broad(2))
      .cnp('a/p', broad(3))
      .cnp('a/q', broad(3, 10))
      .cnp('a/r', broad(2, 20))
      .cnp('b/r', broad(2));
    expect(world.inForce).toEqual(['cnp-a.one 1', 'cnp-a.r 1', 'cnp-b.r 1']);
    world.desired.resolved.delete('cnp-a.r');
    const next = new World(limits, { stopwatch: () => (clock.now += SHARE_MS) });
    next.model.adopt(world.desired.adopted());
    for (const row of policiesOf(world)) next.load(row);
    next.pods('x', 'y', 'z').start();
    next.desired.apply(next.model.flush());
    expect([...next.desired.resolved.keys()].sort()).toEqual(['cnp-a.one', 'cnp-b.r']);
    expect(next.status('cnp/a/p').message).toContain('needs more than 10 matches');
    expect(next.inForce).toEqual(['cnp-a.one 1', 'cnp-a.r 1', 'cnp-b.r 1']);
    expect(next.status('cnp/a/q').message).toContain('needs more than 10 matches');
  });
});

function policiesOf(world: World): PolicyRow[] {
  using snapshot = world.model.db.read();
  return [...snapshot.all(world.model.tables.policies)];
}

/** What the model has counted, by namespace. */
function matchUsage({ model }: World): Map<string, number> {
  const table = model.db.tables().find(({ name }) => name === 'match-usage')?.table as Table<{
    readonly namespace: string;
    readonly matches: number;
  }>;
  using snapshot = model.db.read();
  return new Map(Array.from(snapshot.all(table), ({ namespace: of, matches }) => [of, matches]));
}

it('whatever the trace: budgets hold, nobody is refused who could be taken in, and a new model that adopts agrees', () => {
  const limits: PolicyLimits = {
    selectorsPerPolicy: 2,
    rulesPerPolicy: 1,
    entriesPerPolicy: 0,
    bytesPerPolicy: 450,
    policiesPerNamespace: 100,
    selectorsPerNamespace: 4,
    bytesPerNamespace: 1_500,
    cidrsPerNamespace: 2,
    matchesPerPolicy: 3,
    matchesPerNamespace: 4,
  };
  fc.assert(
    fc.property(fc.array(fc.tuple(step, fc.boolean()), { maxLength: 80, size: 'max' }), (trace) => {
      const world = new World(limits).start();
      const inputs = new Inputs();
      for (const [act, flush] of trace) {
        clock.now += 1_500;
        act(world.model, inputs);
        if (!flush) continue;
        drain(world.model, world.desired);
        const [used, matched, named] = [
          new Map<string, number>(),
          new Map<string, number>(),
          new Map<string, number>(),
        ];
        for (const { source, rules } of world.desired.resolved.values()) {
          let matches = 0;
          for (const { hash, identities } of world.desired.peerSets.values())
            if (hashesOf(rules).has(hash)) matches += identities.length;
          const where = source.namespace ?? '';
          if (where !== '' && matches > 0) matched.set(where, (matched.get(where) ?? 0) + matches);
          const bytes = JSON.stringify(rules).length;
          expect(bytes).toBeLessThanOrEqual(limits.bytesPerPolicy);
          const name = source.namespace ?? '';
          if (name === '') continue;
          const selectors = new Map([...world.desired.peerSets.values()].map(({ hash, selector }) => [hash, selector]));
          const ofSelectors = [...hashesOf(rules)].map((hash) => JSON.stringify(selectors.get(hash)).length);
          used.set(name, (used.get(name) ?? 0) + bytes + ofSelectors.reduce((sum, size) => sum + size, 0));
          const cidrs = rules.flatMap(({ peers }) =>
            (peers ?? []).flatMap((peer) => ('cidr' in peer ? [peer.cidr, ...(peer.except ?? [])] : [])),
          );
          named.set(name, (named.get(name) ?? 0) + cidrs.length);
        }
        const policies = Map.groupBy(world.desired.resolved.values(), ({ source }) => source.namespace);
        for (const [where, all] of policies)
          if (where !== undefined) expect(all.length).toBeLessThanOrEqual(limits.policiesPerNamespace);
        for (const count of named.values()) expect(count).toBeLessThanOrEqual(limits.cidrsPerNamespace);
        for (const bytes of used.values()) expect(bytes).toBeLessThanOrEqual(limits.bytesPerNamespace);
        expect(matchUsage(world)).toEqual(matched);
      }
      world.model.collect();
      drain(world.model, world.desired);

      const [fresh, again] = [new World(limits), new Desired()];
      fresh.model.adopt(world.desired.adopted());
      inputs.load(fresh.model);
      fresh.model.adoptionDone();
      fresh.model.collect();
      drain(fresh.model, again);
      // What it needs, and what the others of a namespace had, is told as it was when the policy was read.
      const withoutOthers = (_: string, value: unknown): unknown =>
        typeof value === 'string' && /when it was read|together may have|do not leave/.test(value) ? 'refused' : value;
      const plain = (desired: Desired): unknown => JSON.parse(JSON.stringify(desired.plain(), withoutOthers));
      expect(plain(again)).toEqual(plain(world.desired));
    }),
    { numRuns: runs(300) },
  );
});
