/** Random hostile objects: a well-formed one, changed in some places into what nobody honest writes. */
import fc from 'fast-check';
import { type Path, pathsIn, withAt } from '../hostile.ts';
import { BIG_VALUES } from './big.ts';
import { type Author, KINDS, type Kind } from './kinds.ts';
import { APISERVER, type Body, NODE_ADDRESSES, OUTSIDE, PODS } from './story.ts';

/** An object that somebody writes, or the next version of one of the same name. */
export interface Hostile {
  readonly kind: Kind;
  readonly namespace?: string;
  readonly name: string;
  readonly body: Body;
}

/** Of each kind and namespace: objects of one name follow each other. */
const NAMES = ['h-0', 'h-1', 'h-2', 'h-3', 'h-4', 'h-5'];
const MOST_CHANGES = 4;

const JUNK: readonly unknown[] = [
  null,
  true,
  0,
  -1.5,
  1e308,
  '',
  [],
  {},
  [null],
  [[]],
  { constructor: 1, toString: 2 },
  'a/b/c',
  '*',
  '\u202e\u009b31m\u0000',
  '\ud800',
  'x'.repeat(300),
];
const ADDRESSES: readonly unknown[] = [
  ...PODS.map(({ ip }) => ip),
  ...Object.values(NODE_ADDRESSES),
  APISERVER,
  ...OUTSIDE,
  '10.0.1.77',
  '10.0.3.77',
  '10.0.2.255',
  '0.0.0.0',
  '::ffff:10.0.1.1',
  '10.0.1.0/24',
  '0.0.0.0/0',
  '010.000.001.001',
];
const NAMED: readonly unknown[] = [
  'n1',
  'n2',
  'victim',
  'web',
  'victim/web',
  'kube-system',
  'cnp/victim/web',
  '§CiliumNetworkPolicy/victim/web§',
  '§Pod/victim/web§',
  '§Node/n1§',
  'reserved:host',
  'constructor',
  '__proto__',
];

/** What only the system may say of an object. */
const METADATA: readonly (readonly [field: string, key: string, value: unknown])[] = [
  ...Object.entries({
    'io.kubernetes.pod.namespace': 'victim',
    'k8s:io.kubernetes.pod.namespace': 'victim',
    'io.cilium.k8s.policy.serviceaccount': 'admin',
    'io.cilium.k8s.policy.cluster': 'other',
    'io.cilium.k8s.namespace.labels.team': 'blue',
    'reserved:host': '',
    'reserved:kube-apiserver': '',
    'k8s:app': 'db',
    'any:app': 'db',
    'cidr:10.0.0.0/8': '',
    app: 'db',
    __proto__: 'x',
  }).map(([key, value]) => ['labels', key, value] as const),
  ...Object.entries({
    'weir.dev/pod-uids': '§Pod/victim/web§',
    'weir.dev/uninstall': 'now',
    'weir.dev/removed': 'now',
    'weir.dev/node': 'n1',
    'weir.dev/anything': 'x',
    'kubernetes.io/config.mirror': '§Pod/victim/web§',
  }).map(([key, value]) => ['annotations', key, value] as const),
  ['', 'finalizers', ['weir.dev/keep', 'foregroundDeletion']],
  ['', 'ownerReferences', [{ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: '§Node/n1§' }]],
  ['', 'ownerReferences', [{ apiVersion: 'v1', kind: 'Pod', name: 'web', uid: '§Pod/victim/web§' }]],
  ['', 'deletionTimestamp', '2026-01-01T00:00:00Z'],
];

/** Takes a place of the body (of so many) and puts a value there. */
interface Change {
  readonly place: number;
  readonly value: unknown;
}

const value: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...JUNK) },
  { weight: 2, arbitrary: fc.constantFrom(...BIG_VALUES) },
  { weight: 3, arbitrary: fc.constantFrom(...ADDRESSES) },
  { weight: 2, arbitrary: fc.constantFrom(...NAMED) },
);

/** Addresses and names go where addresses and names are: most places of a body take neither. */
const ofText = (whole: unknown, path: Path): boolean => typeof at(whole, path) === 'string';

function at(whole: unknown, path: Path): unknown {
  return path.reduce<unknown>((held, key) => (held as Readonly<Record<string, unknown>> | undefined)?.[key], whole);
}

function changed(body: Body, { place, value: put }: Change): Body {
  const all = [...pathsIn(body)];
  const texts = typeof put === 'string' && place % 2 === 0 ? all.filter((path) => ofText(body, path)) : [];
  const paths = texts.length > 0 ? texts : all;
  const path = paths[place % paths.length];
  return path === undefined ? body : (withAt(body, path, put) as Body);
}

function claimed(body: Body, [field, key, put]: (typeof METADATA)[number]): Body {
  const metadata = body.metadata;
  const held = typeof metadata === 'object' && metadata !== null ? (metadata as Readonly<Record<string, unknown>>) : {};
  if (field === '') return { ...body, metadata: { ...held, [key]: put } };
  const within = held[field];
  const entries = typeof within === 'object' && within !== null ? within : {};
  return { ...body, metadata: { ...held, [field]: { ...entries, [key]: put } } };
}

function hostileOf(kind: Kind): fc.Arbitrary<Hostile> {
  const where = kind.only?.split('/');
  const name = where === undefined ? fc.constantFrom(...(kind.names ?? NAMES)) : fc.constant(where.at(-1) ?? '');
  const namespaces = where === undefined ? (kind.namespaces ?? ['']) : [where.length > 1 ? (where[0] ?? '') : ''];
  return fc
    .record({
      name,
      namespace: fc.constantFrom(...namespaces),
      sample: fc.constantFrom(...kind.samples),
      claims: fc.array(fc.constantFrom(...METADATA), { maxLength: 2 }),
      changes: fc.array(fc.record({ place: fc.nat(200), value }), { maxLength: MOST_CHANGES }),
    })
    .map(({ name: called, namespace, sample, claims, changes }) => {
      const body = changes.reduce(changed, claims.reduce(claimed, sample));
      const allowed = Object.fromEntries(Object.entries(body).filter(([key]) => !kind.fixed?.includes(key)));
      return {
        kind,
        ...(namespace === '' ? {} : { namespace }),
        name: called,
        body: kind.must === undefined ? allowed : kind.must(allowed, called),
      };
    });
}

/** Objects that this author can write, one after the other. */
export function hostileObjects(author: Author, count: { readonly min: number; readonly max: number }) {
  const kinds = KINDS.filter((kind) => kind.author === author);
  return fc.array(fc.oneof(...kinds.map(hostileOf)), { minLength: count.min, maxLength: count.max, size: 'max' });
}
