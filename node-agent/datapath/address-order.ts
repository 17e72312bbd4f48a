/**
 * Which addresses get their identities before endpoints get their words, and which afterwards.
 *
 * Where an endpoint changes its rules and an address its identity in one round, nobody knows which of the two changed first in the world. Guarantee:
 * in between neither the old rules decide otherwise of the new identity, nor the new rules of the old identity, than rules and identity do before
 * or after. An address of which one of them would is unknown meanwhile. CIDRs go first, as rules may name them for the first time.
 */
import { isLocalCidr } from '@weir/identity';
import type { Pieces } from '@weir/policy';
import type { Plan } from '../derive/contract.ts';
import type { EndpointStateRow, IpcacheRow } from '../tables.ts';

export interface InKernel {
  /** What an endpoint's word says; undefined: there is none. */
  readonly word: (endpoint: number) => Pick<EndpointStateRow, 'slot' | 'enforced'> | undefined;
  /** The classes that a slot has an identity in, in a text: few for many identities. */
  readonly classes: (slot: number, identity: number) => string;
  /** What a slot decides of an identity, in a text: equal texts are equal decisions. */
  readonly decisions: (slot: number, identity: number) => string;
}

type Decides = InKernel['decisions'];

/** Before the words, after them, or after them and unknown until then. */
type Order = 'first' | 'last' | 'unknown';

/** Endpoints leave a slot for another. `alike`: the same directions are enforced. */
interface RuleChange {
  readonly old: number;
  readonly now: number;
  readonly alike: boolean;
}

/** To be run when the plan's slots are in the kernel. */
export function* addressOrder(
  { ipcache, moved, endpoints }: Pick<Plan, 'ipcache' | 'moved' | 'endpoints'>,
  kernel: InKernel,
): Pieces<Readonly<Record<'first' | 'last', readonly IpcacheRow[]>>> {
  const changes = ruleChanges(endpoints, kernel);
  if (changes.length === 0 || moved.size === 0) return { first: ipcache, last: [] };
  const decides = onceAClass(kernel);
  const known = new Map<string, Order>();
  const by: Record<Order, IpcacheRow[]> = { first: [], last: [], unknown: [] };
  for (const row of ipcache) {
    const from = moved.get(row.prefix);
    const key = `${from} ${row.identity}`;
    let order = from === undefined || isLocalCidr(row.identity) ? 'first' : known.get(key);
    if (order === undefined) {
      yield;
      order = orderOf(changes, decides, from ?? 0, row.identity);
      known.set(key, order);
    }
    by[order].push(row);
  }
  const { first, last, unknown } = by;
  return { first: [...first, ...unknown.map((row) => ({ ...row, identity: 0 }))], last: [...last, ...unknown] };
}

/** Each pair of slots once. */
function ruleChanges(states: readonly EndpointStateRow[], { word }: InKernel): readonly RuleChange[] {
  const changes = new Map<string, RuleChange>();
  for (const { id, slot: now, enforced } of states) {
    const before = word(id);
    if (before === undefined || before.slot === 0 || before.slot === now) continue;
    const { ingress, egress } = before.enforced;
    const alike = ingress === enforced.ingress && egress === enforced.egress;
    changes.set(`${before.slot} ${now} ${alike}`, { old: before.slot, now, alike });
  }
  return [...changes.values()];
}

function orderOf(changes: readonly RuleChange[], decides: Decides, from: number, to: number): Order {
  const first = changes.every(
    ({ old, now, alike }) =>
      decides(old, to) === decides(old, from) || (alike && decides(old, to) === decides(now, to)),
  );
  if (first) return 'first';
  const last = changes.every(
    ({ old, now, alike }) =>
      decides(now, from) === decides(now, to) || (alike && decides(now, from) === decides(old, from)),
  );
  return last || from === 0 ? 'last' : 'unknown';
}

/** `decisions`, each class of a slot looked at once. */
function onceAClass({ classes, decisions }: InKernel): Decides {
  const known = new Map<string, string>();
  return (slot, identity) => {
    const key = `${slot} ${classes(slot, identity)}`;
    const decided = known.get(key) ?? decisions(slot, identity);
    known.set(key, decided);
    return decided;
  };
}

/** A CIDR's exceptions before it: a slot that names both is to judge them by their own. */
export function longestFirst(rows: readonly IpcacheRow[]): readonly IpcacheRow[] {
  const bits = ({ prefix }: IpcacheRow): number => Number(prefix.slice(prefix.indexOf('/') + 1));
  return [...rows].sort((a, b) => bits(b) - bits(a));
}
