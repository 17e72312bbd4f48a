/** Test helper: random traces of changes for a model, the inputs that they lead to, and what the model shows. */
import { type CidrGroup, cidrGroupOf, type ServicePeers } from '@weir/policy';
import fc from 'fast-check';
import { adoptedSlice, sliceObject } from '../../kubernetes/objects.ts';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../../kubernetes/rows.ts';
import { ccnp, cnp, knp, namespace, node, pod, report } from '../../testing.ts';
import type {
  Adopted,
  IdentityRow,
  PeerSetRow,
  PodRow,
  PolicyRow,
  ResolvedRow,
  ResolvedVersionRow,
  SliceRow,
  StatusRow,
} from '../../types.ts';
import { type Edit, type Edits, TestModel } from './test-model.ts';

/** Desired tables, kept by applying edits. */
export class Desired {
  readonly identities = new Map<string, IdentityRow>();
  readonly peerSets = new Map<string, PeerSetRow>();
  readonly resolved = new Map<string, ResolvedRow>();
  readonly slices = new Map<string, SliceRow>();
  readonly statuses = new Map<string, StatusRow>();

  apply(edits: Edits): void {
    const edit = <T>(map: Map<string, T>, list: readonly Edit<T>[]): void => {
      for (const { key, row } of list) {
        if (row === undefined) map.delete(key);
        else map.set(key, row);
      }
    };
    edit(this.identities, edits.identities);
    edit(this.peerSets, edits.peerSets);
    edit(this.resolved, edits.resolved);
    edit(this.slices, edits.slices);
    edit(this.statuses, edits.statuses);
  }

  adopted(): Adopted {
    return {
      identities: [...this.identities.values()],
      peerSets: [...this.peerSets.values()],
      resolved: [...this.resolved.values()],
      slices: [...this.slices.values()].map((row) => adoptedSlice(sliceObject(row))),
      statuses: [...this.statuses.values()],
    };
  }

  /** `namespace/name` of the pod that each address speaks for; of one that two have, both. */
  owners(): Record<string, string> {
    const owners: Record<string, string> = {};
    for (const { namespace: ns, endpoints } of this.slices.values())
      for (const { name, networking } of endpoints)
        for (const { ipv4 = '' } of networking.addressing)
          owners[ipv4] = [...(owners[ipv4]?.split(' ') ?? []), `${ns}/${name}`].sort().join(' ');
    return owners;
  }

  plain(): object {
    const sorted = <T>(map: Map<string, T>): [string, T][] => [...map].sort(([a], [b]) => (a < b ? -1 : 1));
    return {
      identities: sorted(this.identities),
      peerSets: sorted(this.peerSets),
      resolved: sorted(this.resolved),
      slices: sorted(this.slices),
      statuses: sorted(this.statuses),
    };
  }
}

/** Inputs, as the API holds them. */
export class Inputs {
  readonly namespaces = new Map<string, ReturnType<typeof namespaceRow>>();
  readonly pods = new Map<string, PodRow>();
  readonly policies = new Map<string, PolicyRow>();
  readonly services = new Map<string, ServicePeers>();
  readonly cidrGroups = new Map<string, CidrGroup>();
  readonly nodes = new Map<string, ReturnType<typeof nodeRow>>();
  readonly reports = new Map<string, ReturnType<typeof nodeReportRow>>();
  readonly versions = new Map<string, ResolvedVersionRow>();
  version = 0;

  /** `between`: called after each row. */
  load(model: TestModel, between: () => void = () => {}): void {
    const each = <T>(rows: ReadonlyMap<string, T>, set: (row: T) => void): void => {
      for (const row of rows.values()) {
        set(row);
        between();
      }
    };
    each(this.namespaces, (row) => model.setNamespace(row));
    each(this.services, (row) => model.setService(row));
    each(this.cidrGroups, (row) => model.setCidrGroup(row));
    each(this.policies, (row) => model.setPolicy(row));
    each(this.reports, (row) => model.setReport(row));
    each(this.versions, (row) => model.setResolvedVersion(row));
    each(this.pods, (row) => model.setPod(row));
    each(this.nodes, (row) => model.setNode(row));
  }
}

