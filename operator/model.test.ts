import { describe, expect, it } from '@jest/globals';
import { type LabelMap, matches } from '@weir/labels';
import fc from 'fast-check';
import { Model } from './model.ts';
import { hashesOf } from './policy-book.ts';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from './rows.ts';
import { SLICE_SIZE } from './slices.ts';
import { ccnp, cnp, knp, namespace, node, pod, report } from './testing.ts';
import type {
  Adopted,
  Edit,
  Edits,
  IdentityRow,
  PeerSetRow,
  PodRow,
  PolicyRow,
  ResolvedRow,
  SliceRow,
  StatusRow,
} from './types.ts';

/** Desired tables, kept by applying edits. */
class Desired {
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
      slices: [...this.slices.values()].map(({ name, namespace: ns, endpoints }) => ({
        name,
        namespace: ns,
        pods: endpoints.map((endpoint) => endpoint.name),
      })),
      statuses: [...this.statuses.values()],
    };
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
class Inputs {
  readonly namespaces = new Map<string, ReturnType<typeof namespaceRow>>();
  readonly pods = new Map<string, PodRow>();
  readonly policies = new Map<string, PolicyRow>();
  readonly nodes = new Map<string, ReturnType<typeof nodeRow>>();
  readonly reports = new Map<string, ReturnType<typeof nodeReportRow>>();

  load(model: Model): void {
    for (const row of this.namespaces.values()) model.setNamespace(row);
    for (const row of this.policies.values()) model.setPolicy(row);
    for (const row of this.nodes.values()) model.setNode(row);
    for (const row of this.reports.values()) model.setReport(row);
    for (const row of this.pods.values()) model.setPod(row);
  }
}

let clock = 1_700_000_000_000;
const newModel = (graceMs = 1_000_000): Model =>
  new Model({ cluster: 'default', identityGraceMs: graceMs, now: () => clock });

const drain = (model: Model, desired: Desired): void => {
  do desired.apply(model.flush());
  while (model.more);
};

type Step = (model: Model, inputs: Inputs) => void;

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

