/** What one policy and one namespace may ask for, and what becomes of who asks for more. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import { namespaceRow, policyRow } from '../kubernetes/rows.ts';
import { NO_LIMITS, type PolicyLimits } from '../limits.ts';
import { ccnp, cnp, namespace } from '../testing.ts';
import type { PolicyRow } from '../types.ts';
import { TestModel } from './testing/test-model.ts';
import { Desired, drain } from './testing/trace.ts';

/** A policy of so many selectors; clusterwide where its name has no namespace. */
function policy(where: string, selectors = 1, generation = 1): PolicyRow {
  const fromEndpoints = Array.from({ length: selectors - 1 }, (_, n) => ({ matchLabels: { app: `a${n}` } }));
  const spec = { endpointSelector: {}, ingress: [{ fromEndpoints }] };
  const [object, kind] = where.includes('/')
    ? ([cnp(where, spec), 'CiliumNetworkPolicy'] as const)
    : ([ccnp(where, spec), 'CiliumClusterwideNetworkPolicy'] as const);
  return policyRow({ ...object, metadata: { ...object.metadata, uid: where, generation } }, kind);
}

class Cluster {
  readonly model: TestModel;
  readonly desired = new Desired();

  constructor(limits: Partial<PolicyLimits>) {
    const policyLimits = { ...NO_LIMITS, ...limits };
    this.model = new TestModel({ cluster: 'default', identityGraceMs: 0, now: () => 1_700_000_000_000, policyLimits });
    for (const name of ['a', 'b']) this.model.setNamespace(namespaceRow(namespace(name)));
  }

  set(...rows: readonly PolicyRow[]): void {
    for (const row of rows) this.model.setPolicy(row);
  }

  /** Names and generations of what is in force. */
  get inForce(): string[] {
    drain(this.model, this.desired);
    return Array.from(this.desired.resolved.values(), ({ name, source }) => `${name} ${source.generation}`).sort();
  }

  valid(key: string): string {
    drain(this.model, this.desired);
    const found = this.desired.statuses.get(key)?.status.conditions.find(({ type }) => type === 'Valid');
    return `${found?.reason}: ${found?.message}`;
  }
}

it('a policy that asks for more than one may is refused, with the limit, and what was enforced stays', () => {
  const cluster = new Cluster({ selectorsPerPolicy: 3, rulesPerPolicy: 2 });
  cluster.set(policy('a/p', 3));
  expect(cluster.inForce).toEqual(['cnp-a.p 1']);
  cluster.set(policy('a/p', 4, 2));
  expect(cluster.inForce).toEqual(['cnp-a.p 1']);
  expect(cluster.valid('cnp/a/p')).toBe(
    'BudgetExceeded: the policy needs 4 selectors, and one may need 3: split it, or raise --selectors-per-policy (value operator.limits.selectorsPerPolicy); generation 1 stays enforced',
  );
  cluster.set(policy('a/p', 2, 3));
  expect(cluster.inForce).toEqual(['cnp-a.p 3']);
  expect(cluster.valid('cnp/a/p')).toBe('Valid: The policy is valid.');
});

