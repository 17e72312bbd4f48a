/** Nodes as peers by their labels (spec 2.4, 3.4). */
import { canonicalSelector, type LabelMap, type LabelSelector } from '@weir/labels';
import { readSelector } from './context.ts';
import type { Problems } from './problems.ts';
import type { RulePeer } from './types.ts';

/** Source of labels of nodes. */
const NODE_SOURCE = 'node:';

/** Labels of another node, by its own. */
export function nodeLabels(own: Readonly<Record<string, string>>): LabelMap {
  const labels: Record<string, string> = { 'reserved:remote-node': '' };
  for (const [key, value] of Object.entries(own)) labels[`${NODE_SOURCE}${key}`] = value;
  return labels;
}

/** Whether it selects nodes by their labels: no other selector looks at these, whatever source it leaves open. */
export function selectsNodes({ requirements }: LabelSelector): boolean {
  return requirements.some(({ key }) => key.startsWith(NODE_SOURCE));
}

/** An item of fromNodes or toNodes: other nodes with these labels, never the pod's own. Undefined when it was reported. */
export function parseNodes(item: unknown, path: string, problems: Problems): RulePeer | undefined {
  if (item === null) {
    problems.invalid(path, 'null would select every node: write {} if that is meant');
    return undefined;
  }
  const written = readSelector(item, path, problems, { keys: 'kubernetes' });
  if (written === undefined) return undefined;
  if (written.requirements.length === 0) return { kind: 'entity', entity: 'remote-node' };
  const own = written.requirements.map(({ key, ...requirement }) => ({
    key: key.replace(/^k8s:/, NODE_SOURCE),
    ...requirement,
  }));
  const remote = { key: 'reserved:remote-node', operator: 'Exists' as const, values: [] };
  return { kind: 'endpoints', selector: canonicalSelector({ requirements: [...own, remote] }) };
}