const step: fc.Arbitrary<Step> = fc.oneof(
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
      node: fc.constantFrom('n1', 'n2', undefined),
      hostNetwork: fc.boolean(),
      phase: fc.constantFrom('Running', 'Running', 'Running', 'Succeeded'),
    })
    .map(
      ({ ns, n, app, ip, node: on, hostNetwork, phase, terminating, ports }): Step =>
        (model, inputs) => {
          const row = podRow(
            pod(
              `${ns}/p${n}`,
              { app },
              {
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
      knpSpec: fc.constantFrom(...KNP_SPECS),
      k8s: fc.boolean(),
      anew: fc.boolean(),
    })
    .map(
      ({ ns, n, spec, knpSpec, k8s, anew }): Step =>
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
          const row = policyRow({ ...object, metadata: { ...object.metadata, uid, generation } }, kind);
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
  fc.record({ name: fc.constantFrom('n1', 'n2'), ready: fc.constantFrom('True', 'False', 'Unknown') }).map(
    ({ name, ready }): Step =>
      (model, inputs) => {
        const row = nodeRow(node(name, ready));
        inputs.nodes.set(name, row);
        model.setNode(row);
      },
  ),
  fc.record({ name: fc.constantFrom('n1', 'n2'), fail: fc.boolean() }).map(
    ({ name, fail }): Step =>
      (model, inputs) => {
        // The node reports what it could have seen: every policy as it is now.
        const policies = Object.fromEntries(
          [...inputs.policies.values()].map(({ uid, generation }) => [uid, { generation, endpoints: 1 }]),
        );
        const failures = fail
          ? [...inputs.policies.values()].map(({ uid, generation }) => ({
              uid,
              generation,
              reason: 'Broken',
              message: 'm',
            }))
          : [];
        const row = nodeReportRow(report(name, { policies, failures }));
        inputs.reports.set(name, row);
        model.setReport(row);
      },
  ),
);

describe('model', () => {
  it('incremental equals recomputed by a new model that adopts, whatever the trace', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(step, fc.boolean()), { maxLength: 80, size: 'max' }), (trace) => {
        const inputs = new Inputs();
        const desired = new Desired();
        const model = newModel(0);
        model.adopt(desired.adopted());
        model.adoptionDone();
        for (const [act, flush] of trace) {
          clock += 1_500;
          act(model, inputs);
          if (flush) drain(model, desired);
        }
        model.collect();
        drain(model, desired);

        const again = new Desired();
        const fresh = newModel(0);
        fresh.adopt(desired.adopted());
        inputs.load(fresh);
        fresh.adoptionDone();
        fresh.collect();
        drain(fresh, again);
        expect(again.plain()).toEqual(desired.plain());
      }),
      { numRuns: 300 },
    );
  });

  it('peer sets hold exactly the identities that match, slices exactly the pods with an address, and references resolve', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80, size: 'max' }), (trace) => {
        const inputs = new Inputs();
        const desired = new Desired();
        const model = newModel();
        for (const act of trace) act(model, inputs);
        drain(model, desired);
        const labels = new Map<number, LabelMap>([...desired.identities.values()].map((row) => [row.id, row.labels]));
        for (const set of desired.peerSets.values()) {
          const expected = [...labels].filter(([, map]) => matches(set.selector, map)).map(([id]) => id);
          expect(set.identities).toEqual(expected.sort((a, b) => a - b));
        }
        // What stays enforced of a policy that cannot be read is its own past, never that of another of its name.
        const uids = new Map([...inputs.policies.values()].map((row) => [row.uid, row.generation]));
        for (const { source } of desired.resolved.values()) {
          expect(source.generation).toBeLessThanOrEqual(uids.get(source.uid) ?? Number.NaN);
        }
        const named = new Set([...desired.resolved.values()].flatMap((row) => [...hashesOf(row.rules)]));
        expect(new Set([...desired.peerSets.values()].map((row) => row.hash))).toEqual(named);
        const shown = [...desired.slices.values()].flatMap((s) => s.endpoints.map((e) => `${s.namespace}/${e.name}`));
        const there = [...inputs.pods.values()].filter(
          (p) => !p.hostNetwork && !p.finished && p.addresses.length > 0 && inputs.namespaces.has(p.namespace),
        );
        const owners = there.filter((p) => {
          const rivals = there.filter((other) => other !== p && other.addresses[0] === p.addresses[0]);
          return p.terminating ? rivals.length === 0 : rivals.every((other) => other.terminating);
        });
        expect(shown.sort()).toEqual(owners.map((p) => p.key).sort());
        const ips = [...desired.slices.values()].flatMap((s) =>
          s.endpoints.map((e) => e.networking.addressing[0]?.ipv4),
        );
        expect(new Set(ips).size).toBe(ips.length);
        const cookies = [...desired.resolved.values()].flatMap((row) => row.rules.map((rule) => rule.cookie));
        expect(new Set(cookies).size).toBe(cookies.length);
        for (const cookie of cookies) expect(cookie).toBeGreaterThan(0);
        // One number for each label set.
        const keys = [...labels.values()].map((map) => JSON.stringify(map));
        expect(new Set(keys).size).toBe(keys.length);
      }),
      { numRuns: 300 },
    );
  });

  it('a pod keeps its slice, and slices hold at most 100 pods', () => {
    const model = newModel();
    const desired = new Desired();
    model.setNamespace(namespaceRow(namespace('a')));
    const place = (n: number): void =>
      model.setPod(podRow(pod(`a/p${n}`, { app: 'x' }, { ip: `10.0.${n >> 8}.${n & 255}` })));
    for (let n = 0; n < SLICE_SIZE * 2 + 50; n += 1) place(n);
    drain(model, desired);
    expect([...desired.slices.values()].map((row) => row.endpoints.length).sort((a, b) => b - a)).toEqual([
      100, 100, 50,
    ]);
    const others = [...desired.slices.values()].filter((row) => row.name !== 'ces-a-0');
    for (let n = 0; n < 50; n += 1) model.deletePod(`a/p${n}`);
    const edits = model.flush();
    expect(edits.slices.map((edit) => edit.key)).toEqual(['ces-a-0']);
    desired.apply(edits);
    for (const row of others) expect(desired.slices.get(row.name)).toBe(row);
  });

  it('a status waits for the generation, not for the uid alone', () => {
    const model = newModel();
    const desired = new Desired();
    model.setNamespace(namespaceRow(namespace('a')));
    model.setNode(nodeRow(node('n1')));
    model.setPod(podRow(pod('a/p', { app: 'x' }, { ip: '10.0.0.1', node: 'n1' })));
    const at = (generation: number): PolicyRow => {
      const object = cnp('a/p', { endpointSelector: {}, ingress: [{}] });
      return policyRow({ ...object, metadata: { ...object.metadata, uid: 'u', generation } }, 'CiliumNetworkPolicy');
    };
    const programmed = (): string | undefined => {
      drain(model, desired);
      const found = desired.statuses.get('cnp/a/p')?.status.conditions.find((c) => c.type === 'Programmed');
      return `${found?.status}/${found?.reason}/${found?.observedGeneration}`;
    };
    model.setPolicy(at(1));
    expect(programmed()).toBe('False/Progressing/1');
    model.setReport(nodeReportRow(report('n1', { policies: { u: { generation: 1, endpoints: 1 } } })));
    expect(programmed()).toBe('True/Programmed/1');
    model.setPolicy(at(2));
    expect(programmed()).toBe('False/Progressing/2');
    model.setNode(nodeRow(node('n1', 'Unknown')));
    expect(programmed()).toBe('True/NoMatchingEndpoints/2');
  });
});
