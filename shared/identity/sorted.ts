import type { NumericIdentity } from './types.ts';

/** Whether an ascending list of identities, as peer sets have them, holds this one. */
export function includesSorted(ascending: readonly NumericIdentity[], id: NumericIdentity): boolean {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((ascending[middle] ?? 0) < id) low = middle + 1;
    else high = middle;
  }
  return ascending[low] === id;
}