describe('a namespace that has all the policies that it may have', () => {
  let cluster: Cluster;
  beforeEach(() => {
    cluster = new Cluster({ policiesPerNamespace: 2, selectorsPerPolicy: 5 });
    cluster.set(policy('a/p'), policy('a/q', 9), policy('a/r'), policy('a/s'), policy('b/p'), policy('all'));
  });

  it('keeps the first to come, refused ones too; others and clusterwide policies are not concerned', () => {
    // What needs too much closes whom it is about.
    expect(cluster.inForce).toEqual(['ccnp-all 1', 'cnp-a.p 1', 'cnp-a.q 1', 'cnp-b.p 1']);
    expect(cluster.desired.resolved.get('cnp-a.q')?.rules).toMatchObject([{ peers: [], defaultDeny: true }]);
    expect(cluster.valid('cnp/a/q')).toMatch(
      /^BudgetExceeded: the policy needs 9 selectors.*; what is refused allows nothing, /,
    );
    expect(cluster.valid('cnp/a/r')).toBe(
      'BudgetExceeded: namespace "a" has 2 other policies, refused ones too, and may have 2, so that this one is not read: remove some, put rules with one endpointSelector into one policy (field specs), or raise --policies-per-namespace (value operator.limits.policiesPerNamespace); nothing of this policy is enforced',
    );
    // Who has a place keeps it with an edit.
    cluster.set(policy('a/p', 2, 2), policy('a/r', 1, 2));
    expect(cluster.inForce).toContain('cnp-a.p 2');
    expect(cluster.valid('cnp/a/r')).toMatch(/^BudgetExceeded/);
  });

  it('reads those that wait when others go, each time as many as there is room for', () => {
    expect(cluster.inForce).toHaveLength(4);
    for (const name of ['p', 'q']) cluster.model.deletePolicy(`cnp/a/${name}`);
    expect(cluster.inForce).toEqual(['ccnp-all 1', 'cnp-a.r 1', 'cnp-a.s 1', 'cnp-b.p 1']);
    cluster.set(policy('a/t'));
    cluster.model.deletePolicy('cnp/a/r');
    expect(cluster.inForce).toContain('cnp-a.t 1');
  });

  it('after a restart what was enforced comes first, whatever is read first', () => {
    void cluster.inForce;
    const next = new Cluster({ policiesPerNamespace: 1 });
    next.model.adopt(cluster.desired.adopted());
    next.set(policy('a/s'), policy('a/r'), policy('a/p'), policy('all'), policy('b/p'));
    next.model.adoptionDone();
    expect(next.inForce).toEqual(['ccnp-all 1', 'cnp-a.p 1', 'cnp-b.p 1']);
    next.model.deletePolicy('cnp/a/p');
    expect(next.inForce).toHaveLength(3);
  });

  it('gives the place of a policy that went while nobody led to one that waits', () => {
    void cluster.inForce;
    const next = new Cluster({ policiesPerNamespace: 1 });
    next.model.adopt(cluster.desired.adopted());
    next.set(policy('a/s'));
    next.model.adoptionDone();
    expect(next.inForce).toEqual(['cnp-a.s 1']);
  });

  describe('counts a policy once for each 10 selectors, and each 50 CIDRs', () => {
    const cidrs = (key: string, count: number, generation = 1) => ({
      ...policy(key, 1, generation),
      object: {
        ...policy(key).object,
        spec: {
          endpointSelector: {},
          egress: [{ toCIDR: Array.from({ length: count }, (_, at) => `198.18.${at >> 8}.${at & 255}/32`) }],
        },
      },
    });
    let cluster: Cluster;
    beforeEach(() => {
      cluster = new Cluster({ policiesPerNamespace: 4 });
      cluster.set(cidrs('a/p', 101), policy('a/q', 9));
    });

    it('and refuses what does not fit with what it needs and what is left', () => {
      cluster.set(cidrs('a/r', 51));
      expect(cluster.inForce).toEqual(['cnp-a.p 1', 'cnp-a.q 1']);
      expect(cluster.valid('cnp/a/r')).toMatch(/^BudgetExceeded: namespace "a" has 4 other policies/);
      cluster.set(cidrs('a/p', 51, 2), cidrs('a/r', 101, 2));
      expect(cluster.valid('cnp/a/r')).toBe(
        'BudgetExceeded: the policy counts as 3, one for each 50 CIDRs and each 10 selectors begun, and namespace "a" has 1 left of the 4 policies that it may have: name fewer, remove others, or raise --policies-per-namespace (value operator.limits.policiesPerNamespace); nothing of this policy is enforced',
      );
      cluster.model.deletePolicy('cnp/a/p');
      expect(cluster.inForce).toEqual(['cnp-a.q 1', 'cnp-a.r 2']);
    });

    it('and keeps what is in force where an edit needs more', () => {
      cluster.set(policy('a/q', 11, 2));
      expect(cluster.inForce).toContain('cnp-a.q 1');
      cluster.set(policy('a/q', 9, 3), cidrs('a/p', 150, 2));
      expect(cluster.inForce).toEqual(['cnp-a.p 2', 'cnp-a.q 3']);
    });

    it('over a restart, too, also where it may have fewer since', () => {
      void cluster.inForce;
      const next = new Cluster({ policiesPerNamespace: 2 });
      next.model.adopt(cluster.desired.adopted());
      next.set(policy('a/r'), cidrs('a/p', 101), policy('a/q', 9));
      next.model.adoptionDone();
      expect(next.inForce).toEqual(['cnp-a.p 1', 'cnp-a.q 1']);
      next.set(cidrs('a/p', 150, 2));
      expect(next.inForce).toContain('cnp-a.p 2');
      next.model.deletePolicy('cnp/a/p');
      expect(next.inForce).toEqual(['cnp-a.q 1', 'cnp-a.r 1']);
    });
  });
});
