import { expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { eventually } from '../../test/eventually.ts';
import { createTables } from '../create-tables.ts';
import { silent } from '../datapath/testing/lab.ts';
import { LocalNumbers } from '../derive/numbers.ts';
import { NameIdentities } from './name-identities.ts';

it('says of rules by names that there are too many sets of patterns, until there are fewer', async () => {
  const db = createStateDB({ freeze: true });
  const tables = createTables(db);
  const numbers = new LocalNumbers(db);
  const core = {
    db,
    tables,
    numbers,
    policyRevision: () => 0,
    waitPolicyRevision: async () => ({ revision: 0, failing: [] }),
  };
  const identities = new NameIdentities({ core, log: silent, mostSets: 4 });
  const policy = (uid: string, fqdn: string) => ({
    ...{ uid, kind: 'CiliumNetworkPolicy' as const, namespace: 'ns', name: uid, generation: 1 },
    rules: [
      {
        ...{ subject: 's', direction: 'egress' as const, verdict: 'allow' as const, peers: [{ fqdn }] },
        ...{ defaultDeny: true, cookie: 1, path: 'spec.egress[0]' },
      },
    ],
  });
  const known = db.initialiser(tables.policies, 'test');
  db.write([tables.policies], (txn) => {
    txn.upsert(tables.policies, policy('one', 'a.io'));
    txn.upsert(tables.policies, policy('other', '*.io'));
    txn.upsert(tables.policies, policy('third', 'b.io'));
    known(txn);
  });
  identities.start();
  const sets = (): string[] => {
    using snapshot = db.read();
    return Array.from(snapshot.all(tables.nameIdentities), ({ patterns }) => patterns.join(' ')).sort();
  };
  const faults = (): string[] => {
    using snapshot = db.read();
    return Array.from(snapshot.all(tables.proxyFaults), ({ proxy, reason }) => `${proxy} ${reason}`);
  };
  await eventually(
    async () => sets(),
    (now) => now.length === 3,
  );
  const [one, other] = [numbers.names(['a.io']), numbers.names(['*.io'])];
  identities.want([one, other]);
  identities.want([one, other]);
  expect([sets(), faults()]).toEqual([['*.io', '*.io a.io', 'a.io', 'b.io'], []]);
  identities.want([numbers.names(['b.io']), other]);
  expect(faults()).toEqual(['names NamesExceeded']);
  db.write([tables.policies], (txn) => txn.delete(tables.policies, 'other'));
  await eventually(
    async () => sets(),
    (now) => now.length === 2,
  );
  expect([sets(), faults()]).toEqual([['a.io', 'b.io'], []]);
  await identities.stop();
});
