/** What an endpoint is to be, what the kernel acknowledged of it, and why the two differ. Every face of an endpoint shows this. */
import { failureKey } from '@weir/reconciler';
import type { DeriveReader } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { faultText, problemText, UNSEEN } from '../datapath/index.ts';
import { hostPrefix } from '../derive/index.ts';
import type { EndpointRow, EndpointStateRow, KernelEndpointRow } from '../tables.ts';

/** Tables that `endpointStatus` reads. */
export const STATUS_TABLES = [
  'endpoints',
  'endpointStates',
  'kernelEndpoints',
  'kernelFailures',
  'enforcementFaults',
  'identities',
] as const satisfies readonly (keyof Tables)[];

/** Cilium's names where it has one. `interface-gone` is Weir's. */
export type EndpointWord =
  | EndpointStateRow['state']
  /** As it was found at the agent's start. */
  | 'restoring'
  /** The kernel has been given what is wanted, and has not acknowledged it yet. */
  | 'regenerating'
  /** What it should be cannot be computed: it is judged by what it was before. */
  | 'waiting-to-regenerate'
  | 'interface-gone';

/** What the kernel has of an endpoint. */
export interface Acknowledged
  extends Pick<EndpointStateRow, 'identity' | 'labels' | 'slot' | 'enforced' | 'revision' | 'policies'> {
  readonly state: Exclude<EndpointWord, 'interface-gone' | 'regenerating'>;
  /** Found at this start, and not put there by it: which policies made it so is not known. */
  readonly found: boolean;
}

export interface EndpointStatus {
  readonly row: EndpointRow;
  /** Undefined: nothing is computed yet. */
  readonly wanted: EndpointStateRow | undefined;
  /** Undefined: the kernel has nothing of it. */
  readonly acknowledged: Acknowledged | undefined;
  /** `wanted` is what the kernel acknowledged. */
  readonly current: boolean;
  readonly state: EndpointWord;
  /** What the kernel refuses of it, or what others took away and is not put back yet. */
  readonly problem: string | undefined;
  /** All that explains `state`, `problem` included. */
  readonly reason: string | undefined;
}

export function endpointStatus(reader: DeriveReader, tables: Tables, row: EndpointRow): EndpointStatus {
  const key = tableKey.endpoint(row.id);
  const wanted = reader.get(tables.endpointStates, key);
  const kernel = row.gone === undefined ? reader.get(tables.kernelEndpoints, key) : undefined;
  const acknowledged = acknowledgedOf(reader, tables, row, kernel);
  const current = wanted !== undefined && kernel?.acknowledged === wanted;
  const problem = row.gone === undefined ? problemOf(reader, tables, row, { wanted, kernel, current }) : undefined;
  const state = stateOf(row, { wanted, acknowledged, current, problem });
  const reasons = [
    ...(row.gone === undefined ? [] : [goneText(row)]),
    ...(row.found === undefined ? [] : ['no file knew it, it was taken from the kernel']),
    ...(problem === undefined ? [] : [problem]),
    ...(acknowledged?.found === true ? ["shown as it was found in the kernel at the agent's start"] : []),
    ...(wanted?.reason === undefined ? [] : [wanted.reason]),
  ];
  const reason = reasons.length === 0 ? undefined : reasons.join('; ');
  return { row, wanted, acknowledged, current, state, problem, reason };
}

function acknowledgedOf(
  reader: DeriveReader,
  tables: Tables,
  row: EndpointRow,
  kernel: KernelEndpointRow | undefined,
): Acknowledged | undefined {
  if (kernel?.acknowledged !== undefined) {
    const { state, reason } = kernel.acknowledged;
    const waits = state === 'ready' && reason !== undefined;
    return { ...kernel.acknowledged, state: waits ? 'waiting-to-regenerate' : state, found: false };
  }
  if (kernel?.found === undefined) return undefined;
  const { identity, slot, enforced, revision } = kernel.found;
  const labels = row.labels ?? reader.get(tables.identities, tableKey.identity(identity))?.labels ?? {};
  return {
    state: 'restoring',
    identity,
    labels,
    slot,
    enforced,
    revision,
    policies: {},
    found: true,
  };
}

function stateOf(
  row: EndpointRow,
  { wanted, acknowledged, current, problem }: Pick<EndpointStatus, 'wanted' | 'acknowledged' | 'current' | 'problem'>,
): EndpointWord {
  if (row.gone !== undefined) return 'interface-gone';
  if (problem !== undefined) return 'not-ready';
  if (acknowledged?.found === true) return 'restoring';
  if (wanted === undefined) return 'waiting-for-identity';
  return current && acknowledged !== undefined ? acknowledged.state : 'regenerating';
}

/** The first there is: a slot that is refused keeps its endpoints, too. */
function problemOf(
  reader: DeriveReader,
  tables: Tables,
  { id, addresses }: EndpointRow,
  of: {
    readonly wanted: EndpointStateRow | undefined;
    readonly kernel: KernelEndpointRow | undefined;
    readonly current: boolean;
  },
): string | undefined {
  const { wanted, kernel, current } = of;
  const refused = (reconciler: string, key: string, what: string): string | undefined => {
    const failure = reader.get(tables.kernelFailures, failureKey(reconciler, key));
    return failure === undefined || failure.deleted ? undefined : `the kernel refuses ${what}: ${failure.message}`;
  };
  const slots = new Set([wanted?.slot, kernel?.acknowledged?.slot]);
  for (const slot of slots) {
    const why = slot && refused('kernel-slots', tableKey.slot(slot), `its policy slot ${slot}`);
    if (why) return why;
  }
  const own = current ? undefined : refused('kernel-endpoints', tableKey.endpoint(id), 'it');
  if (own !== undefined) return own;
  const prefixes = addresses.flatMap((address) => hostPrefix(address) ?? []);
  for (const prefix of prefixes) {
    const why = refused('kernel-ipcache', prefix, `its address ${prefix}`);
    if (why !== undefined) return why;
  }
  for (const [part, key] of [
    ['endpoint', String(id)],
    ['endpoint', UNSEEN],
    ['slot', String(kernel?.slot ?? 0)],
    ...prefixes.map((prefix) => ['address', prefix] as const),
  ] as const) {
    const fault = reader.get(tables.enforcementFaults, tableKey.fault({ part, of: key }));
    if (fault !== undefined) return part === 'endpoint' && key !== UNSEEN ? problemText(fault) : faultText(fault);
  }
  return undefined;
}

function goneText({ gone, interfaceName }: EndpointRow): string {
  return `its interface ${interfaceName} has been gone since ${gone}: the kernel has nothing of it any more; delete the pod, so that it is recreated`;
}
