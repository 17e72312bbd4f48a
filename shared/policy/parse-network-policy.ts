/**
 * NetworkPolicy of Kubernetes (spec section 6) -> Rule. It only allows, and is the opposite of a CNP where something is left out:
 * `ingress: [{}]` allows everything, an element without `from` means every peer.
 */
import { canonicalSelector, NAMESPACE_KEY } from '@weir/labels';
import { refusedElement } from './parse-element.ts';
import { parseNetworkPeers, podRequirements } from './parse-network-peers.ts';
import { parseNetworkPorts } from './parse-network-ports.ts';
import { isNamed, uniqueNames } from './port-names.ts';
import { checkFields, isObject, type Json, listOf, member, type Problems, show } from './problems.ts';
import type { Direction, Rule, RuleElement } from './types.ts';

const TYPES: Readonly<Record<string, Direction>> = { Ingress: 'ingress', Egress: 'egress' };

/** Undefined when there is nothing to enforce, which is reported. */
export function parseNetworkPolicySpec(
  json: unknown,
  path: string,
  namespace: string,
  problems: Problems,
): Rule | undefined {
  if (!isObject(json)) {
    problems.essential(() => {
      problems.invalid(path, `${show(json)} is not the spec of a NetworkPolicy: write podSelector, ingress, egress`);
    });
    return undefined;
  }
  const named = problems.lacking(() => {
    checkFields(json, ['podSelector', 'ingress', 'egress', 'policyTypes'], path, problems);
    return parsePolicyTypes(json, path, problems);
  });
  const subject = problems.essential(() => parseSubject(json, path, problems));
  // What is not read may name a direction.
  const types: ReadonlySet<Direction> = named.lacks ? new Set(['ingress', 'egress']) : named.value;
  const elements = [
    ...parseDirection(json, 'ingress', types, path, namespace, problems),
    ...parseDirection(json, 'egress', types, path, namespace, problems),
  ];
  if (subject === undefined) return undefined;
  const has = { ingress: types.has('ingress'), egress: types.has('egress') };
  return {
    subject: canonicalSelector({
      requirements: [...subject, { key: `k8s:${NAMESPACE_KEY}`, operator: 'In', values: [namespace] }],
    }),
    elements,
    defaultDeny: has,
    has,
    labels: [],
    path,
  };
}

/** Left out, it is `{}`: every pod of the namespace. */
function parseSubject(json: Json, path: string, problems: Problems) {
  const where = `${path}.podSelector`;
  const written = member(json, 'podSelector');
  if (written === null) {
    problems.invalid(where, 'null would select every pod of the namespace: write {} if that is meant');
    return undefined;
  }
  const read = podRequirements(written ?? {}, where, problems);
  if (read?.unseen === undefined) return read?.requirements;
  problems.invalid(
    where,
    `the label ${show(read.unseen)} is not part of a pod's identity, so Weir cannot tell which pods are selected: use another label`,
  );
  return undefined;
}

/** The directions that the policy is about. Not given: ingress, and egress when it has rules. */
function parsePolicyTypes(json: Json, path: string, problems: Problems): ReadonlySet<Direction> {
  const types = new Set<Direction>();
  const items = listOf(json, 'policyTypes', path, problems) ?? [];
  for (const [index, item] of items.entries()) {
    const direction = typeof item === 'string' && Object.hasOwn(TYPES, item) ? TYPES[item] : undefined;
    if (direction !== undefined) types.add(direction);
    else problems.invalid(`${path}.policyTypes[${index}]`, `${show(item)} is no policy type: write Ingress or Egress`);
  }
  if (items.length > 0) return types;
  const egress = member(json, 'egress') ?? [];
  return new Set(Array.isArray(egress) && egress.length === 0 ? ['ingress'] : ['ingress', 'egress']);
}

function parseDirection(
  json: Json,
  direction: Direction,
  types: ReadonlySet<Direction>,
  path: string,
  namespace: string,
  problems: Problems,
): RuleElement[] {
  const where = `${path}.${direction}`;
  const items = listOf(json, direction, path, problems) ?? [];
  const elements = items.map((item, index) => parseElement(item, `${where}[${index}]`, direction, namespace, problems));
  if (!types.has(direction)) {
    if (items.length > 0) {
      problems.warn(
        where,
        `these rules have no effect: policyTypes does not list ${direction === 'ingress' ? 'Ingress' : 'Egress'}; add it, or remove the rules`,
      );
    }
    return [];
  }
  // Default deny rides on elements: a direction without any still denies all.
  return elements.length > 0 ? elements : [refusedElement({ direction, verdict: 'allow', path: where })];
}

function parseElement(
  json: unknown,
  path: string,
  direction: Direction,
  namespace: string,
  problems: Problems,
): RuleElement {
  const verdict = 'allow';
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not a rule: write an object, {} allows everything`);
    return refusedElement({ direction, verdict, path });
  }
  const side = direction === 'ingress' ? 'from' : 'to';
  const { lacks } = problems.lacking(() => checkFields(json, [side, 'ports'], path, problems));
  const peers = parseNetworkPeers(json, side, path, namespace, problems);
  const ports = parseNetworkPorts(json, path, problems);
  if (direction === 'egress' && peers !== 'any' && ports !== 'any' && peers.some(({ kind }) => kind === 'cidr'))
    for (const { name } of uniqueNames(ports.filter(isNamed)))
      problems.warn(
        path,
        `only pods have a port ${show(name)}: an ipBlock of this rule allows nothing by the name; write the number`,
      );
  return lacks ? refusedElement({ direction, verdict, path }) : { direction, verdict, peers, ports, path };
}
