import { describe, expect, it } from '@jest/globals';
import type { EndpointSlice, Service } from '@weir/kube';
import type { Place } from './backends.ts';
import { claimRows } from './claims.ts';
import { frontendsOf } from './frontends.ts';
import { serviceObjectParts, sliceParts } from './rows.ts';
import type { Frontend, ServiceObjectRow } from './types.ts';

const PLACE: Place = { node: 'n1', zone: 'z1' };

function service(spec: Service['spec'], more: Partial<Service> = {}): Service {
  return {
    ...{ apiVersion: 'v1', kind: 'Service', metadata: { name: 'web', namespace: 'ns' }, ...more },
    spec: { type: 'ClusterIP', clusterIPs: ['10.96.0.1'], ports: [{ name: 'http', port: 80 }], ...spec },
  };
}

type Endpoint = EndpointSlice['endpoints'][number];

function slice(endpoints: readonly Endpoint[], more: Partial<EndpointSlice> = {}): EndpointSlice {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: 'web-1', namespace: 'ns', labels: { 'kubernetes.io/service-name': 'web' } },
    addressType: 'IPv4',
    endpoints,
    ports: [{ name: 'http', port: 8080 }],
    ...more,
  };
}

const row = (object: Service): ServiceObjectRow | undefined => [...serviceObjectParts(object).values()][0];

function frontends(object: Service, slices: readonly EndpointSlice[], place = PLACE): Frontend[] {
  const found = row(object);
  return found === undefined
    ? []
    : frontendsOf(
        found,
        slices.flatMap((each) => [...sliceParts(each).values()]),
        place,
      );
}

/** Frontends in short, with their backends. */
function short(object: Service, slices: readonly EndpointSlice[], place?: Place): Record<string, string> {
  return Object.fromEntries(
    frontends(object, slices, place).map(({ kind, scope, addresses, port, backends, elsewhere }) => [
      `${kind} ${scope} ${addresses.join('+')}:${port}`,
      backends.map(({ address, port: to }) => `${address}:${to}`).join(' ') + (elsewhere ? 'elsewhere' : ''),
    ]),
  );
}

const at = (address: string, node: string, more: Partial<Endpoint> = {}): Endpoint => ({
  ...{ addresses: [address], nodeName: node, conditions: { ready: true }, ...more },
});
const ending = { conditions: { ready: false, serving: true, terminating: true } };
const unready = { conditions: { ready: false, serving: false, terminating: false } };