/** Milliseconds, for all models of a test. */
export const clock = { now: 1_700_000_000_000 };
export const newModel = (graceMs = 1_000_000): TestModel =>
  new TestModel({ cluster: 'default', identityGraceMs: graceMs, now: () => clock.now });

/** Rounds until nothing is left. */
export const drain = (model: TestModel, desired: Desired): void => {
  do desired.apply(model.flush());
  while (model.more);
};

export type Step = (model: TestModel, inputs: Inputs) => void;

const NAMESPACES = ['a', 'b'];
const SPECS: readonly object[] = [
  { endpointSelector: {}, ingress: [{}] },
  {
    endpointSelector: { matchLabels: { app: 'x' } },
    ingress: [{ fromEndpoints: [{ matchLabels: { app: 'y' } }, {}] }],
  },
  {
    endpointSelector: { matchLabels: { app: 'y' } },
    egressDeny: [{ toEndpoints: [{ matchLabels: { 'k8s:io.kubernetes.pod.namespace': 'b' } }] }],
  },
  {
    endpointSelector: { matchExpressions: [{ key: 'app', operator: 'NotIn', values: ['x'] }] },
    egress: [{ toCIDR: ['10.0.0.0/8'] }, { toEntities: ['world'] }],
  },
  {
    endpointSelector: {},
    ingress: [{ fromEndpoints: [{ matchLabels: { 'io.cilium.k8s.namespace.labels.team': 'red' } }] }],
  },
  {
    endpointSelector: { matchLabels: { app: 'x' } },
    ingress: [{ toPorts: [{ ports: [{ port: 'http', protocol: 'TCP' }] }] }],
    egress: [{ toEndpoints: [{ matchLabels: { app: 'y' } }], toPorts: [{ ports: [{ port: 'dns' }] }] }],
  },
  { endpointSelector: {}, egress: [{ toPorts: [{ ports: [{ port: 'http', protocol: 'TCP' }] }] }] },
  {
    endpointSelector: { matchLabels: { app: 'x' } },
    egress: [
      { toServices: [{ k8sService: { serviceName: 's0', namespace: 'a' } }] },
      { toServices: [{ k8sService: { serviceName: 's1' } }], toPorts: [{ ports: [{ port: '80' }] }] },
    ],
    egressDeny: [{ toServices: [{ k8sServiceSelector: { selector: { matchLabels: { tier: 't1' } } } }] }],
  },
  {
    endpointSelector: {},
    egress: [{ toServices: [{ k8sServiceSelector: { selector: {}, namespace: 'b' } }] }],
  },
  {
    endpointSelector: { matchLabels: { app: 'y' } },
    ingress: [{ fromCIDRSet: [{ cidrGroupRef: 'g0', except: ['10.1.0.0/24'] }] }],
    egressDeny: [{ toCIDRSet: [{ cidrGroupSelector: { matchLabels: { tier: 't1' } } }] }],
  },
  // Invalid, and unsupported.
  { endpointSelector: {}, ingress: [{ fromCIDR: ['nonsense'] }] },
  {
    endpointSelector: {},
    ingress: [{ fromEndpoints: [{}], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], rules: { http: [{}] } }] }],
  },
];

const KNP_SPECS: readonly object[] = [
  { podSelector: {}, policyTypes: ['Ingress'] },
  {
    podSelector: { matchLabels: { app: 'x' } },
    ingress: [
      { from: [{ podSelector: { matchLabels: { app: 'y' } } }, { namespaceSelector: {} }], ports: [{ port: 'http' }] },
    ],
  },
  {
    podSelector: { matchLabels: { app: 'y' } },
    policyTypes: ['Egress'],
    egress: [{ to: [{ ipBlock: { cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] } }] }],
  },
];

