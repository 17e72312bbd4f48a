/** Policies of one element, parsed. For tests. */
import { parsePolicy } from '../parse.ts';
import type { ParseResult } from '../types.ts';

export type Json = Record<string, unknown>;
export const WEB = { matchLabels: { app: 'web' } };

export function cnp(rule: unknown, more: Json = {}): ParseResult {
  const metadata = { name: 'p', namespace: 'a' };
  return parsePolicy({ metadata, ...(rule === undefined ? {} : { spec: rule }), ...more }, 'CiliumNetworkPolicy');
}
export const ingress = (...elements: unknown[]): ParseResult => cnp({ endpointSelector: WEB, ingress: elements });
export const deny = (...elements: unknown[]): ParseResult => cnp({ endpointSelector: WEB, ingressDeny: elements });
export const egress = (...elements: unknown[]): ParseResult => cnp({ endpointSelector: WEB, egress: elements });
export const found = ({ problems }: ParseResult): string[] => problems.map(({ code, path }) => `${code} ${path}`);
export const port = (fields: unknown): ParseResult => ingress({ toPorts: [{ ports: [fields] }] });
export const E0 = 'spec.ingress[0]';
export const P0 = `${E0}.toPorts[0].ports[0]`;
