/** Policies of one element, parsed. For tests. */
import { parsePolicy } from '../parse.ts';
import type { ParseResult, RuleElement } from '../types.ts';

export type Json = Record<string, unknown>;
export const WEB = { matchLabels: { app: 'web' } };

export function cnp(rule: unknown, more: Json = {}): ParseResult {
  const metadata = { name: 'p', namespace: 'a' };
  return parsePolicy({ metadata, ...(rule === undefined ? {} : { spec: rule }), ...more }, 'CiliumNetworkPolicy');
}
export const ingress = (...elements: unknown[]): ParseResult => cnp({ endpointSelector: WEB, ingress: elements });
export const deny = (...elements: unknown[]): ParseResult => cnp({ endpointSelector: WEB, ingressDeny: elements });
export const egress = (...elements: unknown[]): ParseResult => cnp({ endpointSelector: WEB, egress: elements });
/** Elements that allow somebody something. */
export const allowing = ({ rules }: ParseResult): readonly RuleElement[] =>
  rules
    .flatMap(({ elements }) => elements)
    .filter(({ verdict, peers, ports }) => verdict === 'allow' && peers.length > 0 && ports.length > 0);
export const found = ({ problems }: ParseResult): string[] => problems.map(({ code, path }) => `${code} ${path}`);
export const port = (fields: unknown): ParseResult => ingress({ toPorts: [{ ports: [fields] }] });
export const E0 = 'spec.ingress[0]';
export const P0 = `${E0}.toPorts[0].ports[0]`;
