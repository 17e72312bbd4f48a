import { beforeEach, describe, expect, it } from '@jest/globals';
import { labelsKey, podIdentityLabels } from '@weir/labels';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { createTables } from '../create-tables.ts';
import { KnownAs } from './known-as.ts';

const POD = { namespace: 'ns', name: 'web-2', uid: 'u2' };
const PORT = { name: 'http', port: 80, protocol: 'TCP' } as const;

describe('as what other nodes know', () => {
  let db: StateDB;
  let tables: Tables;
  let knownAs: KnownAs;
  beforeEach(() => {
    db = createStateDB({ freeze: true });
    tables = createTables(db);
    knownAs = new KnownAs({ db, tables, clusterName: 'default' });
    db.write([tables.namespaces, tables.localPods, tables.remoteEndpoints, tables.identities], (txn) => {
      txn.insert(tables.namespaces, { name: 'ns', labels: { team: 'a' } });
      txn.insert(tables.localPods, {
        ...{ ...POD, labels: { app: 'web' }, serviceAccount: 'sa', addresses: [], namedPorts: [PORT] },
      });
      txn.insert(tables.remoteEndpoints, {
        ...{ namespace: 'ns', name: 'web-1', addresses: ['10.0.0.5'], identity: 300, node: 'n', podUid: 'u1' },
        namedPorts: [PORT],
      });
    });
  });

  function identity(id: number, podLabels: Readonly<Record<string, string>>): void {
    const labels = podIdentityLabels({
      ...{ namespace: 'ns', namespaceLabels: { team: 'a' }, podLabels, serviceAccount: 'sa', cluster: 'default' },
    });
    db.write([tables.identities], (txn) => txn.insert(tables.identities, { id, labels, labelsKey: labelsKey(labels) }));
  }

  it('a pod is what the slice of a pod with its labels and ports says', () => {
    identity(300, { app: 'web' });
    expect(knownAs.pod(POD)).toBe('300 http=80/TCP');
    expect(knownAs.address('10.0.0.5')).toBe(knownAs.pod(POD));
  });

  it('a pod has the lowest number of its labels', () => {
    identity(300, { app: 'web' });
    identity(299, { app: 'web' });
    expect(knownAs.pod(POD)).toBe('299 http=80/TCP');
  });

  it('is not known of a pod whose labels have no identity, of another uid, or of none', () => {
    identity(300, { app: 'other' });
    expect(knownAs.pod(POD)).toBeUndefined();
    identity(301, { app: 'web' });
    expect(knownAs.pod({ ...POD, uid: 'u3' })).toBeUndefined();
    expect(knownAs.pod({ namespace: 'ns', name: 'web-2' })).toBeUndefined();
    expect(knownAs.pod({ ...POD, name: 'web-3' })).toBeUndefined();
    expect(knownAs.address('10.0.0.6')).toBeUndefined();
  });
});
