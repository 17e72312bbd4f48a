import { type LabelMap, labelsKey, matches } from '@weir/labels';
import type { Direction, Excess, ResolvedRule } from '@weir/policy';
import { keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { CoreOptions, Held, Realised, RealisedPolicy, Tables } from './core.ts';
import { tableKey } from './create-tables.ts';
import { type Audit, faultAt, type SyncLoop } from './datapath/index.ts';
import type { InUse, Missing, Model } from './derive/index.ts';
import { InterfaceGoneError } from './errors.ts';
import { keyOf, mostRules, namesOf } from './failure-text.ts';
import {
  type Acknowledgements,
  laggingEndpoints,
  putLagging,
  refusedAddresses,
  refusedSlots,
} from './lagging-endpoints.ts';
import { type CountedEndpoint, PolicyCounts } from './policy-counts.ts';
import { type Fault, failureKey, failuresOf, type Generations, type PolicyFailure } from './policy-failures.ts';
import type { EarlierReportRow, IpcacheRow, PolicyRow } from './tables.ts';

/**
 * How long a policy may wait for its PeerSets before that is a failure: they are other objects and come a moment later. Until then all of
 * what was read since waits with it; afterwards the node says of this policy what it has instead, and goes on.
 */
const MISSING_AFTER_MS = 5_000;
/**
 * How long a pod may have addresses and no endpoint: a runtime tells of them when ADD has ended, the API server and we hear it in any order. And
 * how long an interface may be gone before DEL comes.
 */
const UNCONNECTED_AFTER_MS = 10_000;
const NONE: Generations = {};
const ENFORCEMENT_OFF =
  'no policy is enforced on this node, as its agent runs with `--policy-enforcement never` (`policyEnforcement` of the chart)';

/** Key: `uid`. Index `waiting`: those that no endpoint has. */
interface PolicyRealised {
  readonly uid: string;
  readonly policy: RealisedPolicy;
}

type Count = Omit<RealisedPolicy, 'at' | 'policy'>;

/** Policy inputs up to `revision`, and every change of a ResolvedPolicy up to `version`, have been through a round. Key: `what`. */
interface Reached {
  readonly what: 'policies';
  readonly revision: number;
  /** As in `Realised`. */
  readonly settled: number;
  readonly version: string | undefined;
}

/** A pod that has no interface of ours. Key: `pod`. */
interface Unconnected {
  /** `namespace/name`. */
  readonly pod: string;
  readonly uid: string;
  /** The one that it had, which is gone; undefined: another plugin connected it. */
  readonly interfaceName: string | undefined;
  /** Milliseconds. */
  readonly since: number;
}

export interface RealisedOptions {
  readonly db: StateDB;
  readonly tables: Pick<
    Tables,
    'policies' | 'policyVersions' | 'peerSets' | 'identities' | 'endpoints' | 'earlierReport' | 'laggingEndpoints'
  >;
  readonly model: Model;
  readonly policyMode: CoreOptions['policyMode'];
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  /** Milliseconds since 1970. */
  readonly wallClock: () => number;
}

/** What the kernel has acknowledged, and what it refuses. */
export interface RealisedSources extends Acknowledgements {
  readonly sync: Pick<SyncLoop, 'reached' | 'broken'>;
  readonly audit: Pick<Audit, 'faults'>;
}

/**
 * What this node's kernel acknowledged of each policy and since when, what it refuses, and which endpoints are behind for that: tables
 * `realisedPolicies`, `policyFailures`, `laggingEndpoints` and `reached`, as of the last `take`.
 */
export class RealisedReport {
  readonly #options: RealisedOptions;
  readonly #policies: Table<PolicyRealised>;
  readonly #counts: PolicyCounts;
  readonly #failures: Table<PolicyFailure>;
  readonly #reached: Table<Reached>;
  readonly #unconnected: Table<Unconnected>;

  constructor(options: RealisedOptions) {
    const { db } = options;
    this.#options = options;
    this.#policies = db.table<PolicyRealised>({
      name: 'realisedPolicies',
      key: (row) => row.uid,
      indexes: [{ name: 'waiting', keys: ({ policy }) => (policy.endpoints === 0 ? [''] : []) }],
    });
    this.#counts = new PolicyCounts(db);
    this.#failures = db.table<PolicyFailure>({ name: 'policyFailures', key: failureKey });
    this.#reached = db.table<Reached>({ name: 'reached', key: (row) => row.what });
    this.#unconnected = db.table<Unconnected>({ name: 'unconnectedPods', key: ({ pod }) => pod });
  }

  read(): Realised {
    using snapshot = this.#options.db.read();
    const reached = snapshot.get(this.#reached, 'policies');
    // What was said before this start is true until a round has put something in its place.
    const earlier = (reached?.revision ?? 0) === 0 ? this.#earlier(snapshot) : undefined;
    const settled = reached?.settled ?? 0;
    const lagging = Array.from(snapshot.all(this.#options.tables.laggingEndpoints), ({ revision }) => revision);
    return {
      revision: reached?.revision ?? 0,
      settled,
      acknowledged: Math.min(settled, ...lagging),
      policyVersion: earlier === undefined ? reached?.version : earlier.policyVersion,
      policies:
        earlier === undefined
          ? new Map(Array.from(snapshot.all(this.#policies), ({ uid, policy }) => [uid, policy]))
          : new Map(Object.entries(earlier.policies)),
      failures: [...snapshot.all(this.#failures)],
    };
  }

  /**
   * Looks at every endpoint, and at the policies of those that have changed; to be called after every round, so that times are those of the
   * acknowledgement. Returns whether something but the revision has changed, or it is the first that there is.
   *
   * @param held why nothing new is put in force, until somebody acts
   */
  take(sources: RealisedSources, held?: Held): boolean {
    const { model, now, db, tables } = this.#options;
    // One moment for all: a policy either holds the version back, or is said.
    const at = now();
    const broken = sources.sync.broken !== undefined;
    const judged = [...this.#judged(sources)];
    const failures = failuresOf([
      ...this.#off(),
      ...this.#refused(sources),
      ...this.#unaddressed(sources),
      ...this.#removed(sources),
      ...this.#broken(sources),
      ...this.#uncompiled(),
      ...this.#tooManyRows(),
      ...unresolved(model, at),
      ...this.#notConnected(),
      ...(held === undefined ? [] : this.#heldBack(held)),
    ]);
    const lagging = laggingEndpoints(model, sources);
    const { policyVersions, laggingEndpoints: laggards } = tables;
    const own = [this.#policies, this.#failures, this.#reached, ...this.#counts.tables];
    return db.write([...own, policyVersions, laggards], (txn) => {
      const revisions = (): number => txn.revision(this.#policies) + txn.revision(this.#failures);
      const before = revisions();
      this.#putPolicies(txn, this.#counts.settle(txn, judged), this.#waiting(txn, at, broken));
      this.#putFailures(txn, failures);
      const { reached } = sources.sync;
      const version = this.#versionAt(txn, reached, at, broken);
      const settledBefore = txn.get(this.#reached, 'policies')?.settled ?? 0;
      putLagging(txn, laggards, lagging, { ...sources, before: settledBefore });
      // A policy that waits for its PeerSets is in no kernel, whatever round it went through.
      const settled = broken || !model.missing()[Symbol.iterator]().next().done ? settledBefore : reached;
      const last = txn.upsert(this.#reached, { what: 'policies', revision: reached, settled, version });
      return revisions() !== before || (last?.revision ?? 0) === 0 || last?.version !== version;
    });
  }

  /**
   * The version that the kernel has reached. A policy that waits for its PeerSets is not in the kernel, whatever round it went through; after
   * a round that failed it is not known which have come.
   */
  #versionAt(txn: WriteTxn, reached: number, at: number, broken: boolean): string | undefined {
    const { model } = this.#options;
    const { policyVersions } = this.#options.tables;
    const last = txn.get(this.#reached, 'policies')?.version;
    const passed = [...txn.all(policyVersions)].filter(({ revision }) => revision <= reached);
    const newest = passed.pop();
    for (const { revision } of passed) txn.delete(policyVersions, keys.uint(revision));
    if (broken) return last;
    for (const missing of model.missing()) if (!lasts(missing, at)) return last;
    return newest?.version ?? last;
  }

  /** Of the policies that were counted anew, of those that wait, and of those that waited. */
  #putPolicies(txn: WriteTxn, counted: Iterable<string>, waiting: ReadonlyMap<string, Count>): void {
    const at = this.#options.wallClock();
    const waited = Array.from(txn.list(this.#policies, 'waiting', ''), ({ uid }) => uid);
    for (const uid of new Set([...counted, ...waited, ...waiting.keys()])) {
      const count = this.#counts.of(txn, uid) ?? waiting.get(uid);
      if (count === undefined) {
        txn.delete(this.#policies, uid);
        continue;
      }
      const last = txn.get(this.#policies, uid)?.policy;
      const same = last?.generation === count.generation;
      if (same && last.endpoints === count.endpoints) continue;
      const row = txn.get(this.#options.tables.policies, uid);
      const policy = row === undefined ? last?.policy : keyOf(row);
      const named = policy === undefined ? {} : { policy };
      txn.upsert(this.#policies, { uid, policy: { ...named, ...count, at: same ? last.at : at } });
    }
  }

  #putFailures(txn: WriteTxn, failures: readonly PolicyFailure[]): void {
    const wanted = new Set(failures.map(failureKey));
    for (const row of txn.all(this.#failures)) {
      const key = failureKey(row);
      if (!wanted.has(key)) txn.delete(this.#failures, key);
    }
    for (const row of failures) if (!txn.has(this.#failures, failureKey(row))) txn.insert(this.#failures, row);
  }

  /** Policies that have waited long for their PeerSets; they count where nothing in force of them selects an endpoint. */
  #waiting(txn: WriteTxn, at: number, broken: boolean): ReadonlyMap<string, Count> {
    const { model, tables } = this.#options;
    const waiting = new Map<string, Count>();
    if (broken)
      for (const { uid, policy } of txn.list(this.#policies, 'waiting', ''))
        if (txn.has(tables.policies, uid)) waiting.set(uid, policy);
    for (const missing of model.missing()) {
      const { uid } = missing;
      if (waiting.has(uid) || !lasts(missing, at)) continue;
      waiting.set(uid, { generation: model.policies.inUse(uid)?.row.generation ?? 0, endpoints: 0 });
    }
    return waiting;
  }

  #earlier(reader: Reader): EarlierReportRow | undefined {
    const [row] = reader.all(this.#options.tables.earlierReport);
    return row;
  }

  /**
   * Policies of which the kernel has another generation, as this node said before; and those that it never said, of endpoints found there. Where that
   * lasts, all that it said.
   */
  #heldBack({ reason, message, lasting }: Held): Fault[] {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    const earlier = this.#earlier(snapshot);
    if (earlier === undefined) return [];
    const found = this.#foundLabels(snapshot);
    const selects = ({ rules }: PolicyRow): boolean =>
      rules.some(({ subject }) => {
        const selector = snapshot.get(tables.peerSets, subject)?.selector;
        // Whom it selects is not known: it may be somebody here.
        return selector === undefined ? lasting : found.some((labels) => matches(selector, labels));
      });
    const held = [...snapshot.all(tables.policies)].filter((row) => {
      const said = earlier.policies[row.uid]?.generation;
      return said === undefined ? selects(row) : lasting || said !== row.generation;
    });
    // Whether they are still there is not known.
    const unread =
      lasting && !snapshot.initialised(tables.policies)
        ? Object.entries(earlier.policies).flatMap(([uid, { generation }]) =>
            snapshot.has(tables.policies, uid) ? [] : { uid, generation },
          )
        : [];
    return [...held, ...unread].map((policy) => ({ of: generationsOf([policy]), reason, message }));
  }

  /** The labels of endpoints that the kernel had at start, of each label set once. */
  #foundLabels(reader: Reader): readonly LabelMap[] {
    const { model, tables } = this.#options;
    const sets = new Map<string, LabelMap>();
    for (const { id, labels: own } of reader.all(tables.endpoints)) {
      const found = model.asFound(id);
      const labels =
        own ??
        (found === undefined ? undefined : reader.get(tables.identities, tableKey.identity(found.identity))?.labels);
      if (found !== undefined && labels !== undefined) sets.set(labelsKey(labels), labels);
    }
    return [...sets.values()];
  }

  *#judged({ writer, endpoints }: RealisedSources): Generator<CountedEndpoint> {
    const { model } = this.#options;
    const failing = failingOf(writer);
    const selecting = this.#selecting();
    for (const { id, policies } of model.states()) {
      // No packet can come from or go to an interface that is gone.
      if (failing.get(id) instanceof InterfaceGoneError) continue;
      // Until its policies are compiled, its state is of those before.
      const wanted = model.waits(id) ? selecting(id) : policies;
      yield { id, wanted, held: endpoints.held(id)?.policies ?? NONE };
    }
  }

  /** The kernel has acknowledged endpoints that it lets everything through of. */
  *#off(): Generator<Fault> {
    const { model, policyMode } = this.#options;
    if (policyMode !== 'never') return;
    const of: Record<string, number> = {};
    for (const { policies } of model.states()) Object.assign(of, policies);
    yield { of, reason: 'EnforcementOff', message: ENFORCEMENT_OFF };
  }

  *#refused({ writer }: RealisedSources): Generator<Fault> {
    const failing = failingOf(writer);
    const slots = refusedSlots(writer);
    if (failing.size + slots.size === 0) return;
    for (const { id, slot, policies } of this.#options.model.states()) {
      // An endpoint that cannot have its slot says so, but not why.
      const error = slots.get(slot) ?? failing.get(id);
      if (error === undefined || error instanceof InterfaceGoneError) continue;
      yield { of: policies, reason: 'KernelRefused', message: `endpoint ${id}: ${error.message}` };
    }
  }

  /** Policies that go by addresses which the kernel does not take: it judges those as what is around them, a deny of them may be none. */
  *#unaddressed({ writer }: RealisedSources): Generator<Fault> {
    const refused = refusedAddresses(writer);
    const [first] = refused;
    if (first === undefined) return;
    const prefixes = new Set(refused.map(({ row }) => row.prefix));
    const named = this.#naming(refused.map(({ row }) => row));
    const more = refused.length === 1 ? '' : ` (and ${refused.length - 1} more on this node)`;
    const fault = (of: Generations, prefix: string): Fault => {
      return {
        of,
        reason: 'KernelRefused',
        message: `the kernel does not take ${prefix}${more}: ${first.error.message}`,
      };
    };
    const others = new Map<Generations, number>();
    for (const { ipv4, policies } of this.#options.model.states()) {
      const own = `${ipv4}/32`;
      if (prefixes.has(own)) yield fault(policies, own);
      else others.set(policies, (others.get(policies) ?? 0) + 1);
    }
    for (const [policies, count] of others)
      for (const [uid, prefix] of named) {
        const generation = policies[uid];
        if (generation !== undefined) yield { ...fault({ [uid]: generation }, prefix), count };
      }
  }

  /** Policies in force that name one of the addresses as a peer, each with the first that it names. */
  #naming(rows: readonly IpcacheRow[]): ReadonlyMap<string, string> {
    const { model } = this.#options;
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
  *#removed({ audit }: RealisedSources): Generator<Fault> {
    const faults = audit.faults();
    if (faults.length === 0) return;
    for (const { id, policies } of this.#options.model.states()) {
      const told = faults.values().map((fault) => faultAt(id, fault));
      const message = told.find((each) => each !== undefined);
      if (message !== undefined) yield { of: policies, reason: 'EnforcementRemoved', message };
    }
  }

  /** Rounds fail as a whole: what is not in the kernel yet does not come. */
  *#broken({ sync, endpoints }: RealisedSources): Generator<Fault> {
    if (sync.broken === undefined) return;
    const text = sync.broken instanceof Error ? sync.broken.message : 'for an unknown reason';
    const selecting = this.#selecting();
    for (const id of this.#options.model.endpoints()) {
      const but = endpoints.held(id)?.policies ?? NONE;
      yield { of: selecting(id), but, reason: 'RoundFailed', message: `endpoint ${id}: ${text}` };
    }
  }

  *#uncompiled(): Generator<Fault> {
    const { model } = this.#options;
    const selecting = this.#selecting();
    for (const id of model.endpoints()) {
      const error = model.failure(id);
      if (error === undefined) continue;
      const stays =
        model.state(id)?.state === 'not-ready' ? 'nothing passes until then' : 'the policy before stays enforced';
      yield { of: selecting(id), reason: 'CompileFailed', message: `endpoint ${id}: ${error.message}; ${stays}` };
    }
  }

  /** Peers are denied, as the rules of their endpoint come to more rows than a slot has room for. */
  *#tooManyRows(): Generator<Fault> {
    const { model } = this.#options;
    const known = new Map<string, { readonly of: Generations; readonly by: string }>();
    for (const id of model.endpoints()) {
      for (const [direction, excess] of model.excesses(id)) {
        const key = `${direction} ${model.info(id)?.identity}`;
        const selecting = known.get(key) ?? selectingBy(model.selecting(id), direction);
        known.set(key, selecting);
        const text = `endpoint ${id}, selected by ${selecting.by}: ${excess.message}; what does not fit is denied: ${peersText(excess)}`;
        yield { of: selecting.of, reason: 'RowBudgetExceeded', message: text };
      }
    }
  }

  /** The policies that select an endpoint: one object for all endpoints of one identity. */
  #selecting(): (endpoint: number) => Generations {
    const { model } = this.#options;
    const known = new Map<number, Generations>();
    return (endpoint) => {
      const info = model.info(endpoint);
      if (info === undefined || !info.ready) return NONE;
      const policies = known.get(info.identity) ?? generationsOf(model.policiesOf(endpoint));
      known.set(info.identity, policies);
      return policies;
    };
  }

  /** One failure for each policy that selects pods which have no interface of ours. */
  #notConnected(): Fault[] {
    const selected = new Map<string, { uid: string; generation: number; pods: Unconnected[] }>();
    for (const [pod, policies] of this.#lastingUnconnected())
      for (const { uid, generation } of policies) {
        const known = selected.get(uid);
        if (known === undefined) selected.set(uid, { uid, generation, pods: [pod] });
        else known.pods.push(pod);
      }
    return Array.from(selected.values(), ({ pods, ...policy }) => ({
      of: generationsOf([policy]),
      reason: 'PodNotConnected',
      message: notConnectedText(pods),
    }));
  }

  #lastingUnconnected(): (readonly [Unconnected, readonly Pick<PolicyRow, 'uid' | 'generation'>[]])[] {
    const { model, db, now } = this.#options;
    const at = now();
    return db.write([this.#unconnected], (txn) => {
      const found = Array.from(model.unconnected(), ([{ pod: of, endpoint }, policies]) => {
        const pod = `${of.namespace}/${of.name}`;
        const known = txn.get(this.#unconnected, pod);
        const since = known?.uid === of.uid ? known.since : at;
        const row = { pod, uid: of.uid, interfaceName: endpoint?.interfaceName, since };
        const same = known?.since === since && known.interfaceName === row.interfaceName;
        if (!same) txn.upsert(this.#unconnected, row);
        return [same ? known : row, policies] as const;
      });
      const pods = new Set(found.map(([{ pod }]) => pod));
      for (const { pod } of txn.all(this.#unconnected)) if (!pods.has(pod)) txn.delete(this.#unconnected, pod);
      return found.filter(([{ since }]) => at - since >= UNCONNECTED_AFTER_MS);
    });
  }
}

function notConnectedText(pods: readonly Unconnected[]): string {
  const gone = pods.filter(({ interfaceName }) => interfaceName !== undefined);
  const foreign = pods.filter(({ interfaceName }) => interfaceName === undefined);
  const [its, is, has, it] =
    gone.length === 1
      ? ['its interface', 'is', 'it has', 'the pod']
      : ['their interfaces', 'are', 'they have', 'the pods'];
  const names = namesOf(gone.map(({ interfaceName }) => interfaceName ?? ''));
  return [
    foreign.length === 0
      ? []
      : `${podsText(foreign)}: connected by another network plugin, or before Weir, so that nothing is enforced there; see that \`weir status\` on the node says \`installed\` of CNI, then delete the pods, so that they are made anew`,
    gone.length === 0
      ? []
      : `${podsText(gone)}: ${its} ${names} ${is} gone from the node, so that ${has} no network; delete ${it}, so that ${gone.length === 1 ? 'it is' : 'they are'} made anew`,
  ]
    .flat()
    .join('; ');
}

function podsText(pods: readonly Unconnected[]): string {
  return `${pods.length === 1 ? 'pod' : 'pods'} ${namesOf(pods.map(({ pod }) => pod))}`;
}

/** The policies that select an endpoint by rules of the direction; those with the most rules are named. */
function selectingBy(
  selecting: Iterable<readonly [InUse, ResolvedRule]>,
  direction: Direction,
): { readonly of: Generations; readonly by: string } {
  const rules = [...selecting].filter(([, rule]) => rule.direction === direction);
  return { of: generationsOf(rules.map(([{ row }]) => row)), by: mostRules(rules) };
}

const SCOPES = {
  unknown: 'peers of whom nothing is known',
  pod: 'pods that no rule tells apart',
  world: 'addresses outside that no rule tells apart',
} as const;

/** By powers of ten, so that one more makes no new text. */
function peersText({ denied, scopes }: Excess): string {
  const least = 10 ** Math.floor(Math.log10(denied));
  const identities = denied === 0 ? [] : [`at least ${least} ${least === 1 ? 'identity' : 'identities'} of peers`];
  return [...scopes.map((scope) => SCOPES[scope]), ...identities].join(', ');
}

function generationsOf(policies: Iterable<Pick<PolicyRow, 'uid' | 'generation'>>): Generations {
  return Object.fromEntries(Array.from(policies, ({ uid, generation }) => [uid, generation]));
}

function failingOf({ endpoints }: RealisedSources['writer']): Map<number, Error> {
  return new Map(endpoints.failing().map(({ row, error }) => [row.id, error]));
}

function lasts({ sinceMs }: Missing, now: number): boolean {
  return now - sinceMs >= MISSING_AFTER_MS;
}

function unresolved(model: Model, now: number): Fault[] {
  return [...model.missing()]
    .filter((missing) => lasts(missing, now))
    .map(({ hashes, ...policy }) => {
      const more = hashes.length > 3 ? ` and ${hashes.length - 3} more` : '';
      return {
        of: generationsOf([policy]),
        reason: 'PeerSetMissing',
        message: `PeerSets ${hashes.slice(0, 3).join(', ')}${more} have not come from the operator; the generation before stays enforced`,
      };
    });
}
