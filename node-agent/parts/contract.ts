/**
 * A part of the agent: one feature, in one folder, with all that it brings.
 *
 * `@weir/process/parts` has what a part needs and how it starts and stops. Besides, a part may bring flags, maps, inputs from the API
 * server, rows of `weir status`, metrics, routes of the API, and its share of an uninstall; tables it makes by `context.db`. The agent puts
 * together what its parts bring, and names none of them: `list.ts` does. Commands of `weir` are listed in `cli/commands.ts`, as the
 * command is another program.
 */
import type { Hook, MapSpec, ObjectSource, ProgramObject } from '@weir/bpf';
import type { KubeObject, ListOptions, ReflectorSink, Resource } from '@weir/kube';
import type { ConfigOf, Flagged, Flags, FlagTraits } from '@weir/process/flags';
import type { AnyPartSpec, DefinedPart, None, Part, PartDefinition, PartNeeds, PartRow } from '@weir/process/parts';
import type { Start } from '@weir/process/supervised';
import type { StateDB } from '@weir/statedb';
import type { FastifyInstance } from 'fastify';
import type { Registry } from 'prom-client';
import type { BaseConfig } from '../config/config.ts';
import type { AddressSource, Logger, PlanStep } from '../core.ts';
import type { EventKind, EventSource, PeerNaming } from '../flows/types.ts';

export type { EventNames, EventSource, FlowEvent, FlowPeer, PeerNaming } from '../flows/types.ts';

export interface Condition {
  readonly ok: boolean;
  readonly message: string;
  /** This agent does without it: `message` says so. */
  readonly off?: true;
}

/** A row of `weir status`. */
export interface PartCondition {
  /** Unique, lower case. */
  readonly name: string;
  /** What the row is called. */
  readonly title: string;
  readonly read: () => Condition;
  /** While it is not ok the agent does not do its work (`Failure`, and /readyz fails). Absent: it does, and the row is a warning. */
  readonly vital?: true;
  /** Reason of the Node's condition `WeirProblem` while it is not ok. Absent: the Node does not name it. */
  readonly reason?: string;
}

/** What the Node's condition `WeirProblem` says. */
export interface NodeProblem {
  /** In CamelCase. */
  readonly reason: string;
  readonly message: string;
}

/** Objects that the agent lists and watches. The sink makes the initialiser of its table when it is built: before the core starts. */
export interface Source<T extends KubeObject = KubeObject> {
  readonly resource: Resource<T>;
  readonly sink: ReflectorSink<T>;
  readonly list?: Omit<ListOptions, 'signal'>;
}

/**
 * A part's share of taking Weir off a node. The steps of one kind are taken in the order of the parts, the kinds in the order in which they
 * stand here; each is a no-op the second time. What is returned is what was taken away, in words.
 */
export interface Removal {
  /** From now on no pod is attached. */
  refuse?(): void | Promise<void>;
  /** What the container runtime calls. */
  runtime?(): Promise<readonly string[]>;
  /** What enforces: programs, maps, pins and state. */
  enforcement?(): Promise<readonly string[]>;
  /** What pods that still run need, and keeps the last kind from being asked for. */
  inUse?(): Promise<readonly string[]>;
  /** What only running pods needed. */
  network?(): Promise<readonly string[]>;
}

/** A child process or worker thread. While it does not run a row of `weir status` says why. */
export interface KeptRunning extends Pick<PartCondition, 'name' | 'title' | 'vital' | 'reason'> {
  readonly start: Start;
}

export interface AgentPart<Value = unknown> extends Part<Value> {
  readonly conditions?: readonly PartCondition[];
  /** What is wrong with the node, beside the conditions. */
  readonly problems?: () => readonly NodeProblem[];
  /** Why the agent does nothing any more, and is to be left alone; undefined while it works. */
  readonly idle?: () => string | undefined;
  /** Called once, before /metrics is served. */
  readonly metrics?: (registry: Registry) => void;
  /** Called once, before the API listens; `app` has the prefix /v1. */
  readonly routes?: (app: FastifyInstance) => void;
  readonly sources?: readonly Source[];
  /** Where the programs of its objects run, by the object's name. One that is not here is not loaded. */
  readonly hooks?: Readonly<Record<string, readonly Hook[]>>;
  /** Child processes and worker threads that are kept running from its start until its stop. */
  readonly running?: readonly KeptRunning[];
  /** Addresses of its own in the ipcache. */
  readonly addresses?: readonly AddressSource[];
  /** What it has computed in each plan. */
  readonly steps?: readonly PlanStep[];
  /** Events of its own that its programs send. */
  readonly events?: readonly EventKind[];
  /** Events of its own that no program sends. */
  readonly eventSource?: EventSource;
  /** Names that it knows for the ends of flows. */
  readonly peerNaming?: PeerNaming;
  /** What `GET /v1/config` shows of it, by names that no other part has. */
  readonly settings?: Readonly<Record<string, string>>;
  readonly removal?: Removal;
}

/** What all parts bring together. To be asked from a part's start on: in `build` those after it are not there yet. */
export interface AgentView {
  conditions(): readonly PartCondition[];
  /** What the Node's condition names. */
  problems(): readonly NodeProblem[];
  idle(): string | undefined;
  metrics(registry: Registry): void;
  routes(app: FastifyInstance): void;
  sources(): readonly Source[];
  objects(): readonly ProgramObject[];
  addresses(): readonly AddressSource[];
  steps(): readonly PlanStep[];
  events(): readonly EventKind[];
  eventSources(): readonly EventSource[];
  peerNamings(): readonly PeerNaming[];
  settings(): Readonly<Record<string, string>>;
  removal(): readonly Removal[];
  /** How far each part has come, in the order of start: table `parts`. */
  parts(): readonly PartRow[];
  /** Of parts that are not off. */
  maps(): readonly MapSpec[];
}

export interface AgentContext<Config = BaseConfig> {
  readonly config: Config;
  /** `cleanup`: nothing is started; what parts remove is asked for. */
  readonly command: 'run' | 'cleanup';
  /** The agent's tables. */
  readonly db: StateDB;
  readonly log: Logger;
  readonly agent: AgentView;
}

/** What the agent's list has of a part, before it is built. */
export interface AgentPartTraits<F extends Flags = Flags> extends FlagTraits<BaseConfig, F> {
  /** Pinned maps of its own, beside those of the datapath's object. */
  readonly maps?: readonly MapSpec[];
  /** BPF objects of its own: images bring them compiled. */
  readonly objects?: readonly ObjectSource[];
}

export type AnyAgentPart = AnyPartSpec & Flagged & Pick<AgentPartTraits, 'maps' | 'objects'>;

/** Gives a part's functions the types of what it needs and of its flags. */
export function definePart<R extends AgentPart | undefined, Needs extends PartNeeds = None, F extends Flags = None>(
  spec: PartDefinition<AgentContext<BaseConfig & ConfigOf<F>>, R, Needs> & AgentPartTraits<F>,
): DefinedPart<AgentContext<BaseConfig & ConfigOf<F>>, R, Needs> & AgentPartTraits<F> {
  return spec as never;
}
