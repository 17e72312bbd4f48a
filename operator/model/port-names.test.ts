import { describe, expect, it, jest } from '@jest/globals';
import { namespaceRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, knp, namespace, node, pod } from '../testing.ts';
import type { PolicyObjectKind } from '../types.ts';
import { Census } from './census.ts';
import { StatusBoard } from './status-board.ts';
import { TestModel } from './testing/test-model.ts';

const http = [{ name: 'http', containerPort: 8080 }];
let generation = 0;

/** A model with pods and one policy; `refs` is what its ResolvedRefs says now. */
class World {
  readonly model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now: () => 1_700_000_000_000 });
  #refs = '';
  readonly #ips = new Map<string, string>();
  /** Statuses that were looked at by the last `refs`. */
  folded = 0;

  constructor() {
    for (const name of ['a', 'b']) this.model.setNamespace(namespaceRow(namespace(name)));
    this.model.setNode(nodeRow(node('n1')));
    this.model.adoptionDone();
  }

  pod(where: string, app: string, ports: Parameters<typeof pod>[2] & object = {}): void {
    const ip = this.#ips.get(where) ?? `10.0.0.${this.#ips.size}`;
    this.#ips.set(where, ip);
    this.model.setPod(podRow(pod(where, { app }, { ip, node: 'n1', ...ports })));
  }

  /** A pod without an address. */
  pending(where: string, app: string): void {
    this.model.setPod(podRow(pod(where, { app }, { node: 'n1' })));
  }

  policy(spec: object, kind: PolicyObjectKind = 'CiliumNetworkPolicy'): void {
    generation += 1;
    const object = kind === 'NetworkPolicy' ? knp('a/p', spec) : cnp('a/p', spec);
    this.model.setPolicy(policyRow({ ...object, metadata: { ...object.metadata, uid: 'u', generation } }, kind));
  }

  get refs(): string {
    const edits = this.model.flush().statuses;
    this.folded = edits.length;
    for (const { row } of edits) {
      const found = row?.status.conditions.find(({ type }) => type === 'ResolvedRefs');
      this.#refs = `${found?.status} ${found?.reason} ${found?.message}`;
    }
    return this.#refs;
  }
}

const INGRESS = {
  endpointSelector: { matchLabels: { app: 'web' } },
  ingress: [{}, { toPorts: [{ ports: [{ port: 'http', protocol: 'TCP' }] }] }],
};
const EGRESS = {
  endpointSelector: { matchLabels: { app: 'web' } },
  egress: [
    { toEndpoints: [{ matchLabels: { app: 'db' } }], toPorts: [{ ports: [{ port: 'HTTP', protocol: 'TCP' }] }] },
  ],
};

