import { expect, it } from '@jest/globals';
import type { EndpointSlice, Service } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { createTables } from '../tables.ts';
import { serviceRow, serviceSliceRow } from './rows.ts';
import { deriveServicePeers } from './service-peers.ts';

const service = (name: string, spec: Service['spec']): Service => ({
  ...{ apiVersion: 'v1', kind: 'Service', metadata: { namespace: 'a', name, labels: { tier: 'x' } } },
  ...(spec === undefined ? {} : { spec }),
});
const slice = (name: string, of: string, ...addresses: string[]): EndpointSlice => ({
  ...{ apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', addressType: 'IPv4' },
  metadata: { namespace: 'a', name, labels: { 'kubernetes.io/service-name': of } },
  endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: false } })),
});

it('a Service stands for the pods that it selects, or else for the addresses of its slices, as they change', () => {
  const db = createStateDB();
  const tables = createTables(db);
  const { services, serviceSlices, servicePeers } = tables;
  using derivation = deriveServicePeers(db, tables);
  const put = (...objects: readonly (Service | EndpointSlice)[]): void =>
    db.write([services, serviceSlices], (txn) => {
      for (const object of objects)
        if ('endpoints' in object) txn.upsert(serviceSlices, serviceSliceRow(object));
        else txn.upsert(services, serviceRow(object as Service));
    });
  const peers = (): Record<string, unknown> => {
    derivation.flush();
    using snapshot = db.read();
    return Object.fromEntries(
      Array.from(snapshot.all(servicePeers), ({ name, selector, addresses }) => [name, selector ?? addresses]),
    );
  };
  put(
    service('web', { selector: { app: 'web' } }),
    service('manual', {}),
    service('empty', undefined),
    service('dns', { type: 'ExternalName', selector: { app: 'web' } }),
  );
  put(slice('web-1', 'web', '10.0.0.1'), slice('dns-1', 'dns', '192.0.2.9'), slice('nobody-1', '', '192.0.2.8'));
  put(
    slice('manual-1', 'manual', '192.0.2.2', '192.0.2.1', 'example.org'),
    slice('manual-2', 'manual', '192.0.2.1', '2001:DB8::1'),
  );
  expect(peers()).toEqual({
    web: { app: 'web' },
    manual: ['192.0.2.1', '192.0.2.2', '2001:db8::1'],
    empty: [],
    dns: [],
  });
  // A slice that goes over to another Service.
  put(slice('manual-1', 'empty', '192.0.2.2'));
  expect(peers()).toMatchObject({ manual: ['192.0.2.1', '2001:db8::1'], empty: ['192.0.2.2'] });
  put(service('web', {}));
  expect(peers()).toMatchObject({ web: ['10.0.0.1'] });
});
