/** What is wrong with enforcement, and its text. */
import { tableKey } from '../create-tables.ts';
import type { EnforcementFault } from '../tables.ts';
import type { Difference } from './content-audit.ts';

export type Fault = EnforcementFault;
export type Part = Fault['part'];
/** What maps hold. */
export type Content = 'address' | 'slot';

export function faultsOf(part: Content, differences: readonly Difference[]): Fault[] {
  return differences.map((difference) => ({ part, ...difference }));
}

/** Faults that a text names; it counts the others. */
export const MOST_NAMED = 3;

export function someOf(first: readonly string[], all: number): string {
  const more = all > first.length ? ` (and ${all - first.length} more)` : '';
  return `${first.join('; ')}${more}`;
}

/** As `of` of a fault: the part cannot be looked at. */
export const UNSEEN = '?';

/** Whether it is of one endpoint. */
export function isEndpoint({ part, of }: Fault): boolean {
  return part === 'endpoint' && of !== UNSEEN;
}

export function endpointsOf(faults: readonly Fault[]): number[] {
  return faults.filter(isEndpoint).map(({ of }) => Number(of));
}

export function without(faults: readonly Fault[], others: readonly Fault[]): Fault[] {
  const taken = new Set(others.map(tableKey.fault));
  return faults.filter((fault) => !taken.has(tableKey.fault(fault)));
}

const NAMES: Readonly<Record<Part, string>> = {
  endpoint: 'endpoint',
  pins: 'pins',
  address: 'address',
  slot: 'policy slot',
};

/** A fault in a sentence. */
export function faultText(fault: Fault): string {
  const { part, of } = fault;
  return `${of === '' || of === UNSEEN ? NAMES[part] : `${NAMES[part]} ${of}`}: ${problemText(fault)}`;
}

/** What is wrong with it, without its name. */
export function problemText({ problem, error }: Fault): string {
  return error === undefined ? problem : `${problem}; it cannot be restored: ${error}`;
}

/** The fault in a sentence as that of one endpoint; undefined where it is another's alone. What cannot be looked at is a fault of all. */
export function faultAt(endpoint: number, fault: Fault): string | undefined {
  const { part, of } = fault;
  if (part !== 'endpoint') return `endpoint ${endpoint}: ${faultText(fault)}`;
  return of === UNSEEN || of === String(endpoint) ? `endpoint ${endpoint}: ${problemText(fault)}` : undefined;
}