describe('port names', () => {
  it('a pod that begins or ceases to give many wakes a policy that names them once', () => {
    const world = new World();
    const names = Array.from({ length: 10 }, (_, n) => `n${n}`);
    const ports = [{ ports: names.map((port) => ({ port, protocol: 'TCP' })) }];
    world.policy({ endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{ toPorts: ports }] });
    world.pod('a/web', 'web');
    expect(world.refs).toMatch(/^False PortNameNotFound/);
    const marks = jest.spyOn(StatusBoard.prototype, 'mark');
    world.pod('a/web', 'web', { ports: names.map((name, n) => ({ name, containerPort: 8_000 + n })) });
    expect(world.refs).toMatch(/^True Resolved/);
    world.pod('a/web', 'web');
    expect(world.refs).toMatch(/^False PortNameNotFound/);
    expect(marks.mock.calls.length).toBe(2);
    marks.mockRestore();
  });

  it('ingress: the selected pods are asked, and one that brings the name is enough', () => {
    const world = new World();
    world.policy(INGRESS);
    // Nobody is there to ask.
    expect(world.refs).toMatch(/^True Resolved/);
    world.pod('a/other', 'db', { ports: http });
    world.pod('a/web-1', 'web');
    expect(world.refs).toBe(
      'False PortNameNotFound spec.ingress[1]: port name "http" (TCP): no pod that the policy selects has a container port of this name; until one has, it matches no port',
    );
    // Another protocol, or another namespace, is not it.
    world.pod('a/web-2', 'web', { ports: [{ name: 'http', containerPort: 53, protocol: 'UDP' }] });
    world.pod('b/web-3', 'web', { ports: http });
    expect(world.refs).toMatch(/^False PortNameNotFound/);
    world.pod('a/web-4', 'web', { ports: http });
    expect(world.refs).toMatch(/^True Resolved/);
    world.model.deletePod('a/web-4');
    expect(world.refs).toMatch(/^False PortNameNotFound/);
    for (const name of ['a/web-1', 'a/web-2']) world.model.deletePod(name);
    expect(world.refs).toMatch(/^True Resolved/);
  });

  it('egress: a name to which pods of equal labels give several numbers is told, as long as it lasts', () => {
    const world = new World();
    world.policy(EGRESS);
    const port = (containerPort: number) => ({ ports: [{ name: 'http', containerPort }] });
    world.pod('a/db-1', 'db', port(8080));
    // Others may give the name what they like.
    world.pod('a/web-1', 'web', port(9090));
    world.pod('a/web-2', 'web', port(9091));
    expect(world.refs).toMatch(/^True Resolved/);
    world.pod('a/db-2', 'db', port(9090));
    expect(world.refs).toBe(
      'False PortNameAmbiguous spec.egress[0]: port name "http" (TCP) is 8080 (pod a/db-1), 9090 (pod a/db-2), of pods of equal labels; until pods of equal labels agree, an allow by the name reaches none of them',
    );
    world.pod('a/db-2', 'db', port(8080));
    expect(world.refs).toMatch(/^True Resolved/);
    world.pod('a/db-2', 'db', port(9090));
    world.model.deletePod('a/db-1');
    expect(world.refs).toMatch(/^True Resolved/);
  });

  it('egress: the peers are asked', () => {
    const world = new World();
    world.policy(EGRESS);
    world.pod('a/web-1', 'web', { ports: http });
    expect(world.refs).toMatch(/^True Resolved/);
    world.pod('a/db-1', 'db');
    expect(world.refs).toMatch(/spec\.egress\[0\]: port name "http" \(TCP\): no peer of the rule has/);
    world.pod('a/db-1', 'db', { ports: http });
    expect(world.refs).toMatch(/^True Resolved/);
    // A relabelled pod takes its names along.
    world.pod('a/db-2', 'db');
    world.pod('a/db-1', 'web', { ports: http });
    expect(world.refs).toMatch(/^False PortNameNotFound/);
  });

  it('egress without a peer asks every pod, addresses give no names', () => {
    const world = new World();
    const ports = [{ ports: [{ port: 'http', protocol: 'TCP' }] }];
    world.policy({ endpointSelector: { matchLabels: { app: 'web' } }, egress: [{ toPorts: ports }] });
    expect(world.refs).toMatch(/^True Resolved/);
    world.pod('b/x', 'x');
    expect(world.refs).toMatch(/^False PortNameNotFound/);
    world.pod('b/y', 'y', { ports: http });
    expect(world.refs).toMatch(/^True Resolved/);
    world.policy({ endpointSelector: {}, egress: [{ toCIDR: ['192.0.2.0/24'], toPorts: ports }] });
    expect(world.refs).toMatch(/^False PortNameNotFound spec\.egress\[0\]/);
    world.policy({ endpointSelector: {}, egress: [{ toEntities: ['cluster'], toPorts: ports }] });
    expect(world.refs).toMatch(/^True Resolved/);
  });

  it('a protocol that is any protocol is found by one of them', () => {
    const world = new World();
    world.policy({ endpointSelector: {}, ingress: [{ toPorts: [{ ports: [{ port: 'http', protocol: 'ANY' }] }] }] });
    world.pod('a/web-1', 'web');
    expect(world.refs).toMatch(/port name "http" \(TCP, UDP, SCTP\)/);
    world.pod('a/web-2', 'web', { ports: http });
    expect(world.refs).toMatch(/^True Resolved/);
  });

  it('a NetworkPolicy is asked about in the same way', () => {
    const world = new World();
    world.policy(
      { podSelector: { matchLabels: { app: 'web' } }, ingress: [{ ports: [{ port: 'http' }] }] },
      'NetworkPolicy',
    );
    world.pod('a/web-1', 'web');
    expect(world.refs).toMatch(/^False PortNameNotFound spec\.ingress\[0\]/);
    world.pod('a/web-1', 'web', { ports: http });
    expect(world.refs).toMatch(/^True Resolved/);
  });

  it('of a NetworkPolicy several numbers are right: each pod has its own', () => {
    const world = new World();
    const to = [{ podSelector: { matchLabels: { app: 'db' } } }];
    const egress = [{ to, ports: [{ port: 'http' }] }];
    world.policy({ podSelector: { matchLabels: { app: 'web' } }, policyTypes: ['Egress'], egress }, 'NetworkPolicy');
    world.pod('a/db-1', 'db', { ports: http });
    world.pod('a/db-2', 'db', { ports: [{ name: 'http', containerPort: 9090 }] });
    expect(world.refs).toMatch(/^True Resolved/);
  });

  it('pods that bring nothing new wake no policy', () => {
    const world = new World();
    world.policy(EGRESS);
    world.pod('a/db-1', 'db', { ports: http });
    expect(world.refs).toMatch(/^True Resolved/);
    for (let n = 0; n < 20; n += 1) world.pod(`a/db-${n + 2}`, 'db', { ports: http });
    expect(world.refs).toMatch(/^True Resolved/);
    expect(world.folded).toBe(0);
  });

  it('containers and sidecars name ports, other init containers do not; the first of a name counts', () => {
    const object = pod('a/p', {}, { ports: [...http, { name: 'http', containerPort: 9 }, { containerPort: 7 }] });
    const initContainers = [
      { name: 'setup', ports: [{ name: 'setup', containerPort: 1 }] },
      {
        name: 'proxy',
        restartPolicy: 'Always',
        ports: [
          { name: 'http', containerPort: 2 },
          { name: 'proxy', containerPort: 3, protocol: 'UDP' },
        ],
      },
    ];
    expect(podRow({ ...object, spec: { ...object.spec, initContainers } } as typeof object).namedPorts).toEqual([
      { name: 'http', port: 8080, protocol: 'TCP' },
      { name: 'proxy', port: 3, protocol: 'UDP' },
    ]);
  });
});

