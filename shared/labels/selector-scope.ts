/** Which identities a selector can match at most, as far as its requirements of namespaces and of single labels tell: where to look for them. */
import { CLUSTER_KEY, NAMESPACE_KEY, NAMESPACE_LABEL, SERVICE_ACCOUNT_KEY } from './identity-labels.ts';
import type { LabelSelector, Requirement } from './types.ts';

/** Where identities that a selector may match can be looked up. */
export interface SelectorScope {
  /** Absent: in any. */
  readonly namespaces: readonly string[] | undefined;
  /** What only identities that have a label fulfil. */
  readonly asked: Requirement | undefined;
}

/** Places that are looked up one by one: namespaces, values of a label, or pairs of them. */
const MOST_PLACES = 100;
/** What all identities have, or the namespace says. */
const EVERYWHERE: ReadonlySet<string> = new Set([NAMESPACE_KEY, CLUSTER_KEY]);

export function selectorScope({ requirements }: LabelSelector): SelectorScope {
  const named = requirements.find(({ key, operator }) => key === NAMESPACE_LABEL && operator === 'In')?.values;
  const namespaces = named !== undefined && named.length <= MOST_PLACES ? named : undefined;
  const most = MOST_PLACES / (namespaces?.length ?? 1);
  const askable = requirements.filter(
    ({ key, operator, values }) => operator === 'In' && values.length <= most && isDistinctive(key),
  );
  return { namespaces, asked: askable.find(({ key }) => isNarrow(key)) ?? askable[0] };
}

/** Whether labels of this key tell identities of one namespace apart. */
export function isDistinctive(key: string): boolean {
  return !EVERYWHERE.has(plainKey(key));
}

/** Whether few identities have a label of this key and one value: nearly every pod has the service account `default`. */
function isNarrow(key: string): boolean {
  return isDistinctive(key) && plainKey(key) !== SERVICE_ACCOUNT_KEY;
}

function plainKey(key: string): string {
  return key.slice(key.indexOf(':') + 1);
}
