/**
 * A part of the operator: one feature, in one folder, with all that it brings.
 *
 * `@weir/process/parts` has what a part needs and how it starts and stops. Besides, a part may bring flags, settings, metrics, reasons why
 * the operator is not ready or not well, which of its failures are no line of the log, what it reads and writes, and webhooks; tables it makes by `context.db`. The
 * operator puts together what its parts bring, and names none of them: `part-list.ts` does.
 *
 * A part lives as long as the process, or for a term: from standing by until leadership is lost, or the process ends. Each term has parts, tables
 * and metrics of its own, made anew; they may need parts of the process, not the other way round.
 */
import type { FencingClient, KubeClient, KubeObject, ListOptions, ReflectorSink, Resource } from '@weir/kube';
import type { ConfigOf, Flagged, Flags, FlagTraits } from '@weir/process/flags';
import type { AnyPartSpec, DefinedPart, None, Part, PartDefinition, PartNeeds } from '@weir/process/parts';
import type { StateDB, Table } from '@weir/statedb';
import type { Logger } from 'pino';
import type { Registry } from 'prom-client';
import type { Desired } from '../tables.ts';

/** What every part may ask; each part has its own flags and settings beside. */
export interface BaseConfig {
  /** Of the local cluster, part of every identity. */
  readonly clusterName: string;
  /** Where this pod runs. */
  readonly namespace: string;
  /** Unique for this process. */
  readonly identity: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

/**
 * Objects that the operator lists and watches for as long as a term lasts. Each kind is read once: its sources, in the order of the parts, see the
 * same objects. `tableSink` (kubernetes/reflect.ts) keeps a table of them.
 */
export interface Source<T extends KubeObject = KubeObject> {
  readonly resource: Resource<T>;
  /** Makes the initialiser of its table when it is built. */
  readonly sink: ReflectorSink<T>;
  /** Which objects; the same for all sources of the kind. */
  readonly list?: Omit<ListOptions, 'signal'>;
  /** Objects of one page of a list. Of several sources the smallest counts. */
  readonly pageSize?: number;
  /** Reduces an object to what is kept in memory: no source of the kind sees the rest. */
  trim?(object: T): T;
  /** The rest does without the kind where it is not served or may not be read. Absent: the rest waits for it. */
  readonly optional?: {
    /** It cannot be read (`because`), or can be again (undefined). */
    readonly missing: (because: string | undefined) => void;
  };
}

/**
 * A table of what the API is to hold, and how its rows are written: a reconciler attempts each row that is new, and tries again what fails
 * (kubernetes/writer.ts). Requests of a kind have few places, which owners take in turns. Nothing is pruned before the table is complete.
 */
export interface DesiredKind<T> {
  /** Of its writer, unique: in the log, metrics, and what `settled` returns. */
  readonly name: string;
  readonly table: Table<Desired<T>>;
  /** The namespace in whose turn the row is written; '' is that of what has none. */
  readonly ownerOf: (row: T) => string;
  /** Goes before the owner's other rows. */
  readonly isUrgent?: (row: T) => boolean;
  /** Waits for what must be there first (`attempted` of `writersPart`), and has no place meanwhile. Absent: the newest row is written, once there is a place. */
  readonly ready?: (row: T) => Promise<void>;
  readonly update: (row: T) => Promise<void>;
  readonly delete: (row: T) => Promise<void>;
  /** Removes what has none of these keys. */
  readonly prune?: (keys: ReadonlySet<string>) => Promise<void>;
  readonly roundsPerSecond?: number;
}

/** What the API server asks a webhook: `request` of an AdmissionReview of admission.k8s.io/v1. Whoever reaches the port may make it up. */
export interface AdmissionRequest {
  readonly uid: string;
  /** CREATE, UPDATE, DELETE or CONNECT. */
  readonly operation?: string;
  readonly kind?: { readonly group: string; readonly version: string; readonly kind: string };
  readonly namespace?: string;
  readonly name?: string;
  /** Absent, or null, of a DELETE. */
  readonly object?: unknown;
  /** Absent, or null, of a CREATE. */
  readonly oldObject?: unknown;
  readonly dryRun?: boolean;
}

export interface AdmissionAnswer {
  readonly allowed: boolean;
  /** Why it is not allowed. */
  readonly message?: string;
  /** Shown to whoever made the request, allowed or not; up to 256 characters each. */
  readonly warnings?: readonly string[];
}

/**
 * Answers for admission. All are served by one HTTPS server (webhooks/), on every replica, whether it leads or not. A review that throws, or takes
 * too long, is a call that failed: the webhook's failurePolicy decides.
 */
export interface Webhook {
  /** Begins with a slash; no other part has it. */
  readonly path: string;
  readonly review: (request: AdmissionRequest) => AdmissionAnswer | Promise<AdmissionAnswer>;
}

export interface OperatorPart<Value = unknown> extends Part<Value> {
  /** Why it does not do its work yet, for /readyz; undefined: it does. /readyz shows the first in the order of start. */
  readonly unready?: () => string | undefined;
  /** This replica waits to lead: those that start later are not asked why they are not ready. */
  readonly standsBy?: () => boolean;
  /** Why the process must be restarted, for /healthz; undefined: it is well. */
  readonly unhealthy?: () => string | undefined;
  /** Expected errors: counted, but not logged, whichever part meets them. */
  readonly expected?: (error: unknown) => boolean;
  /** Called once, before /metrics is served. */
  readonly metrics?: (registry: Registry) => void;
  /** Of a part of a term, as are desired tables. */
  readonly sources?: readonly Source[];
  readonly desired?: readonly DesiredKind<never>[];
  /** The same whenever it is asked. */
  readonly webhooks?: readonly Webhook[];
}

/** What all parts bring together, those of the current term included. To be asked from a part's start on. */
export interface OperatorView {
  unready(): string | undefined;
  unhealthy(): string | undefined;
  expected(error: unknown): boolean;
  registry(): Registry;
  sources(): readonly Source[];
  desired(): readonly DesiredKind<never>[];
  webhooks(): readonly Webhook[];
}

export interface ProcessContext<Config = BaseConfig> {
  readonly config: Config;
  readonly client: KubeClient & FencingClient;
  readonly log: Logger;
  readonly operator: OperatorView;
}

export interface TermContext<Config = BaseConfig> extends ProcessContext<Config> {
  /** The tables of this term. */
  readonly db: StateDB;
  /** The operator cannot go on: the process must end. */
  readonly fail: (error: Error) => void;
  /** Leadership is lost, and nothing is written any more: this term is stopped, and another one begins. */
  readonly lost: () => void;
}

/** What the operator's list has of a part, before it is built. */
export interface OperatorPartTraits<F extends Flags = Flags, S extends object = object>
  extends FlagTraits<BaseConfig, F> {
  /** Values of the configuration that no flag sets. */
  readonly settings?: S;
}

type Life = 'process' | 'term';

export type AnyOperatorPart = AnyPartSpec & Flagged & { readonly settings?: object; readonly life: Life };

type ContextOf<L extends Life, Config> = L extends 'term' ? TermContext<Config> : ProcessContext<Config>;

/** Gives a part's functions the types of what it needs, and of its flags and settings. */
function define<const L extends Life>(life: L) {
  return <
    R extends OperatorPart | undefined,
    Needs extends PartNeeds = None,
    F extends Flags = None,
    S extends object = None,
  >(
    spec: PartDefinition<ContextOf<L, BaseConfig & ConfigOf<F> & S>, R, Needs> & OperatorPartTraits<F, S>,
  ): DefinedPart<ContextOf<L, BaseConfig & ConfigOf<F> & S>, R, Needs> &
    OperatorPartTraits<F, S> & { readonly life: L } => ({ ...spec, life }) as never;
}

/** A part of a term. */
export const definePart = define('term');

/** A part of the process. */
export const defineProcessPart = define('process');

type ConfigOfPart<P> = P extends OperatorPartTraits<infer F, infer S> ? ConfigOf<F> & S : never;
type All<Union> = (Union extends unknown ? (each: Union) => void : never) extends (all: infer Each) => void
  ? Each
  : never;

/** What the parts of a list ask of the configuration, all together. */
export type ConfigOfParts<List extends readonly unknown[]> = BaseConfig & All<ConfigOfPart<List[number]>>;
