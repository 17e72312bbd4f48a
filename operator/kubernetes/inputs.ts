/**
 * The reflectors: everything that the operator reads, into the input tables and the targets.
 *
 * Guarantee: NetworkPolicies that are not served, or that the operator may not read, do not hold up the rest; every other
 * kind does, because without it what would be written could be wrong. Who waits is told for what.
 */
import {
  ApiError,
  apiVersionOf,
  type CiliumPolicyObject,
  createReflector,
  type KubeClient,
  type KubeObject,
  type Reflector,
  type ReflectorOptions,
  type ReflectorSink,
  type Resource,
  resources,
} from '@weir/kube';
import type { DemandLimits } from '@weir/policy';
import type { InitDone, StateDB, Table } from '@weir/statedb';
import { policyKey } from '../names.ts';
import type { Tables } from '../tables.ts';
import type { InputSource, PolicyObjectKind } from '../types.ts';
import type { ResolvedPolicyWithStatus } from './objects.ts';
import { fanOut, type TableSink, tableSink } from './reflect.ts';
import {
  countedPolicy,
  namespaceRow,
  nodeReportRow,
  nodeRow,
  podKey,
  podRow,
  policyRow,
  resolvedVersionRow,
} from './rows.ts';
import { readable } from './shapes.ts';
import type { CiliumKind, Targets } from './targets.ts';

export interface InputsOptions {
  readonly client: KubeClient;
  readonly db: StateDB;
  readonly tables: Tables;
  readonly targets: Targets;
  /** What one policy may ask for: of one that asks for more no rules are kept. */
  readonly policyLimits: DemandLimits;
  /** A list or watch failed, and is tried again. */
  readonly onError: (error: Error, context: { readonly resource: string; readonly retryInMs: number }) => void;
  /** An object cannot be read; all others are. */
  readonly onBad: (kind: string, object: KubeObject, error: unknown) => void;
  /** A kind that the rest does not wait for cannot be read (`because`), or can be again (undefined). */
  readonly onMissing: (kind: PolicyObjectKind, because: string | undefined) => void;
}

/** How a kind is read. */
interface Reading<T extends KubeObject> extends Pick<ReflectorOptions<T>, 'pageSize' | 'trim'> {
  /** Told of failures before the first complete list. */
  readonly unreadable?: (error: Error) => void;
}

/** All of a page is in memory at once, and a policy takes up to 30 MB. */
const POLICIES_OF_A_PAGE = 10;

export class Inputs {
  readonly #options: InputsOptions;
  readonly #reflectors: { readonly resource: string; readonly reflector: Reflector }[] = [];
  readonly #sources: Table<InputSource>;
  readonly #complete: InitDone;

  constructor(options: InputsOptions) {
    this.#options = options;
    this.#sources = options.tables.inputSources;
    this.#complete = options.db.initialiser(this.#sources, 'inputs');
  }

