/**
 * Amounts: objects that are well-formed and that their author may write, of which there are too many, or which are too large. Each kind of crowd
 * uses up one of the things that everybody shares: selectors, identities, CIDRs, rows, names of ports, places in queues.
 */
import fc from 'fast-check';
import type { Limits } from '../../operator/limits.ts';
import { withOwnAddresses } from './admission.ts';
import type { Hostile } from './hostile.ts';
import { type Author, KINDS } from './kinds.ts';
import { type Body, NODES, TAKEN, TENANT } from './story.ts';

/** What a namespace may use here: small, so that few objects use it up. The honest part needs less. */
export const TIGHT: Partial<Limits> = {
  identitiesPerNamespace: 12,
  selectorsPerPolicy: 40,
};

/** In per cent of a budget: beyond it, and what one cluster of the suite has time for. */
const LARGE = 130;

/** `size`: from below a budget to beyond it, in per cent of it. */
type Crowd = (size: number) => readonly Hostile[];

const of = (author: Author, kind: string, name: string, body: Body, namespace: string = TENANT): Hostile => {
  const found = KINDS.find((each) => each.name === kind && each.author === author);
  if (found === undefined) throw new Error(`a ${author} writes no ${kind}`);
  const called = found.only ?? name;
  return {
    kind: found,
    ...(found.namespaces === undefined ? {} : { namespace }),
    name: called,
    body: found.must?.(body, called) ?? body,
  };
};
const times = (count: number, make: (at: number) => Hostile | readonly Hostile[]): readonly Hostile[] =>
  Array.from({ length: Math.ceil(count) }, (_, at) => make(at)).flat();
const part = (size: number, budget = 0): number => Math.ceil((size * budget) / 100);
const policy = (name: string, spec: object): Hostile =>
  of('tenant', 'CiliumNetworkPolicy', name, { spec: { endpointSelector: {}, ...spec } });
const pod = (at: number, labels: object, ports: unknown = [], name = `crowd-${at}`): Hostile => {
  const nodeName = [...NODES, TAKEN][at % 3];
  const body = {
    metadata: { labels },
    spec: { nodeName, serviceAccountName: 'default', containers: [{ name: 'c', image: 'i', ports }] },
    status: { phase: 'Running', podIP: '', podIPs: [{ ip: '' }], hostIP: '' },
  };
  // Of each name an address of its own.
  return { ...of('tenant', 'Pod', name, body), body: withOwnAddresses(body, `crowd-${at}`) };
};
const mirror = (at: number, namespace: string, labels: object, ip = `10.0.3.${20 + at}`): Hostile => {
  const spec = { nodeName: TAKEN, serviceAccountName: 'default', containers: [{ name: 'c', image: 'i' }] };
  const status = { phase: 'Running', podIP: ip, podIPs: [{ ip }] };
  return of('node', 'mirror Pod', `mirror-${at}`, { metadata: { labels }, spec, status }, namespace);
};
const perPolicy = (TIGHT.selectorsPerPolicy ?? 0) - 5;

const TENANTS = {
  'selectors of one policy': (size) => [
    policy('many-0', { ingress: [{ fromEndpoints: `«selectors ${part(size, TIGHT.selectorsPerPolicy)}»` }] }),
  ],
  'selectors of a namespace': (size) =>
    times(part(size, 200) / perPolicy, (at) =>
      policy(`share-${at}`, { ingress: [{ fromEndpoints: `«selectors ${perPolicy} ${1_000 * (1 + at)}»` }] }),
    ),
  matches: (size) =>
    times(4, (at) => {
      const peers = `«broad selectors ${part(size, TIGHT.selectorsPerPolicy) / 2} ${100 * at}»`;
      return policy(`broad-${at}`, { egress: [{ toEndpoints: peers }] });
    }),
  identities: (size) => times(part(size, TIGHT.identitiesPerNamespace), (at) => pod(at, { app: `i${at}` })),
  // Each version of the pod has another set of labels.
  relabels: (size) =>
    times(part(size, TIGHT.identitiesPerNamespace), (at) => pod(0, { app: `r${at}` }, [], 'relabelled')),
  cidrs: (size) =>
    times(3, (at) => {
      const own = `«cidrs ${part(size, 500)} ${2_000 * at}»`;
      return policy(`cidrs-${at}`, { ingress: [{ fromCIDR: own }], egressDeny: [{ toCIDR: own }] });
    }),
  'ports times peers': (size) => [policy('rows-0', { ingress: `«rules that multiply ${part(size, 165)}»` })],
  'names of ports': (size) => [
    ...times(5, (at) => pod(30 + at, { app: 'named' }, `«names of ports ${part(size, 40)} ${at}»`)),
    policy('names-0', { egress: [{ toPorts: [{ ports: `«ports by name ${part(size, 40)}»` }] }] }),
  ],
  'policies and pods': (size) =>
    times(part(size, 20), (at) => [
      policy(`small-${at}`, { ingress: [{ fromEndpoints: [{ matchLabels: { app: 'client' } }] }] }),
      pod(50 + at, { app: 'client' }),
    ]),
  'large objects': (size) =>
    times(2, (at) => [
      policy(`large-${at}`, { description: '«long text»', ingress: [{ fromCIDR: `«cidrs ${part(size, 1_000)}»` }] }),
      of('tenant', 'Service', `large-${at}`, { metadata: { annotations: { x: '«long text»' } }, spec: {} }),
    ]),
} satisfies Readonly<Record<string, Crowd>>;

const NODES_OWN = {
  // They count as pods of their namespace: of one that has nothing to say here of turns, and room for a few labels more.
  'mirror pods of one namespace': (size) => times(part(size, 30), (at) => mirror(at, 'calm', { app: `m${at % 3}` })),
  'mirror pods everywhere': (size) =>
    times(part(size, 8), (at) =>
      ['default', 'calm', TENANT].map((namespace, index) =>
        mirror(60 + 3 * at + index, namespace, { app: `e${at % 2}` }),
      ),
    ),
  'one address': (size) =>
    times(part(size, 15), (at) => mirror(130 + at, at % 2 === 0 ? TENANT : 'calm', { app: 'same' }, '10.0.3.250')),
  endpoints: (size) =>
    times(part(size, 15), (at) => of('node', 'CiliumEndpoint', `crowd-${at}`, { status: { id: at } }, 'victim')),
  'its node': (size) => [
    of('node', 'Node', '', { status: { addresses: `«addresses ${part(size, 500)}»`, conditions: [] } }),
  ],
  'its report': (size) => [
    of('node', 'NodePolicyStatus', '', { status: { failures: `«reports ${part(size, 1_000)}»`, revision: 1 } }),
  ],
} satisfies Readonly<Record<string, Crowd>>;

/** Some crowds of an author: `seed` decides on which, on their sizes and their order. */
export function crowds(author: 'tenant' | 'node', seed: number): readonly Hostile[] {
  const all: readonly Crowd[] = Object.values(author === 'tenant' ? TENANTS : NODES_OWN);
  const made = fc.tuple(...all.map((crowd) => fc.integer({ min: 60, max: 160 }).map(crowd)));
  const [picked = []] = fc.sample(
    made.chain((each) => fc.shuffledSubarray(each, { minLength: 1 + Math.ceil(each.length / 2) })),
    { seed, numRuns: 1 },
  );
  return picked.flat();
}

/** Every crowd of an author, each beyond its budget. */
export function everyCrowd(author: 'tenant' | 'node'): readonly Hostile[] {
  return Object.values<Crowd>(author === 'tenant' ? TENANTS : NODES_OWN).flatMap((crowd) => crowd(LARGE));
}
