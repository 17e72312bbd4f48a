/** Pods of very many named ports: slices stay small, and nobody's name is dropped, because a deny by it would open. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import { namespaceRow, nodeRow, podRow } from '../kubernetes/rows.ts';
import { namespace, node, pod } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';
import { Desired, drain } from './testing/trace.ts';

interface Port {
  readonly name: string;
  readonly containerPort: number;
  readonly protocol?: string;
}

const ports = (count: number): Port[] =>
  Array.from({ length: count }, (_, at) => ({ name: `port-${at}`, containerPort: 1 + at }));

let told: string[];
let model: TestModel;
let desired: Desired;

beforeEach(() => {
  told = [];
  desired = new Desired();
  model = new TestModel({
    cluster: 'default',
    identityGraceMs: 1_000_000,
    now: () => 1_700_000_000_000,
    onNoIdentity: (...[, who, { message }]) => told.push(`${who}: ${message}`),
  });
  for (const name of ['tenant', 'victim']) model.setNamespace(namespaceRow(namespace(name)));
  model.setNode(nodeRow(node('home')));
  model.adoptionDone();
  set('victim/p', '10.0.0.1', ports(2));
});

function set(where: string, ip: string, named: readonly Port[], more: { readonly hostNetwork?: boolean } = {}): void {
  put(where, ip, named, more);
  drain(model, desired);
}

/** Without a round. */
function put(where: string, ip: string, named: readonly Port[], more: { readonly hostNetwork?: boolean } = {}): void {
  model.setPod(podRow(pod(where, { app: 'a' }, { node: 'home', ip, ports: named, ...more })));
}

/** Each pod that slices name, with the number of its named ports. */
const sliced = (): string[] =>
  [...desired.slices.values()]
    .flatMap(({ namespace: of, endpoints }) =>
      endpoints.map((each) => `${of}/${each.name} ${each['named-ports']?.length ?? 0}`),
    )
    .sort();

describe('a pod with more named ports than a pod may have', () => {
  it('has no identity, and is told how many they are, how many they may be and what to do; others have theirs', () => {
    set('tenant/p', '10.0.0.2', ports(10_000));
    expect(sliced()).toEqual(['victim/p 2']);
    const message =
      'the pod has 10000 named ports, of at most 256: take the names off ports that no policy names, or spread its containers over several pods';
    expect(told).toEqual([`tenant/p: ${message}`]);
    using snapshot = model.db.read();
    expect(
      Array.from(snapshot.all(model.tables.events), ({ row }) => [row.about.key, row.reason, row.message]),
    ).toEqual([['tenant/p', 'NoIdentity', message]]);
    // Neither its ports nor its address are kept of it.
    const [row] = [...snapshot.all(model.tables.pods)].filter(({ key }) => key === 'tenant/p');
    expect(row?.namedPorts).toEqual([]);
    set('tenant/q', '10.0.0.3', ports(1));
    expect(sliced()).toEqual(['tenant/q 1', 'victim/p 2']);
  });

  it('is known with as many as there may be, and not any more with one that is added', () => {
    set('tenant/p', '10.0.0.2', ports(256));
    expect(sliced()).toEqual(['tenant/p 256', 'victim/p 2']);
    set('tenant/p', '10.0.0.2', ports(257));
    expect(sliced()).toEqual(['victim/p 2']);
    set('tenant/p', '10.0.0.2', ports(256));
    expect(sliced()).toEqual(['tenant/p 256', 'victim/p 2']);
  });

  it('does not count a name twice, nor ports without one, nor those of a pod on the host network', () => {
    const again = ports(200);
    const nameless = Array.from({ length: 200 }, (_, at) => ({ containerPort: 1000 + at }) as Port);
    set('tenant/p', '10.0.0.2', [...again, ...again, ...nameless]);
    expect(sliced()).toEqual(['tenant/p 200', 'victim/p 2']);
    set('tenant/host', '10.0.0.3', ports(300), { hostNetwork: true });
    expect(told).toEqual([]);
  });

  it('counts each number that containers give one name', () => {
    const numbers = Array.from({ length: 257 }, (_, at) => ({ name: 'http', containerPort: 1 + at }));
    set('tenant/p', '10.0.0.2', numbers);
    expect(told).toEqual([expect.stringMatching(/^tenant\/p: the pod has 257 named ports/)]);
  });
});

describe('slices of pods with as many named ports as a pod may have', () => {
  const longest: Port[] = Array.from({ length: 256 }, (_, at) => ({
    name: `a-name-of-p-${1_000 + at}`.slice(-15),
    containerPort: 65_000 + at,
    protocol: 'SCTP',
  }));
  const bytes = (): number[] => [...desired.slices.values()].map((row) => JSON.stringify(row).length);

  it('have few of them, so that a change writes little; those of other pods are full', () => {
    for (let n = 0; n < 100; n += 1) put(`tenant/p${n}`, `10.1.0.${n}`, longest);
    drain(model, desired);
    expect(Math.max(...bytes())).toBeLessThan(100_000);
    expect(sliced()).toHaveLength(101);
    for (let n = 0; n < 99; n += 1) put(`victim/p${n}`, `10.2.0.${n}`, ports(2));
    drain(model, desired);
    expect([...desired.slices.values()].filter(({ namespace: of }) => of === 'victim')).toHaveLength(1);
  });

  it('take others when theirs go', () => {
    for (let n = 0; n < 20; n += 1) set(`tenant/p${n}`, `10.1.0.${n}`, longest);
    const before = desired.slices.size;
    for (let n = 0; n < 20; n += 1) model.deletePod(`tenant/p${n}`);
    for (let n = 0; n < 20; n += 1) set(`tenant/q${n}`, `10.1.0.${n}`, longest);
    expect(desired.slices.size).toBe(before);
  });

  it('fit into etcd also where pods got more ports in their places, as over a restart', () => {
    const name = (n: number): string => `tenant/${'x'.repeat(250)}${n}`;
    for (let n = 0; n < 100; n += 1) put(name(n), `10.1.0.${n}`, []);
    drain(model, desired);
    const [slice] = [...desired.slices.values()].filter(({ namespace: of }) => of === 'tenant');
    expect(slice?.endpoints).toHaveLength(100);
    for (let n = 0; n < 100; n += 1) put(name(n), `10.1.0.${n}`, longest);
    drain(model, desired);
    // 1.5 MiB less what the object has beside its endpoints.
    expect(Math.max(...bytes())).toBeLessThan(1_536_000);
  });
});

it('an address of the node that is none is not written into slices', () => {
  const object = pod('tenant/p', { app: 'a' }, { node: 'home', ip: '10.0.0.2' });
  model.setPod(podRow({ ...object, status: { ...object.status, hostIP: 'x'.repeat(1_000) } }));
  drain(model, desired);
  const [slice] = [...desired.slices.values()].filter(({ namespace: of }) => of === 'tenant');
  expect(slice?.endpoints.map(({ networking }) => networking)).toEqual([
    { addressing: [{ ipv4: '10.0.0.2' }], node: '' },
  ]);
});
