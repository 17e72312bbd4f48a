/** What may differ where hostile objects are beside the honest ones: what is their author's own, and nothing else. */
import { inspect, isDeepStrictEqual } from 'node:util';
import type { Author } from './kinds.ts';
import type { Entry, Outcome } from './outcome.ts';
import { APISERVER, NODE_ADDRESSES, OUTSIDE, PODS, TAKEN, TENANT } from './story.ts';

const TENANTS_LABEL = `k8s:io.kubernetes.pod.namespace=${TENANT}`;
/** Pods of the taken node: its kubelet writes their status. */
const TAKEN_PODS = new Set(PODS.filter(({ node }) => node === TAKEN).map((pod) => `pod ${pod.namespace}/${pod.name}`));
/** Its own, those of its pods, and those outside of the cluster: it may say that it has them. */
const TAKEN_ADDRESSES = [
  NODE_ADDRESSES[TAKEN],
  ...PODS.flatMap(({ node, ip }) => (node === TAKEN ? [ip] : [])),
  ...OUTSIDE,
  APISERVER,
];
const MOST = 12;

/** What of an entry may be relied on whatever the author writes; undefined: nothing. */
type View = (entry: Entry, base: Outcome) => Readonly<Record<string, unknown>> | undefined;
/** Whether something may be there that is not without the author. */
type Allowance = (entry: Entry) => boolean;

/** Sentences about what differs and may not, at most 12. */
export function differences(base: Outcome, now: Outcome, author: Author | 'nobody'): string[] {
  const view = VIEWS[author];
  const allowed = ALLOWED[author];
  const found: string[] = [];
  for (const key of new Set([...base.keys(), ...now.keys()])) {
    const [before, after] = [base.get(key), now.get(key)];
    if (before === undefined) {
      if (after !== undefined && !allowed(after))
        found.push(`${key}: is there, and is not without: ${told(after.value)}`);
      continue;
    }
    const wanted = view(before, base);
    if (wanted === undefined) continue;
    const is = after === undefined ? undefined : view(after, base);
    if (isDeepStrictEqual(is, wanted)) continue;
    found.push(after === undefined ? `${key}: is missing` : `${key}: ${difference(wanted, is)}`);
  }
  return found.slice(0, MOST);
}

const VIEWS: Readonly<Record<Author | 'nobody', View>> = {
  nobody: ({ value }) => value,
  stranger: () => undefined,
  tenant: ({ key, namespace, value }) => {
    if (namespace === TENANT) return undefined;
    if (key.startsWith('peer set ')) return { members: members(value).filter((labels) => !ofTenant(labels)) };
    return value;
  },
  // What a node says of itself is believed: where its pods run, what it enforces, and which outside addresses it has.
  node: ({ key, value }, base) => {
    if (TAKEN_PODS.has(key)) return undefined;
    if (key.startsWith('peer set '))
      return { members: members(value).filter((labels) => base.has(`identity ${labels}`)) };
    if (/^(Programmed|Ready) of /.test(key)) return { falselyTrue: value.status === 'True' && !isTrue(base.get(key)) };
    if (key.startsWith('summary of ')) return undefined;
    if (TAKEN_ADDRESSES.some((address) => key.includes(` takes ${address} `))) return undefined;
    return key.startsWith('enforced ') ? { ...value, verdicts: ofOthers(value.verdicts) } : value;
  },
};

const ALLOWED: Readonly<Record<Author | 'nobody', Allowance>> = {
  nobody: () => false,
  stranger: () => true,
  tenant: ({ key, namespace }) => namespace === TENANT || key.startsWith('peer set '),
  // Pods of its own, with any labels: kubelets make mirrors of static ones.
  node: ({ key }) => /^(pod|identity|endpoint) /.test(key),
};

function ofTenant(labels: string): boolean {
  return labels.split(',').includes(TENANTS_LABEL);
}

function members({ members: list }: Entry['value']): readonly string[] {
  return list as readonly string[];
}

function isTrue(entry: Entry | undefined): boolean {
  return entry?.value.status === 'True';
}

function ofOthers(verdicts: unknown): Readonly<Record<string, unknown>> {
  const all = Object.entries(verdicts as Readonly<Record<string, unknown>>);
  return Object.fromEntries(all.filter(([key]) => !TAKEN_ADDRESSES.some((address) => key.endsWith(` ${address}`))));
}

/** The fields that differ, as they should be and as they are. */
function difference(wanted: unknown, is: unknown, path = ''): string {
  if (!isObject(wanted) || !isObject(is))
    return `${path === '' ? '' : `${path} `}is ${told(is)}, without it ${told(wanted)}`;
  return [...new Set([...Object.keys(wanted), ...Object.keys(is)])]
    .filter((key) => !isDeepStrictEqual(wanted[key], is[key]))
    .map((key) => difference(wanted[key], is[key], path === '' ? key : `${path}.${key}`))
    .slice(0, MOST)
    .join('; ');
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function told(value: unknown): string {
  return inspect(value, { depth: 4, breakLength: Number.POSITIVE_INFINITY, maxStringLength: 200, maxArrayLength: 20 });
}