/** Nodes with and without pod CIDRs, some that overlap, or that report addresses which pods have. */
const nodeStep: fc.Arbitrary<Step> = fc
  .record({
    name: fc.constantFrom('n1', 'n1', 'n2', 'n2', 'n3'),
    ready: fc.constantFrom('True', 'True', 'False', 'Unknown', 'gone'),
    podCIDRs: fc.option(
      fc.constantFrom(['10.1.0.0/28'], ['10.1.0.0/29'], ['10.1.0.8/29'], ['10.1.0.4/30', 'fd00::/64'], ['nonsense']),
      { nil: undefined },
    ),
    addresses: fc.subarray(['10.1.0.3', '10.1.0.9', 'n1.example.org']),
    created: fc.constantFrom('2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z'),
  })
  .map(
    ({ name, ready, ...more }): Step =>
      (model, inputs) => {
        if (ready === 'gone') {
          inputs.nodes.delete(name);
          model.deleteNode(name);
          return;
        }
        const { podCIDRs, ...rest } = more;
        const row = nodeRow(node(name, ready, { ...rest, ...(podCIDRs === undefined ? {} : { podCIDRs }) }));
        inputs.nodes.set(name, row);
        model.setNode(row);
      },
  );

/** Services that select pods, or have addresses; some come without what they had, some go. */
const serviceStep: fc.Arbitrary<Step> = fc
  .record({
    namespace: fc.constantFrom(...NAMESPACES),
    name: fc.constantFrom('s0', 's1'),
    tier: fc.constantFrom('t0', 't1'),
    app: fc.constantFrom('x', 'y', undefined),
    addresses: fc.subarray(['10.1.0.1', '192.0.2.1', '2001:db8::1']),
    gone: fc.integer({ min: 0, max: 3 }).map((n) => n === 0),
  })
  .map(
    ({ namespace: ns, name, tier, app, addresses, gone }): Step =>
      (model, inputs) => {
        const key = `${ns}/${name}`;
        if (gone) {
          inputs.services.delete(key);
          model.deleteService(key);
          return;
        }
        const row = {
          namespace: ns,
          name,
          labels: { tier },
          ...(app === undefined ? { addresses } : { selector: { app }, addresses: [] }),
        };
        inputs.services.set(key, row);
        model.setService(row);
      },
  );

/** CiliumCIDRGroups that come, change and go; some cannot be read. */
const cidrGroupStep: fc.Arbitrary<Step> = fc
  .record({
    name: fc.constantFrom('g0', 'g1'),
    tier: fc.constantFrom('t0', 't1'),
    externalCIDRs: fc.subarray(['10.1.0.0/16', '192.0.2.0/24', '2001:db8::/32', 'torn'], { maxLength: 3 }),
    gone: fc.integer({ min: 0, max: 3 }).map((n) => n === 0),
  })
  .map(
    ({ name, tier, externalCIDRs, gone }): Step =>
      (model, inputs) => {
        if (gone) {
          inputs.cidrGroups.delete(name);
          model.deleteCidrGroup(name);
          return;
        }
        const row = cidrGroupOf(name, { tier }, { externalCIDRs });
        inputs.cidrGroups.set(name, row);
        model.setCidrGroup(row);
      },
  );

