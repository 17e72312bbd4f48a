/**
 * Which addresses get their identities before endpoints get their words, and which afterwards.
 *
 * Where an endpoint changes its rules and an address its identity in one round, nobody knows which of the two changed first in the world. Guarantee:
 * in between neither the old rules decide otherwise of the new identity, nor the new rules of the old identity, than rules and identity do before
 * or after. An address of which one of them would is unknown meanwhile. CIDRs go first, as rules may name them for the first time.
 */
import { isLocalCidr } from '@weir/identity';
import type { Plan } from '../derive/index.ts';
import type { EndpointStateRow, IpcacheRow } from '../tables.ts';

export interface InKernel {
  /** What an endpoint's word says; undefined: there is none. */
  readonly word: (endpoint: number) => Pick<EndpointStateRow, 'slot' | 'enforced'> | undefined;
  /** What a slot decides of an identity, in a text. */
  readonly decisions: (slot: number, identity: number) => string;
}

/** Before the words, after them, or after them and unknown until then. */
type Order = 'first' | 'last' | 'unknown';

/** Endpoints leave a slot for another. `alike`: the same directions are enforced. */
interface RuleChange {
  readonly from: number;
  readonly to: number;
  readonly alike: boolean;
}

/** To be called when the plan's slots are in the kernel. */
export function addressOrder(
  { ipcache, moved, endpoints }: Pick<Plan, 'ipcache' | 'moved' | 'endpoints'>,
  kernel: InKernel,
): Readonly<Record<'first' | 'last', readonly IpcacheRow[]>> {
  const changes = ruleChanges(endpoints, kernel);
  if (changes.length === 0 || moved.size === 0) return { first: ipcache, last: [] };
  const known = new Map<string, Order>();
  const {
    first = [],
    last = [],
    unknown = [],
  } = Object.groupBy(ipcache, ({ prefix, identity }): Order => {
    const from = moved.get(prefix);
    if (from === undefined || isLocalCidr(identity)) return 'first';
    const key = `${from} ${identity}`;
    const order = known.get(key) ?? orderOf(changes, kernel, from, identity);
    known.set(key, order);
    return order;
  });
  return { first: [...first, ...unknown.map((row) => ({ ...row, identity: 0 }))], last: [...last, ...unknown] };
}

/** Each pair of slots once. */
function ruleChanges(states: readonly EndpointStateRow[], { word }: InKernel): readonly RuleChange[] {
  const changes = new Map<string, RuleChange>();
  for (const { id, slot: to, enforced } of states) {
    const before = word(id);
    if (before === undefined || before.slot === 0 || before.slot === to) continue;
    const { ingress, egress } = before.enforced;
    const alike = ingress === enforced.ingress && egress === enforced.egress;
    changes.set(`${before.slot} ${to} ${alike}`, { from: before.slot, to, alike });
  }
  return [...changes.values()];
}

function orderOf(changes: readonly RuleChange[], { decisions }: InKernel, from: number, to: number): Order {
  const looked = changes.map((change) => ({
    alike: change.alike,
    oldFrom: decisions(change.from, from),
    oldTo: decisions(change.from, to),
    newFrom: decisions(change.to, from),
    newTo: decisions(change.to, to),
  }));
  if (looked.every(({ alike, oldFrom, oldTo, newTo }) => oldTo === oldFrom || (alike && oldTo === newTo)))
    return 'first';
  if (looked.every(({ alike, oldFrom, newFrom, newTo }) => newFrom === newTo || (alike && newFrom === oldFrom)))
    return 'last';
  return from === 0 ? 'last' : 'unknown';
}