describe('a policy that names many ports of many sets', () => {
  const SETS = 40;
  /** Each of its sets has every pod but one. */
  const egress = (names: number): object => ({
    endpointSelector: {},
    egress: [
      {
        toEndpoints: Array.from({ length: SETS }, (_, n) => ({
          matchExpressions: [{ key: 'app', operator: 'NotIn', values: [`a${n}`] }],
        })),
        toPorts: [{ ports: Array.from({ length: names }, (_, n) => ({ port: `p${n}`, protocol: 'TCP' })) }],
      },
    ],
  });

  it('says which five are missing first', () => {
    const world = new World();
    world.pod('a/p0', 'b0', { ports: [{ name: 'p1', containerPort: 1 }] });
    world.policy(egress(40));
    expect(world.refs).toMatch(
      /^False PortNameNotFound .*port name "p0".*"p10".*"p11".*"p12".*"p13".*; there may be more: not all port names were looked for$/,
    );
  });

  it('is looked through as far as that takes no long time, and says so', () => {
    const world = new World();
    for (let n = 0; n < 300; n += 1) world.pending(`a/p${n}`, `b${n}`);
    world.policy(egress(40));
    const looks = jest.spyOn(Census.prototype, 'has');
    expect(world.refs).toMatch(/^True Resolved No missing reference was found, but not all were checked/);
    expect(looks.mock.calls.length).toBeGreaterThan(1_000);
    expect(looks.mock.calls.length).toBeLessThan(10_100);
    looks.mockRestore();
  });
});