describe('frontends', () => {
  it('a Service is reached at each kind of address that it has', () => {
    const object = service(
      {
        ...{ type: 'LoadBalancer', externalIPs: ['192.0.2.1'], ports: [{ name: 'http', port: 80, nodePort: 30_080 }] },
      },
      { status: { loadBalancer: { ingress: [{ ip: '192.0.2.2' }, { ip: '192.0.2.3', ipMode: 'Proxy' }] } } },
    );
    const backends = '10.0.0.1:8080';
    expect(short(object, [slice([at('10.0.0.1', 'n1')])])).toEqual({
      'ClusterIP cluster 10.96.0.1:80': backends,
      'NodePort cluster 0.0.0.0:30080': backends,
      'LoadBalancer cluster 192.0.2.2:80': backends,
      'ExternalIP cluster 192.0.2.1:80': backends,
    });
  });

  it('each family has the backends of its family, in the order of neither', () => {
    const object = service({ clusterIPs: ['2001:db8::1', '10.96.0.1'], externalIPs: ['2001:db8::9'] });
    const six = slice([at('2001:db8:1::1', 'n1')], { addressType: 'IPv6', metadata: slice([]).metadata });
    expect(short(object, [slice([at('10.0.0.1', 'n1')]), six])).toEqual({
      'ClusterIP cluster 10.96.0.1:80': '10.0.0.1:8080',
      'ClusterIP cluster 2001:db8::1:80': '2001:db8:1::1:8080',
      'ExternalIP cluster 2001:db8::9:80': '2001:db8:1::1:8080',
    });
    const single = service({ externalIPs: ['2001:db8::9'] });
    expect(short(single, [six])).toEqual({ 'ClusterIP cluster 10.96.0.1:80': '' });
  });

  it('each port has the numbers that slices give its name, which differ between pods with named target ports', () => {
    const object = service({
      ports: [
        { name: 'http', port: 80 },
        { name: 'dns', port: 53, protocol: 'UDP' },
      ],
    });
    const other = slice([at('10.0.0.2', 'n1')], {
      ports: [
        { name: 'http', port: 9090 },
        { name: 'dns', port: 53, protocol: 'UDP' },
      ],
    });
    expect(short(object, [slice([at('10.0.0.1', 'n1')]), other])).toEqual({
      'ClusterIP cluster 10.96.0.1:80': '10.0.0.1:8080 10.0.0.2:9090',
      'ClusterIP cluster 10.96.0.1:53': '10.0.0.2:53',
    });
  });

  it('headless Services, names of DNS and those of another proxy are left alone', () => {
    expect(row(service({ clusterIPs: ['None'] }))).toBeUndefined();
    expect(row(service({ type: 'ExternalName' }))).toBeUndefined();
    for (const label of ['service.kubernetes.io/service-proxy-name', 'service.kubernetes.io/headless'])
      expect(row(service({}, { metadata: { name: 'web', labels: { [label]: '' } } }))).toBeUndefined();
  });

  it('addresses that mean something else in each network namespace are neither frontends nor backends', () => {
    const bad = ['127.0.0.1', '0.0.0.0', '169.254.169.254', '224.0.0.1', '255.255.255.255', '::1', '::', 'fe80::1'];
    const all = [...bad, 'ff02::1', '::ffff:127.0.0.1', '::ffff:10.0.0.1', '::7f00:1', 'nonsense', ''];
    const object = service({ clusterIPs: ['10.96.0.1', '2001:db8::1'], externalIPs: [...all, '192.0.2.1'] });
    const hostile = slice([at('10.0.0.1', 'n1'), ...all.map((address) => at(address, 'n1'))]);
    expect(short(object, [hostile])).toEqual({
      'ClusterIP cluster 10.96.0.1:80': '10.0.0.1:8080',
      'ClusterIP cluster 2001:db8::1:80': '',
      'ExternalIP cluster 192.0.2.1:80': '10.0.0.1:8080',
    });
  });

  it('source ranges are those of the family; ranges that nobody can read let nobody in', () => {
    const of = (ranges: readonly string[]) =>
      frontends(
        service(
          { type: 'LoadBalancer', loadBalancerSourceRanges: ranges },
          { status: { loadBalancer: { ingress: [{ ip: '192.0.2.2' }] } } },
        ),
        [],
      ).map(({ kind, sourceRanges }) => [kind, sourceRanges]);
    const cluster = ['ClusterIP', undefined];
    expect(of([])).toEqual([cluster, ['LoadBalancer', undefined]]);
    expect(of([' 10.1.2.3/8', '2001:db8::/32'])).toEqual([cluster, ['LoadBalancer', ['10.0.0.0/8']]]);
    expect(of(['everybody'])).toEqual([cluster, ['LoadBalancer', []]]);
  });
});

