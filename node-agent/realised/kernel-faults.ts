/** What policies suffer from in the kernel: what it refuses, what others took away, and rounds that fail. */
import { faultAt } from '../datapath/index.ts';
import { hostPrefix, type InUse, type Model } from '../derive/index.ts';
import { InterfaceGoneError } from '../errors.ts';
import type { IpcacheRow } from '../tables.ts';
import { type Fault, type Generations, leftOver } from './policy-failures.ts';
import {
  type Acknowledgements,
  type RealisedSources,
  refusedAddresses,
  refusedEndpoints,
  refusedSlots,
} from './sources.ts';

const NONE: Generations = {};

export function* kernelFaults(model: Model, sources: RealisedSources): Generator<Fault> {
  yield* refused(model, sources);
  yield* unaddressed(model, sources);
  yield* removed(model, sources);
  yield* broken(model, sources);
}

function* refused(model: Model, { writer, endpoints }: Acknowledgements): Generator<Fault> {
  const failing = refusedEndpoints(writer);
  const slots = refusedSlots(writer);
  if (failing.size + slots.size === 0) return;
  for (const { id, slot, policies } of model.states()) {
    // An endpoint that cannot have its slot says so, but not why.
    const error = slots.get(slot) ?? failing.get(id);
    if (error === undefined || error instanceof InterfaceGoneError) continue;
    const fault = { reason: 'KernelRefused', message: `endpoint ${id}: ${error.message}` };
    yield { ...fault, of: policies };
    yield { ...fault, of: leftOver(policies, endpoints.acknowledged(id)?.policies ?? NONE) };
  }
}

/** Policies that go by addresses which the kernel does not take: it judges those as what is around them, a deny of them may be none. */
function* unaddressed(model: Model, { writer }: Acknowledgements): Generator<Fault> {
  const failing = refusedAddresses(writer);
  const [first] = failing;
  if (first === undefined) return;
  const rows = failing.map(({ row }) => row);
  const prefixes = new Set(rows.map(({ prefix }) => prefix));
  const named = naming(model, rows);
  const more = rows.length === 1 ? '' : ` (and ${rows.length - 1} more on this node)`;
  const fault = (of: Generations, prefix: string): Fault => {
    return {
      of,
      reason: 'KernelRefused',
      message: `the kernel refuses ${prefix}${more}: ${first.error.message}`,
    };
  };
  const others = new Map<Generations, number>();
  for (const { addresses, policies } of model.states()) {
    const own = addresses.flatMap((address) => hostPrefix(address) ?? []).find((prefix) => prefixes.has(prefix));
    if (own !== undefined) yield fault(policies, own);
    else others.set(policies, (others.get(policies) ?? 0) + 1);
  }
  for (const [policies, count] of others)
    for (const [uid, prefix] of named) {
      const generation = policies[uid];
      if (generation !== undefined) yield { ...fault({ [uid]: generation }, prefix), count };
    }
}

/** Policies in force that name one of the addresses as a peer, each with the first that it names. */
function naming(model: Model, rows: readonly IpcacheRow[]): ReadonlyMap<string, string> {
  const named = new Map<string, string>();
  const note = (policies: Iterable<InUse>, prefix: string): void => {
    for (const { row } of policies) if (!named.has(row.uid)) named.set(row.uid, prefix);
  };
  const seen = new Set<string>();
  for (const { prefix, identity, source } of rows) {
    note(model.policies.inUseWithCidr(prefix), prefix);
    const kubeApiserver = source === 'apiserver';
    const peer = `${identity} ${kubeApiserver}`;
    // Many addresses have few identities.
    if (!seen.has(peer)) note(model.policiesWithPeer({ id: identity, kubeApiserver }), prefix);
    seen.add(peer);
  }
  return named;
}

/** What others took away and has not been put back yet. */
function* removed(model: Model, { audit }: RealisedSources): Generator<Fault> {
  const faults = audit.faults();
  if (faults.length === 0) return;
  for (const { id, policies } of model.states()) {
    const texts = faults.values().map((fault) => faultAt(id, fault));
    const message = texts.find((each) => each !== undefined);
    if (message !== undefined) yield { of: policies, reason: 'EnforcementRemoved', message };
  }
}

/** Rounds fail as a whole: what is not in the kernel yet does not come. */
function* broken(model: Model, { sync, endpoints }: Acknowledgements): Generator<Fault> {
  if (sync.broken === undefined) return;
  const text = sync.broken instanceof Error ? sync.broken.message : 'for an unknown reason';
  for (const id of model.endpoints()) {
    const but = endpoints.acknowledged(id)?.policies ?? NONE;
    yield { of: model.policiesOf(id), but, reason: 'RoundFailed', message: `endpoint ${id}: ${text}` };
  }
}