export const step: fc.Arbitrary<Step> = fc.oneof(
  cidrGroupStep,
  fc.constant<Step>((model) => model.collect()),
  fc.record({ ns: fc.constantFrom(...NAMESPACES), team: fc.constantFrom('red', 'blue') }).map(
    ({ ns, team }): Step =>
      (model, inputs) => {
        const row = namespaceRow(namespace(ns, { team }));
        inputs.namespaces.set(ns, row);
        model.setNamespace(row);
      },
  ),
  fc
    .record({
      ns: fc.constantFrom(...NAMESPACES),
      n: fc.nat(5),
      app: fc.constantFrom('x', 'y', 'z'),
      ip: fc.option(fc.nat(12), { nil: undefined }),
      terminating: fc.boolean(),
      ports: fc.subarray(['http', 'dns'] as const),
      node: fc.constantFrom('n1', 'n1', 'n2', 'n2', undefined),
      uid: fc.constantFrom('', 'u1', 'u2'),
      hostNetwork: fc.boolean(),
      phase: fc.constantFrom('Running', 'Running', 'Running', 'Succeeded'),
    })
    .map(
      ({ ns, n, app, ip, node: on, uid, hostNetwork, phase, terminating, ports }): Step =>
        (model, inputs) => {
          const row = podRow(
            pod(
              `${ns}/p${n}`,
              { app },
              {
                ...(uid === '' ? {} : { uid }),
                ...(ip === undefined ? {} : { ip: `10.1.0.${ip}` }),
                ...(on === undefined ? {} : { node: on }),
                hostNetwork: hostNetwork && n === 0,
                phase,
                terminating: terminating && n > 2,
                ports: ports.map((name, i) => ({ name, containerPort: 80 + i })),
              },
            ),
          );
          inputs.pods.set(row.key, row);
          model.setPod(row);
        },
    ),
  fc.record({ ns: fc.constantFrom(...NAMESPACES), n: fc.nat(5) }).map(
    ({ ns, n }): Step =>
      (model, inputs) => {
        inputs.pods.delete(`${ns}/p${n}`);
        model.deletePod(`${ns}/p${n}`);
      },
  ),
  fc
    .record({
      ns: fc.constantFrom('a', 'b', undefined),
      n: fc.nat(2),
      spec: fc.constantFrom(...SPECS),
      // Another subject, which may select the same pods.
      also: fc.option(fc.constantFrom(...SPECS), { nil: undefined }),
      knpSpec: fc.constantFrom(...KNP_SPECS),
      k8s: fc.boolean(),
      anew: fc.boolean(),
    })
    .map(
      ({ ns, n, spec, also, knpSpec, k8s, anew }): Step =>
        (model, inputs) => {
          const [kind, object] =
            ns === undefined
              ? (['CiliumClusterwideNetworkPolicy', ccnp(`p${n}`, spec)] as const)
              : k8s
                ? (['NetworkPolicy', knp(`${ns}/p${n}`, knpSpec)] as const)
                : (['CiliumNetworkPolicy', cnp(`${ns}/p${n}`, spec)] as const);
          const before = inputs.policies.get(policyRow(object, kind).key);
          const uid = before === undefined ? `${kind}-${ns}-${n}-1` : anew ? `${before.uid}1` : before.uid;
          const generation = before === undefined || anew ? 1 : before.generation + 1;
          const specs = kind === 'NetworkPolicy' || also === undefined ? {} : { specs: [also] };
          const row = policyRow({ ...object, ...specs, metadata: { ...object.metadata, uid, generation } }, kind);
          inputs.policies.set(row.key, row);
          model.setPolicy(row);
        },
    ),
  fc.record({ ns: fc.constantFrom('a', 'b', undefined), n: fc.nat(2), k8s: fc.boolean() }).map(
    ({ ns, n, k8s }): Step =>
      (model, inputs) => {
        const key = ns === undefined ? `ccnp/p${n}` : `${k8s ? 'knp' : 'cnp'}/${ns}/p${n}`;
        inputs.policies.delete(key);
        model.deletePolicy(key);
      },
  ),
  ...Array.from({ length: 2 }, () => nodeStep),
  ...Array.from({ length: 2 }, () => serviceStep),
  fc.boolean().map(
    (fail): Step =>
      (model, inputs) => {
        // The nodes have all that there is.
        const version = inputs.version + 1;
        inputs.version = version;
        for (const row of model.handOut(version)) {
          const { uid, generation } = inputs.versions.get(row.name) ?? {};
          if (uid !== row.uid || generation !== row.generation) inputs.versions.set(row.name, row);
        }
        const failures = fail
          ? [...inputs.policies.values()].map(({ uid, generation }) => ({
              uid,
              generation,
              reason: 'Broken',
              message: 'm',
            }))
          : [];
        for (const name of ['n1', 'n2']) {
          const row = nodeReportRow(report(name, { policyVersion: String(version), failures }));
          inputs.reports.set(name, row);
          model.setReport(row);
        }
      },
  ),
);
