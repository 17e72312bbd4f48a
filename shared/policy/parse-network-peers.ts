/** `from` and `to` of a NetworkPolicy (spec section 6). Keys are plain label keys; what they select has source k8s. */
import {
  canonicalSelector,
  isNamespaceLabelSeen,
  isPodLabelSeen,
  NAMESPACE_KEY,
  NAMESPACE_LABEL_PREFIX,
  type Requirement,
} from '@weir/labels';
import { readSelector } from './context.ts';
import { isPositive } from './namespace.ts';
import { parseCidrWithExcept } from './parse-cidr.ts';
import { checkFields, isObject, type Json, listOf, member, type Problems, show } from './problems.ts';
import type { RulePeer } from './types.ts';

const POD_NAMESPACE = `k8s:${NAMESPACE_KEY}`;

/** Absent, null and empty lists mean every peer. What cannot be read selects nobody. */
export function parseNetworkPeers(
  json: Json,
  field: 'from' | 'to',
  path: string,
  namespace: string,
  problems: Problems,
): 'any' | readonly RulePeer[] {
  const { value: items = [], lacks } = problems.lacking(() => listOf(json, field, path, problems));
  if (lacks) return [];
  if (items.length === 0) return 'any';
  return items.flatMap((item, index) => {
    const read = problems.lacking(() => parsePeer(item, `${path}.${field}[${index}]`, namespace, problems));
    return read.lacks || read.value === undefined ? [] : [read.value];
  });
}

/** Undefined: selects nobody, which is reported. */
function parsePeer(json: unknown, path: string, namespace: string, problems: Problems): RulePeer | undefined {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not a peer: write podSelector, namespaceSelector or ipBlock`);
    return undefined;
  }
  checkFields(json, ['podSelector', 'namespaceSelector', 'ipBlock'], path, problems);
  const ipBlock = member(json, 'ipBlock') ?? undefined;
  const pods = member(json, 'podSelector') ?? undefined;
  const namespaces = member(json, 'namespaceSelector') ?? undefined;
  const bySelector = pods !== undefined || namespaces !== undefined;
  if (ipBlock !== undefined) {
    if (bySelector) {
      problems.invalid(`${path}.ipBlock`, 'ipBlock stands beside a selector in one peer: split them into two peers');
    }
    return parseIpBlock(ipBlock, `${path}.ipBlock`, problems);
  }
  if (!bySelector) {
    problems.warn(path, 'the peer is empty and selects nobody: write {namespaceSelector: {}} for every pod');
    return undefined;
  }
  const pod = pods === undefined ? NOTHING_READ : podRequirements(pods, `${path}.podSelector`, problems);
  const space =
    namespaces === undefined
      ? { requirements: [{ key: POD_NAMESPACE, operator: 'In' as const, values: [namespace] }] }
      : namespaceRequirements(namespaces, `${path}.namespaceSelector`, problems);
  if (pod === undefined || space === undefined) return undefined;
  const unseen = pod.unseen === undefined ? space : pod;
  if (unseen.unseen !== undefined) {
    problems.unsupported(
      `${path}.${unseen === pod ? 'podSelector' : 'namespaceSelector'}`,
      `the label ${show(unseen.unseen)} is not part of a pod's identity in Weir: use another label; until then this peer selects nobody`,
    );
    return undefined;
  }
  return {
    kind: 'endpoints',
    selector: canonicalSelector({ requirements: [...pod.requirements, ...space.requirements] }),
  };
}

interface ReadRequirements {
  readonly requirements: readonly Requirement[];
  /** A key of which no identity has a label, so that the selector cannot be decided. */
  readonly unseen?: string;
}

const NOTHING_READ: ReadRequirements = { requirements: [] };

/** Requirements on pods' own labels. Undefined when reported. */
export function podRequirements(json: unknown, path: string, problems: Problems): ReadRequirements | undefined {
  const selector = readSelector(json, path, problems, { keys: 'kubernetes' });
  if (selector === undefined) return undefined;
  const unseen = selector.requirements.map(({ key }) => plain(key)).find((key) => !isPodLabelSeen(key));
  return { requirements: selector.requirements, ...(unseen === undefined ? {} : { unseen }) };
}

/**
 * Requirements on the labels of namespaces. What only excludes, and `{}`, must not let in what has no namespace at all: the
 * world, hosts, nodes.
 */
function namespaceRequirements(json: unknown, path: string, problems: Problems): ReadRequirements | undefined {
  const selector = readSelector(json, path, problems, { keys: 'kubernetes' });
  if (selector === undefined) return undefined;
  const unseen = selector.requirements.map(({ key }) => plain(key)).find((key) => !isNamespaceLabelSeen(key));
  const requirements = selector.requirements.map((requirement) => ({
    ...requirement,
    key: `k8s:${NAMESPACE_LABEL_PREFIX}${plain(requirement.key)}`,
  }));
  const isPod: readonly Requirement[] = requirements.some(isPositive)
    ? []
    : [{ key: POD_NAMESPACE, operator: 'Exists', values: [] }];
  return { requirements: [...requirements, ...isPod], ...(unseen === undefined ? {} : { unseen }) };
}

function plain(key: string): string {
  return key.slice('k8s:'.length);
}

function parseIpBlock(json: unknown, path: string, problems: Problems): RulePeer | undefined {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not an IP block: write {cidr: 10.0.0.0/8}`);
    return undefined;
  }
  checkFields(json, ['cidr', 'except'], path, problems);
  const cidr = parseCidrWithExcept(json, path, problems);
  return cidr === undefined ? undefined : { kind: 'cidr', cidr, everyone: true };
}
