import type { AgentPart, AgentView } from '../parts/contract.ts';
import { viewOf } from '../parts/view.ts';

/** What these parts bring, without an agent. */
export function agentView(...parts: readonly AgentPart[]): AgentView {
  const all = [{ settings: { 'policy-enforcement': 'default' } }, ...parts];
  return { ...viewOf(() => all), parts: () => [], maps: () => [], objects: () => [] };
}
