/** What the operator reads into its input tables. */
import { type KubeObject, type Resource, resources } from '@weir/kube';
import type { DemandLimits } from '@weir/policy';
import type { StateDB, Table } from '@weir/statedb';
import { policyKey } from '../names.ts';
import type { Source } from '../parts/contract.ts';
import type { Tables } from '../tables.ts';
import type { PolicyObjectKind, PolicyRow } from '../types.ts';
import { type TableSinkOptions, tableSink } from './reflect.ts';
import {
  cidrGroupRow,
  countedPolicy,
  namespaceRow,
  nodeReportRow,
  nodeRow,
  podKey,
  podRow,
  policyRow,
  resolvedVersionRow,
  serviceRow,
  serviceSliceRow,
} from './rows.ts';

export interface SourcesOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  /** An object cannot be read; all others are. */
  readonly onBad: (kind: string, object: KubeObject, error: unknown) => void;
}

export interface PolicySourcesOptions extends SourcesOptions {
  /** What one policy may ask for: of one that asks for more no rules are kept. */
  readonly limits: DemandLimits;
  /** NetworkPolicies cannot be read (`because`), or can be again (undefined). */
  readonly onMissing: (kind: PolicyObjectKind, because: string | undefined) => void;
}

/** All of a page is in memory at once, and a policy takes up to 30 MB. */
const POLICIES_OF_A_PAGE = 10;

export function workloadSources(options: SourcesOptions): readonly Source[] {
  const { namespaces, pods, nodes } = options.tables;
  return [
    source(options, resources.Namespace, { table: namespaces, name: 'namespaces', row: namespaceRow, key: nameOf }),
    source(options, resources.Pod, { table: pods, name: 'pods', row: podRow, key: podKey }),
    source(options, resources.KubeNode, { table: nodes, name: 'nodes', row: nodeRow, key: nameOf }),
  ];
}

/** Services, and who answers for them. */
export function serviceSources(options: SourcesOptions): readonly Source[] {
  const { services, serviceSlices } = options.tables;
  const slices = { table: serviceSlices, name: 'service-slices', row: serviceSliceRow, key: podKey };
  return [
    source(options, resources.Service, { table: services, name: 'services', row: serviceRow, key: podKey }),
    source(options, resources.EndpointSlice, slices),
  ];
}

export function cidrGroupSources(options: SourcesOptions): readonly Source[] {
  const groups = { table: options.tables.cidrGroups, name: 'cidr-groups', row: cidrGroupRow, key: nameOf };
  return [source(options, resources.CiliumCIDRGroup, groups)];
}

/** Reports of nodes, and the ResolvedPolicies that they read. */
export function reportSources(options: SourcesOptions): readonly Source[] {
  const { reports, resolvedVersions } = options.tables;
  const versions = { table: resolvedVersions, name: 'resolved-versions', row: resolvedVersionRow, key: nameOf };
  return [
    source(options, resources.ResolvedPolicy, versions),
    source(options, resources.NodePolicyStatus, { table: reports, name: 'reports', row: nodeReportRow, key: nameOf }),
  ];
}

/** NetworkPolicies may be missing: what is enforced of them then stays as it is. */
export function policySources(options: PolicySourcesOptions): readonly Source[] {
  return [
    policySource(options, 'CiliumNetworkPolicy'),
    policySource(options, 'CiliumClusterwideNetworkPolicy'),
    policySource(options, 'NetworkPolicy', true),
  ];
}

function policySource(options: PolicySourcesOptions, kind: PolicyObjectKind, optional = false): Source {
  const { db, tables, limits, onBad, onMissing } = options;
  const keyOf = ({ metadata: { namespace, name } }: KubeObject): string => policyKey(kind, namespace, name);
  const sink = tableSink<KubeObject, PolicyRow>({
    db,
    table: tables.policies,
    name: kind,
    row: (object) => policyRow(object, kind),
    key: keyOf,
    mine: (row) => row.kind === kind,
    onBad: (object, error) => onBad(kind, object, error),
  });
  const missing = (because: string | undefined): void => {
    if (because !== undefined) sink.withoutIt();
    onMissing(kind, because);
  };
  return {
    resource: resources[kind],
    sink,
    pageSize: POLICIES_OF_A_PAGE,
    trim: (object) => {
      using snapshot = db.read();
      return countedPolicy(object, kind, limits, snapshot.get(tables.policies, keyOf(object)));
    },
    ...(optional ? { optional: { missing } } : {}),
  };
}

function source<T extends KubeObject, Row>(
  { db, onBad }: SourcesOptions,
  resource: Resource<T>,
  into: Pick<TableSinkOptions<T, Row>, 'name' | 'row' | 'key'> & { readonly table: Table<Row> },
): Source<T> {
  return { resource, sink: tableSink({ ...into, db, onBad: (object, error) => onBad(into.name, object, error) }) };
}

const nameOf = ({ metadata }: KubeObject): string => metadata.name;
