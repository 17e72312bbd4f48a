/** Policies follow the Services that they name. */
import { describe, expect, it } from '@jest/globals';
import type { ServicePeers } from '@weir/policy';
import type { Table } from '@weir/statedb';
import { namespaceRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace } from '../testing.ts';
import type { PolicyEntry } from './policy-book.ts';
import { TestModel } from './testing/test-model.ts';

const newModel = (): TestModel => {
  const model = new TestModel({
    cluster: 'default',
    identityGraceMs: 1_000_000,
    now: () => 1_700_000_000_000,
  });
  model.setNamespace(namespaceRow(namespace('a')));
  return model;
};

/** The rules of each policy: its peers as text, sorted. */
function peersOf(model: TestModel): Record<string, readonly string[]> {
  do model.flush();
  while (model.more);
  using snapshot = model.db.read();
  const selectors = new Map(
    Array.from(snapshot.all(model.tables.peerSets), ({ row }) => [
      row.hash,
      row.selector.requirements.map(({ key, values }) => `${key.replace(/^.*[:.]/, '')}=${values.join()}`).join(' '),
    ]),
  );
  return Object.fromEntries(
    Array.from(snapshot.all(model.tables.resolved), ({ row: { source, rules } }) => [
      source.name,
      rules.flatMap(({ peers }) =>
        (peers ?? ['any']).map((peer) => {
          if (typeof peer === 'string') return peer;
          return 'cidr' in peer
            ? peer.cidr
            : 'peerSet' in peer
              ? (selectors.get(peer.peerSet) ?? '?')
              : JSON.stringify(peer);
        }),
      ),
    ]),
  );
}

function condition(model: TestModel, policy: string, type: string): string {
  using snapshot = model.db.read();
  const { conditions = [] } = snapshot.get(model.tables.statuses, policy)?.row.status ?? {};
  const { status, reason, message } = conditions.find((each) => each.type === type) ?? {};
  return `${status} ${reason}: ${message}`;
}

function policy(name: string, item: object, more: { generation?: number; deny?: boolean } = {}) {
  const { generation = 1, deny = false } = more;
  const object = cnp(`a/${name}`, {
    endpointSelector: {},
    [deny ? 'egressDeny' : 'egress']: [{ toServices: [item], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }] }],
  });
  return policyRow({ ...object, metadata: { ...object.metadata, uid: name, generation } }, 'CiliumNetworkPolicy');
}

const byName = (serviceName: string, namespace?: string) => ({
  k8sService: { serviceName, ...(namespace === undefined ? {} : { namespace }) },
});
const byTier = (tier: string, namespace?: string) => ({
  k8sServiceSelector: { selector: { matchLabels: { tier } }, ...(namespace === undefined ? {} : { namespace }) },
});
const service = (key: string, more: Partial<ServicePeers> = {}): ServicePeers => {
  const [namespace = '', name = ''] = key.split('/');
  return { namespace, name, labels: {}, addresses: [], ...more };
};

