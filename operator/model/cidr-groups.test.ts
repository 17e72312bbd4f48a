/** Policies follow the CiliumCIDRGroups that they name. */
import { describe, expect, it } from '@jest/globals';
import { cidrGroupOf } from '@weir/policy';
import { namespaceRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';

const newModel = (): TestModel => {
  const model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now: () => 1_700_000_000_000 });
  model.setNamespace(namespaceRow(namespace('a')));
  return model;
};

function policy(name: string, item: object, list = 'ingress') {
  const object = cnp(`a/${name}`, { endpointSelector: {}, [list]: [{ fromCIDRSet: [item] }] });
  return policyRow({ ...object, metadata: { ...object.metadata, uid: name, generation: 1 } }, 'CiliumNetworkPolicy');
}

const group = (name: string, externalCIDRs: readonly string[], labels: Record<string, string> = {}) =>
  cidrGroupOf(name, labels, { externalCIDRs });

/** Peers of each policy as text, and whether its references are resolved. */
function stateOf(model: TestModel): Record<string, string> {
  do model.flush();
  while (model.more);
  using snapshot = model.db.read();
  return Object.fromEntries(
    Array.from(snapshot.all(model.tables.resolved), ({ row: { source, rules } }) => {
      const peers = rules.flatMap((rule) =>
        (rule.peers ?? []).map((peer) =>
          'cidr' in peer ? [peer.cidr, ...(peer.except ?? [])].join(' - ') : JSON.stringify(peer),
        ),
      );
      const conditions = snapshot.get(model.tables.statuses, `cnp/a/${source.name}`)?.row.status.conditions ?? [];
      const { reason, message } = conditions.find(({ type }) => type === 'ResolvedRefs') ?? {};
      return [source.name, `${peers.join(', ')}; ${reason === 'Resolved' ? reason : `${reason}: ${message}`}`];
    }),
  );
}

const MISSING =
  'CIDRGroupNotFound: spec.ingress[0].fromCIDRSet[0].cidrGroupRef: there is no CiliumCIDRGroup "g"; until there is one, nobody is meant';

describe('a policy that names a CiliumCIDRGroup', () => {
  it('follows the group that comes, changes and goes', () => {
    const model = newModel();
    model.setPolicy(policy('p', { cidrGroupRef: 'g', except: ['10.1.2.0/24'] }));
    expect(stateOf(model)).toEqual({ p: `; ${MISSING}` });
    model.setCidrGroup(group('g', ['10.1.0.0/16']));
    expect(stateOf(model)).toEqual({ p: '10.1.0.0/16 - 10.1.2.0/24; Resolved' });
    model.setCidrGroup(group('g', ['192.0.2.0/24', '2001:db8::/32']));
    expect(stateOf(model)).toEqual({ p: '192.0.2.0/24, 2001:db8::/32; Resolved' });
    model.setCidrGroup(group('g', []));
    expect(stateOf(model)).toEqual({ p: '; Resolved' });
    model.deleteCidrGroup('g');
    expect(stateOf(model)).toEqual({ p: `; ${MISSING}` });
  });

  it('follows labels, into a selector and out of it', () => {
    const model = newModel();
    model.setPolicy(policy('p', { cidrGroupSelector: { matchLabels: { of: 'x' } } }));
    const missing =
      '; CIDRGroupNotFound: spec.ingress[0].fromCIDRSet[0].cidrGroupSelector: there is no CiliumCIDRGroup that the selector selects; until there is one, nobody is meant';
    expect(stateOf(model)).toEqual({ p: missing });
    model.setCidrGroup(group('g', ['10.1.0.0/16'], { of: 'x' }));
    model.setCidrGroup(group('h', ['10.2.0.0/16'], { of: 'y' }));
    expect(stateOf(model)).toEqual({ p: '10.1.0.0/16; Resolved' });
    model.setCidrGroup(group('h', ['10.2.0.0/16'], { of: 'x' }));
    expect(stateOf(model)).toEqual({ p: '10.1.0.0/16, 10.2.0.0/16; Resolved' });
    model.setCidrGroup(group('g', ['10.1.0.0/16'], {}));
    model.deleteCidrGroup('h');
    expect(stateOf(model)).toEqual({ p: missing });
  });

  it('is closed by a group that cannot be read, and says so', () => {
    const model = newModel();
    model.setPolicy(policy('allow', { cidrGroupRef: 'g' }));
    model.setPolicy(policy('deny', { cidrGroupRef: 'g' }, 'ingressDeny'));
    model.setCidrGroup(group('g', ['10.1.0.0/16', '10.2.0.0']));
    expect(stateOf(model)).toMatchObject({
      allow: expect.stringMatching(/^;/),
      deny: expect.stringMatching(/^\{"entity":"world"\};/),
    });
    using snapshot = model.db.read();
    const valid = snapshot
      .get(model.tables.statuses, 'cnp/a/deny')
      ?.row.status.conditions?.find(({ type }) => type === 'Valid');
    expect(valid).toMatchObject({ status: 'False', reason: 'InvalidSpec' });
    expect(valid?.message).toContain('CiliumCIDRGroup g: spec.externalCIDRs[1]');
  });

  it('alone is read again when it changes', () => {
    const model = newModel();
    model.setPolicy(policy('p', { cidrGroupRef: 'g' }));
    model.setPolicy(policy('q', { cidrGroupRef: 'h' }));
    stateOf(model);
    model.setCidrGroup(group('g', ['10.1.0.0/16']));
    const edits = model.flush();
    expect(edits.resolved.map(({ key }) => key)).toEqual(['cnp-a.p']);
  });

  it('too large for an object is closed, and read again once the group is smaller', () => {
    const model = newModel();
    const many = Array.from({ length: 45_000 }, (_, i) => `2001:db8:${i.toString(16)}:ffff:ffff::/80`);
    model.setCidrGroup(group('g', many));
    model.setPolicy(policy('p', { cidrGroupRef: 'g' }));
    expect(stateOf(model).p).toMatch(/^;/);
    model.setCidrGroup(group('g', ['10.1.0.0/16']));
    expect(stateOf(model)).toEqual({ p: '10.1.0.0/16; Resolved' });
  });
});
