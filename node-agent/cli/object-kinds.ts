/** Which documents are judged, and as what. */
import { isMap, show } from './metadata.ts';

export type JudgedKind =
  | 'CiliumNetworkPolicy'
  | 'CiliumClusterwideNetworkPolicy'
  | 'NetworkPolicy'
  | 'CiliumCIDRGroup'
  | 'BareRules';

/** `skip`: why nothing of it is judged. `wrong`: what is wrong with its kind or version; without a kind nothing else of it is judged. */
export type KindOf =
  | { readonly kind: JudgedKind; readonly wrong?: KindProblem }
  | { readonly skip: string }
  | { readonly wrong: KindProblem };

export interface KindProblem {
  readonly path: string;
  readonly message: string;
}

const CILIUM = ['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy', 'CiliumCIDRGroup'] as const;
/** API groups that had NetworkPolicy; the parser says which version is right. */
const NETWORK_POLICY_GROUPS = ['networking.k8s.io', 'extensions'];
const RULE_FIELDS = [
  'endpointSelector',
  'nodeSelector',
  'ingress',
  'egress',
  'ingressDeny',
  'egressDeny',
  'enableDefaultDeny',
];

export function kindOf(value: unknown): KindOf {
  if (Array.isArray(value)) {
    const rules = value.some((item) => isMap(item) && isRule(item));
    return rules ? { kind: 'BareRules' } : { skip: 'a list of no rules' };
  }
  if (!isMap(value)) return { skip: 'no object' };
  const { kind, apiVersion } = value;
  if (kind === undefined || kind === null) {
    if (isRule(value)) return { kind: 'BareRules' };
    const rules = [value.spec, ...(Array.isArray(value.specs) ? value.specs : [])];
    if (apiVersion === undefined && !rules.some((each) => isMap(each) && isRule(each)))
      return { skip: 'no object of Kubernetes: it has neither apiVersion nor kind' };
    return {
      wrong: { path: 'kind', message: 'the object has no kind: write kind: CiliumNetworkPolicy, or what it is' },
    };
  }
  if (typeof kind !== 'string') return { wrong: { path: 'kind', message: `${show(kind)} is not a text` } };
  const group = typeof apiVersion === 'string' ? apiVersion.split('/')[0] : undefined;
  const candidates: readonly JudgedKind[] = [
    ...(group === undefined || group === 'cilium.io' ? CILIUM : []),
    ...(group === undefined || NETWORK_POLICY_GROUPS.includes(group) ? (['NetworkPolicy'] as const) : []),
  ];
  const own = candidates.find((known) => known === kind);
  if (own !== undefined) {
    if (group !== undefined) return { kind: own };
    const version = own === 'NetworkPolicy' ? 'networking.k8s.io/v1' : 'cilium.io/v2';
    return {
      kind: own,
      wrong: { path: 'apiVersion', message: `the object has no apiVersion: write apiVersion: ${version}` },
    };
  }
  const near = candidates.find((known) => isLike(known, kind));
  if (near !== undefined)
    return { wrong: { path: 'kind', message: `unknown kind ${show(kind)}: did you mean ${near}?` } };
  return { skip: `${show(kind)} is no policy` };
}

function isRule(value: Readonly<Record<string, unknown>>): boolean {
  return RULE_FIELDS.some((field) => Object.hasOwn(value, field));
}

/** Whether one may be a slip of the other: letters in another case, left out, added or exchanged, two at most. */
function isLike(known: string, given: string): boolean {
  if (Math.abs(known.length - given.length) > 2) return false;
  const [a, b] = [known.toLowerCase(), given.toLowerCase()];
  let start = 0;
  while (start < a.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  return Math.max(a.length, b.length) - start - end <= 3;
}