describe('a policy with toServices', () => {
  it('follows a Service that comes, changes and goes', () => {
    const model = newModel();
    model.setPolicy(policy('p', byName('db', 'b')));
    expect(peersOf(model)).toEqual({ p: [] });
    expect(condition(model, 'cnp/a/p', 'ResolvedRefs')).toBe(
      'False ServiceNotFound: spec.egress[0].toServices[0]: there is no Service "db" in namespace "b"; until there is one, nobody is meant',
    );
    expect(condition(model, 'cnp/a/p', 'Valid')).toContain('True Valid');
    model.setService(service('b/db', { selector: { app: 'db' } }));
    expect(peersOf(model)).toEqual({ p: ['app=db namespace=b'] });
    expect(condition(model, 'cnp/a/p', 'ResolvedRefs')).toContain('True Resolved');
    model.setService(service('b/db', { selector: { app: 'pg' } }));
    expect(peersOf(model)).toEqual({ p: ['app=pg namespace=b'] });
    model.setService(service('b/db', { addresses: ['192.0.2.1', '2001:db8::1'] }));
    expect(peersOf(model)).toEqual({ p: ['192.0.2.1/32', '2001:db8::1/128'] });
    model.deleteService('b/db');
    expect(peersOf(model)).toEqual({ p: [] });
    expect(condition(model, 'cnp/a/p', 'ResolvedRefs')).toContain('False ServiceNotFound');
  });

  it('follows labels, into a selector and out of it', () => {
    const model = newModel();
    model.setPolicy(policy('any', byTier('data')));
    model.setPolicy(policy('own', byTier('data', 'a'), { deny: true }));
    for (const key of ['a/db', 'b/db'])
      model.setService(service(key, { selector: { app: 'db' }, labels: { tier: 'data' } }));
    expect(peersOf(model)).toEqual({
      any: expect.arrayContaining(['app=db namespace=a', 'app=db namespace=b']),
      own: ['app=db namespace=a'],
    });
    model.setService(service('a/db', { selector: { app: 'db' }, labels: { tier: 'front' } }));
    expect(peersOf(model)).toEqual({ any: ['app=db namespace=b'], own: [] });
    expect(condition(model, 'cnp/a/own', 'ResolvedRefs')).toContain(
      'no Service that the selector selects in namespace "a"',
    );
  });

  it('keeps its cookies and its generation when a Service changes', () => {
    const model = newModel();
    model.setPolicy(policy('p', byName('db', 'a')));
    peersOf(model);
    const row = () => {
      using snapshot = model.db.read();
      return [...snapshot.all(model.tables.resolved)][0]?.row;
    };
    const before = row();
    model.setService(service('a/db', { addresses: ['192.0.2.1'] }));
    peersOf(model);
    expect(row()?.rules.map(({ cookie }) => cookie)).toEqual(before?.rules.map(({ cookie }) => cookie));
    expect(row()?.source).toEqual(before?.source);
  });

  it('is read when a Service changes that it names, and no other policy is', () => {
    const model = newModel();
    model.setPolicy(policy('p', byName('db', 'a')));
    model.setPolicy(policy('q', byName('web', 'a')));
    model.setPolicy(policy('r', byTier('data', 'b')));
    peersOf(model);
    const read = (): readonly string[] => {
      const { table } = model.db.tables().find(({ name }) => name === 'parsedPolicies') ?? {};
      if (table === undefined) throw new Error('no such table');
      using changes = model.db.changes(table as Table<PolicyEntry>, { name: 'test' });
      changes.next(100);
      model.setService(service('a/db', { labels: { tier: 'data' }, addresses: ['192.0.2.1'] }));
      peersOf(model);
      return changes.next(100).map(({ row }) => row.row.name);
    };
    expect(read()).toEqual(['p']);
    expect(peersOf(model)).toEqual({ p: ['192.0.2.1/32'], q: [], r: [] });
  });

  it('that does not fit into one object since a Service grew keeps what was enforced, until the Service is smaller', () => {
    const model = newModel();
    // As long as they can be: a Service may have 50,000 of them.
    const addresses = (count: number) =>
      Array.from({ length: count }, (_, n) => `200.${100 + (n >> 14)}.${100 + ((n >> 7) & 127)}.${100 + (n & 127)}`);
    model.setService(service('b/s', { addresses: addresses(1) }));
    model.setPolicy(policy('p', byName('s', 'b')));
    const one = { p: ['200.100.100.100/32'] };
    expect(peersOf(model)).toEqual(one);
    model.setService(service('b/s', { addresses: addresses(49_500) }));
    expect(peersOf(model)).toEqual(one);
    expect(condition(model, 'cnp/a/p', 'Valid')).toContain('False BudgetExceeded');
    model.setService(service('b/s', { addresses: addresses(2) }));
    expect(peersOf(model)).toEqual({ p: ['200.100.100.100/32', '200.100.100.101/32'] });
    expect(condition(model, 'cnp/a/p', 'Valid')).toContain('True Valid');
  });

  it('is as a new leader reads it that adopts what was written before a Service changed', () => {
    const model = newModel();
    model.setService(service('a/db', { addresses: ['192.0.2.1'] }));
    model.setPolicy(policy('p', byName('db', 'a')));
    peersOf(model);
    using snapshot = model.db.read();
    const resolved = Array.from(snapshot.all(model.tables.resolved), ({ row }) => row);
    const next = newModel();
    next.adopt({ identities: [], peerSets: [], resolved, slices: [], statuses: [] });
    next.setService(service('a/db', { addresses: ['192.0.2.2'] }));
    next.setPolicy(policy('p', byName('db', 'a')));
    next.adoptionDone();
    expect(peersOf(next)).toEqual({ p: ['192.0.2.2/32'] });
  });
});
