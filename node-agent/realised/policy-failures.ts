import { type Key, keys } from '@weir/statedb';
import type { Realised } from '../core.ts';
import type { PolicyRow } from '../tables.ts';

/** Generation by uid. */
export type Generations = Readonly<Record<string, number>>;

export function generationsOf(policies: Iterable<Pick<PolicyRow, 'uid' | 'generation'>>): Generations {
  return Object.fromEntries(Array.from(policies, ({ uid, generation }) => [uid, generation]));
}

const NONE: Generations = {};

/** Key: all of it. */
export type PolicyFailure = Realised['failures'][number];

/** What policies suffer from: at one endpoint, or wherever they are. */
export interface Fault {
  readonly of: Generations;
  /** Policies that have these generations do not suffer. */
  readonly but?: Generations;
  readonly reason: string;
  readonly message: string;
  /** How many faults this one stands for. Default 1. */
  readonly count?: number;
}

/**
 * A policy says each reason once, by the first fault and how many more there are: a fault may concern every endpoint, and a report stays
 * small. Endpoints that have the same policies, as one object, cost no more than one of them.
 */
export function failuresOf(faults: Iterable<Fault>): PolicyFailure[] {
  const first = new Map<Key, { readonly failure: PolicyFailure; count: number }>();
  for (const [{ of, but, reason, message }, count] of alike(faults))
    for (const [uid, generation] of Object.entries(of)) {
      if (but?.[uid] === generation) continue;
      const key = keys.join(uid, keys.uint(generation), reason);
      const known = first.get(key);
      if (known === undefined) first.set(key, { failure: { uid, generation, reason, message }, count });
      else known.count += count;
    }
  return Array.from(first.values(), ({ failure, count }) =>
    count === 1 ? failure : { ...failure, message: `${failure.message} (and ${count - 1} more)` },
  );
}

type Lacking = WeakMap<Generations, WeakMap<Generations, Generations>>;

/** By wanted and acknowledged generations: both objects are immutable and stay the same from round to round. */
const LACKING: Lacking = new WeakMap();

/** Policies whose wanted and acknowledged generations differ, each with its wanted generation, or else the acknowledged one. */
export function lacking(wanted: Generations, acknowledged: Generations): Generations {
  if (wanted === acknowledged) return NONE;
  const known = LACKING.get(wanted) ?? new WeakMap<Generations, Generations>();
  LACKING.set(wanted, known);
  const before = known.get(acknowledged);
  if (before !== undefined) return before;
  const lacks = { ...leftOver(wanted, acknowledged) };
  for (const [uid, generation] of Object.entries(wanted)) if (acknowledged[uid] !== generation) lacks[uid] = generation;
  known.set(acknowledged, lacks);
  return lacks;
}

/** Acknowledged policies that are no longer wanted. */
export function leftOver(wanted: Generations, acknowledged: Generations): Record<string, number> {
  return Object.fromEntries(Object.entries(acknowledged).filter(([uid]) => wanted[uid] === undefined));
}

export function failureKey({ uid, generation, reason, message }: PolicyFailure): Key {
  return keys.join(uid, keys.uint(generation), reason, message);
}

/** The first of those that concern the same policies for the same reason, with their number. */
function alike(faults: Iterable<Fault>): Iterable<readonly [Fault, number]> {
  const numbers = new Map<Generations | undefined, number>();
  const numberOf = (of: Generations | undefined): number => {
    const number = numbers.get(of) ?? numbers.size;
    numbers.set(of, number);
    return number;
  };
  const groups = new Map<string, [Fault, number]>();
  for (const fault of faults) {
    const key = `${numberOf(fault.of)} ${numberOf(fault.but)} ${fault.reason}`;
    const known = groups.get(key);
    if (known === undefined) groups.set(key, [fault, fault.count ?? 1]);
    else known[1] += fault.count ?? 1;
  }
  return groups.values();
}