  /** Resolves when every kind has been read completely, or does not matter; then table `input-sources` is complete. */
  async start(): Promise<void> {
    const { tables, targets } = this.#options;
    await Promise.all([
      this.#reflect(resources.CiliumIdentity, targets.identities),
      this.#reflect(resources.PeerSet, targets.peerSets),
      this.#reflect(
        resources.ResolvedPolicy,
        fanOut<ResolvedPolicyWithStatus>(
          targets.resolved,
          networkPoliciesOnly(targets.resolvedStatuses),
          this.#sink(tables.resolvedVersions, 'resolved-versions', resolvedVersionRow, nameOf),
        ),
      ),
      this.#reflect(resources.CiliumEndpointSlice, targets.slices),
      this.#reflectPolicies('CiliumNetworkPolicy'),
      this.#reflectPolicies('CiliumClusterwideNetworkPolicy'),
      this.#reflectNetworkPolicies(),
      this.#reflect(resources.Namespace, this.#sink(tables.namespaces, 'namespaces', namespaceRow, nameOf)),
      this.#reflect(resources.Pod, this.#sink(tables.pods, 'pods', podRow, podKey)),
      this.#reflect(resources.KubeNode, this.#sink(tables.nodes, 'nodes', nodeRow, nameOf)),
      this.#reflect(resources.NodePolicyStatus, this.#sink(tables.reports, 'reports', nodeReportRow, nameOf)),
    ]);
    this.#options.db.write([this.#sources], (txn) => this.#complete(txn));
  }

  async stop(): Promise<void> {
    await Promise.all(this.#reflectors.map(({ reflector }) => reflector.stop()));
  }

  /** Kinds that were read once, and for more than `staleMs` could not be followed: their names, for how long, and why. */
  stale(staleMs: number): string[] {
    const now = performance.now();
    using snapshot = this.#options.db.read();
    return this.#reflectors.flatMap(({ resource, reflector: { synced, staleSince } }) => {
      if (!synced || staleSince === undefined || now - staleSince < staleMs) return [];
      const { missing, error: why = 'no answer' } = snapshot.get(this.#sources, resource) ?? {};
      if (missing !== undefined) return [];
      return [`${resource} (for ${Math.round((now - staleSince) / 1000)} s: ${why})`];
    });
  }

  /** What is waited for, and why it has not come. */
  waiting(): string[] {
    using snapshot = this.#options.db.read();
    return [...snapshot.prefix(this.#sources, '', 'place')]
      .filter(({ synced }) => !synced)
      .map(({ name, error }) => (error === undefined ? name : `${name} (${error})`));
  }

  #reflectPolicies(kind: CiliumKind): Promise<void> {
    // First the status that is known, then the row that may make a new one.
    return this.#reflect(
      resources[kind],
      fanOut<CiliumPolicyObject>(this.#options.targets.statuses[kind], this.#policySink(kind)),
      this.#policyReading(kind),
    );
  }

  #reflectNetworkPolicies(): Promise<void> {
    const kind = 'NetworkPolicy';
    const { plural } = resources[kind];
    const { onMissing } = this.#options;
    const sink = this.#policySink(kind);
    const without = Promise.withResolvers<void>();
    const synced = this.#reflect(
      resources.NetworkPolicy,
      {
        ...sink,
        replace: (items, version) => {
          sink.replace(items, version);
          if (this.#note(plural, { missing: undefined }).missing !== undefined) onMissing(kind, undefined);
        },
      },
      {
        ...this.#policyReading(kind),
        unreadable: (error) => {
          if (!(error instanceof ApiError && (error.forbidden || error.notFound))) return;
          if (this.#note(plural, { missing: kind }).missing !== undefined) return;
          sink.withoutIt();
          onMissing(kind, error.message);
          without.resolve();
        },
      },
    );
    return Promise.race([synced, without.promise]);
  }

  /** How policies are read: whoever writes them writes large ones. */
  #policyReading(kind: PolicyObjectKind): Reading<KubeObject> {
    const { db, tables, policyLimits } = this.#options;
    const trim = (object: KubeObject): KubeObject => {
      using snapshot = db.read();
      const { namespace, name } = object.metadata;
      const known = snapshot.get(tables.policies, policyKey(kind, namespace, name));
      return countedPolicy(object, kind, policyLimits, known);
    };
    return { pageSize: POLICIES_OF_A_PAGE, trim };
  }

  #policySink(kind: PolicyObjectKind): TableSink<KubeObject> {
    return this.#sink(
      this.#options.tables.policies,
      kind,
      (object: KubeObject) => policyRow(object, kind),
      ({ metadata: { namespace, name } }) => policyKey(kind, namespace, name),
      (row) => row.kind === kind,
    );
  }

  #sink<T extends KubeObject, Row>(
    table: Table<Row>,
    name: string,
    row: (object: T) => Row,
    key: (object: T) => string,
    mine: (row: Row) => boolean = () => true,
  ): TableSink<T> {
    const { db, onBad } = this.#options;
    return tableSink({ db, table, name, row, key, mine, onBad: (object, error) => onBad(name, object, error) });
  }

  #reflect<T extends KubeObject>(
    resource: Resource<T>,
    sink: ReflectorSink<T>,
    { unreadable, ...reading }: Reading<T> = {},
  ): Promise<void> {
    const { client, onError } = this.#options;
    const synced = Promise.withResolvers<void>();
    this.#note(resource.plural, {});
    const reflector = createReflector({
      ...reading,
      client,
      resource,
      sink: {
        replace: (items, version) => sink.replace(items, version),
        upsert: (item) => sink.upsert(item),
        delete: (item) => sink.delete(item),
        synced: () => {
          this.#note(resource.plural, { synced: true });
          synced.resolve();
        },
      },
      onError: (error, context) => {
        const { synced: isSynced } = this.#note(resource.plural, { error: failureOf(error, resource) });
        onError(error, context);
        if (!isSynced) unreadable?.(error);
      },
    });
    this.#reflectors.push({ resource: resource.plural, reflector });
    reflector.start();
    return synced.promise;
  }

  /** Returns what was known of the source before. */
  #note(name: string, news: Partial<InputSource>): InputSource {
    return this.#options.db.write([this.#sources], (txn) => {
      const place = txn.count(this.#sources);
      const fresh = { name, place, synced: false, error: undefined, missing: undefined };
      const known = txn.get(this.#sources, name) ?? fresh;
      txn.upsert(this.#sources, { ...known, ...news });
      return known;
    });
  }
}

const nameOf = ({ metadata }: KubeObject): string => metadata.name;

/** What a failure asks of the reader. */
function failureOf(error: Error, resource: Resource<KubeObject>): string {
  const kind = `${resource.plural} (${apiVersionOf(resource)})`;
  if (!(error instanceof ApiError)) return error.message;
  if (error.forbidden) return `${error.message}; grant the operator's role get, list and watch on ${kind}`;
  if (error.notFound) return `${error.message}; the API server does not serve ${kind}`;
  return error.message;
}

function networkPoliciesOnly(sink: ReflectorSink<ResolvedPolicyWithStatus>): ReflectorSink<ResolvedPolicyWithStatus> {
  const mine = (object: ResolvedPolicyWithStatus): boolean =>
    readable.resolved(object) && object.spec?.source.kind === 'NetworkPolicy';
  return {
    replace: (items, version) => sink.replace(items.filter(mine), version),
    upsert: (item) => {
      if (mine(item)) sink.upsert(item);
      else sink.delete(item);
    },
    delete: (item) => sink.delete(item),
  };
}