describe('backends', () => {
  const slices = (...endpoints: readonly Endpoint[]) => [slice(endpoints)];
  const cluster = (object: Service, each: readonly EndpointSlice[], place?: Place) =>
    short(object, each, place)['ClusterIP cluster 10.96.0.1:80'];

  it('are those that are ready; where none is, those that serve while they end', () => {
    const web = service({});
    expect(cluster(web, slices(at('10.0.0.1', 'n1'), at('10.0.0.2', 'n1', ending)))).toBe('10.0.0.1:8080');
    const last = slices(at('10.0.0.1', 'n1', unready), at('10.0.0.2', 'n1', ending));
    expect(cluster(web, last)).toBe('10.0.0.2:8080');
    expect(frontends(web, last)[0]?.backends).toEqual([
      { address: '10.0.0.2', port: 8080, node: 'n1', state: 'terminating' },
    ]);
    expect(cluster(service({ publishNotReadyAddresses: true }), slices(at('10.0.0.1', 'n1', unready)))).toBe(
      '10.0.0.1:8080',
    );
  });

  it('with internalTrafficPolicy Local the cluster address has those of this node alone', () => {
    const object = service({ internalTrafficPolicy: 'Local', externalIPs: ['192.0.2.1'] });
    const both = slices(at('10.0.0.1', 'n1'), at('10.0.0.2', 'n2'));
    expect(short(object, both)).toEqual({
      'ClusterIP cluster 10.96.0.1:80': '10.0.0.1:8080',
      'ExternalIP cluster 192.0.2.1:80': '10.0.0.1:8080 10.0.0.2:8080',
    });
    expect(cluster(object, both, { node: 'n3' })).toBe('elsewhere');
    expect(cluster(object, [], { node: 'n3' })).toBe('');
    // A node falls back to those that end there, whatever others have.
    expect(cluster(object, slices(at('10.0.0.1', 'n1', ending), at('10.0.0.2', 'n2')))).toBe('10.0.0.1:8080');
  });

  it('with externalTrafficPolicy Local those of this node alone serve who comes from outside', () => {
    const object = service({
      ...{ type: 'NodePort', externalTrafficPolicy: 'Local', ports: [{ name: 'http', port: 80, nodePort: 30_080 }] },
    });
    expect(short(object, slices(at('10.0.0.1', 'n1'), at('10.0.0.2', 'n2')))).toEqual({
      'ClusterIP cluster 10.96.0.1:80': '10.0.0.1:8080 10.0.0.2:8080',
      'NodePort cluster 0.0.0.0:30080': '10.0.0.1:8080 10.0.0.2:8080',
      'NodePort local 0.0.0.0:30080': '10.0.0.1:8080',
    });
  });

  const hints = (zone: string, node?: string) => ({
    hints: { forZones: [{ name: zone }], ...(node === undefined ? {} : { forNodes: [{ name: node }] }) },
  });

  it('hints are followed where all have one and one is meant for this place', () => {
    const web = service({});
    const near = slices(at('10.0.0.1', 'n1', hints('z1')), at('10.0.0.2', 'n2', hints('z2')));
    expect(cluster(web, near)).toBe('10.0.0.1:8080');
    expect(cluster(web, near, { node: 'n2', zone: 'z2' })).toBe('10.0.0.2:8080');
    expect(cluster(web, near, { node: 'n3', zone: 'z3' })).toBe('10.0.0.1:8080 10.0.0.2:8080');
    expect(cluster(web, near, { node: 'n3' })).toBe('10.0.0.1:8080 10.0.0.2:8080');
    const some = slices(at('10.0.0.1', 'n1', hints('z1')), at('10.0.0.2', 'n2'));
    expect(cluster(web, some)).toBe('10.0.0.1:8080 10.0.0.2:8080');
    // Who is not ready says nothing.
    expect(cluster(web, slices(at('10.0.0.1', 'n1', hints('z1')), at('10.0.0.2', 'n2', unready)))).toBe(
      '10.0.0.1:8080',
    );
  });

  it('hints for nodes come before hints for zones', () => {
    const each = slices(at('10.0.0.1', 'n1', hints('z1', 'n1')), at('10.0.0.2', 'n2', hints('z1', 'n2')));
    expect(cluster(service({}), each)).toBe('10.0.0.1:8080');
    expect(cluster(service({}), each, { node: 'n3', zone: 'z1' })).toBe('10.0.0.1:8080 10.0.0.2:8080');
  });
});

it('of the addresses of an endpoint the first counts', () => {
  const [both] = sliceParts(slice([{ addresses: ['10.0.0.1', '10.0.0.2'] }])).values();
  expect(both?.endpoints).toMatchObject([{ addresses: ['10.0.0.1'] }]);
});

describe('an address that several Services claim', () => {
  const object = (name: string, created: string, spec: Service['spec']): ServiceObjectRow => {
    const found = row(service(spec, { metadata: { name, namespace: 'ns', creationTimestamp: created } }));
    if (found === undefined) throw new Error('no row');
    return found;
  };
  const has = (a: ServiceObjectRow, b: ServiceObjectRow): string | undefined => {
    const shared = new Set(claimRows(b).map(({ key }) => key));
    const claims = [a, b].flatMap(claimRows).filter(({ key }) => shared.has(key));
    const both = claims.filter(({ key, service: of }) =>
      claims.some((each) => each.key === key && each.service !== of),
    );
    return both.toSorted((x, y) => (x.rank < y.rank ? -1 : 1))[0]?.service.split('/')[1];
  };

  it('is of the cluster address, whoever was first: no external address takes what goes to the cluster DNS', () => {
    const evil = object('a', '2020-01-01T00:00:00Z', { clusterIPs: ['10.96.0.7'], externalIPs: ['10.96.0.10'] });
    const dns = object('dns', '2024-01-01T00:00:00Z', { clusterIPs: ['10.96.0.10'] });
    expect(has(evil, dns)).toBe('dns');
  });

  it('is of the older one, then of the first by name', () => {
    const external = (name: string, created: string, address: string) =>
      object(name, created, { clusterIPs: [address], externalIPs: ['192.0.2.1'] });
    const old = external('z', '2020-01-01T00:00:00Z', '10.96.0.1');
    expect(has(external('a', '2024-01-01T00:00:00Z', '10.96.0.2'), old)).toBe('z');
    expect(has(external('y', '2020-01-01T00:00:00Z', '10.96.0.2'), old)).toBe('y');
  });
});
