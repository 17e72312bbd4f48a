import { CLUSTER_FIRST, isLocalCidr, RESERVED_ID } from '@weir/identity';
import type { StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { IpcacheRow, NodeRow, RemoteEndpointRow } from '../tables.ts';
import type { Addresses } from './addresses.ts';
import type { EndpointShapes } from './endpoint-shapes.ts';
import type { Inputs } from './inputs.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import type { LocalEndpoints } from './local-endpoints.ts';
import type { Pace } from './pace.ts';
import type { Withdrawal } from './plan.ts';
import { hostPrefix, isAddress } from './prefixes.ts';
import { Rows } from './working.ts';

/**
 * How long the first plan may take once the slices are complete, in milliseconds. An ordinary start takes less; until then what was found counts,
 * so that a pod which both its old and its new labels allow sees no gap.
 */
export const WITHDRAW_AFTER_MS = 5_000;

/** Identities of nodes and API servers, which go by address. */
const NODES: ReadonlySet<number> = new Set([
  RESERVED_ID.host,
  RESERVED_ID['remote-node'],
  RESERVED_ID['kube-apiserver'],
]);
const NOTHING: Withdrawal = { addresses: [], endpoints: [] };

/** The only row. */
interface Withdrawn {
  /** When it begins, by the clock that was given; it has begun, once that is absent. */
  readonly due?: number;
  /** How many addresses and endpoints. */
  readonly addresses: number;
  readonly endpoints: number;
}

export interface WithdrawalsOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'remoteEndpoints' | 'endpoints' | 'nodes' | 'apiserverAddresses'>;
  readonly inputs: Pick<Inputs, 'said'>;
  readonly ipcache: Pick<IpcacheDeriver, 'row'>;
  readonly addresses: Pick<Addresses, 'identityAt' | 'withdraw'>;
  readonly shapes: Pick<EndpointShapes, 'kernels' | 'close'>;
  readonly local: Pick<LocalEndpoints, 'contradicts'>;
  readonly pace: Pace;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
}

/**
 * What an agent takes back of what it found in the kernel while its inputs are not complete. Without all of them no policy can be concluded, and
 * the rules that were found stay in force; but they go by identities, and whose an address is may have changed since. Guarantee: an
 * address that the slices give to somebody else, or to nobody, becomes unknown, and an endpoint whose pod is certainly not of the identity that
 * it was found with is closed. Nobody gets rights by it: the first plan says who they are.
 */
export class Withdrawals {
  readonly #options: WithdrawalsOptions;
  readonly #row: Rows<'', Withdrawn>;
  /** Addresses still to be looked at. */
  readonly #dirty = new Set<string>();
  #over = false;

  constructor(options: WithdrawalsOptions) {
    this.#options = options;
    this.#row = new Rows<'', Withdrawn>(options.db, { name: 'withdrawn', key: () => '' }, () => '');
  }

  adopt(prefixes: Iterable<string>): void {
    for (const prefix of prefixes) if (isAddress(prefix)) this.#dirty.add(prefix);
  }

  endpointChanged(row: RemoteEndpointRow): void {
    const { inputs, tables } = this.#options;
    const before = inputs.said.get(tables.remoteEndpoints, tableKey.pod(row.namespace, row.name));
    this.#touch([...row.addresses, ...(before?.addresses ?? [])]);
  }

  nodeChanged(row: NodeRow): void {
    const { inputs, tables } = this.#options;
    this.#touch([...row.addresses, ...(inputs.said.get(tables.nodes, row.name)?.addresses ?? [])]);
  }

  addressesChanged(addresses: readonly string[]): void {
    this.#touch(addresses);
  }

  /** A plan is concluded: what was found does not count any more. */
  end(): void {
    this.#over = true;
    this.#dirty.clear();
    this.#row.delete('');
  }

  /** When there is something to withdraw though no input changes, by the clock that was given. */
  dueAt(): number | undefined {
    return this.#row.get('')?.due;
  }

  /** How much was taken back, from when on; until the first plan. */
  counts(): Withdrawn | undefined {
    return this.#row.get('');
  }

  /** What is to be taken back now; it counts as taken back from then on. */
  async take(): Promise<Withdrawal> {
    const { inputs, tables, addresses, shapes, now } = this.#options;
    if (this.#over || !inputs.said.initialised(tables.remoteEndpoints)) return NOTHING;
    const row = this.#row.get('') ?? { due: now() + WITHDRAW_AFTER_MS, addresses: 0, endpoints: 0 };
    if (row.due !== undefined && now() < row.due) {
      this.#row.set(row);
      return NOTHING;
    }
    const closed = this.#contradicted();
    const withdrawn = await this.#withdrawn();
    addresses.withdraw(withdrawn);
    for (const id of closed) shapes.close(id);
    this.#row.set({
      addresses: row.addresses + withdrawn.length,
      endpoints: row.endpoints + closed.length,
    });
    return {
      addresses: withdrawn.map((prefix): IpcacheRow => ({ prefix, identity: 0, source: 'endpoint' })),
      endpoints: closed,
    };
  }

  #touch(addresses: Iterable<string>): void {
    if (this.#over) return;
    for (const address of addresses) {
      const prefix = hostPrefix(address);
      if (prefix !== undefined) this.#dirty.add(prefix);
    }
  }

  /** Endpoints whose pods are not who they were, with their addresses marked. */
  #contradicted(): number[] {
    const { inputs, tables, shapes, local } = this.#options;
    const out: number[] = [];
    for (const { id, identity, closed } of shapes.kernels()) {
      if (closed) continue;
      const row = inputs.said.get(tables.endpoints, tableKey.endpoint(id));
      if (row === undefined || row.gone !== undefined || !local.contradicts(row, identity)) continue;
      out.push(id);
      this.#touch([row.ipv4]);
    }
    return out;
  }

  async #withdrawn(): Promise<string[]> {
    const { addresses, pace } = this.#options;
    const out: string[] = [];
    pace.restart();
    for (const prefix of this.#dirty) {
      const identity = addresses.identityAt(prefix);
      if (identity !== 0 && !this.#holds(prefix, identity)) out.push(prefix);
      this.#dirty.delete(prefix);
      if (pace.due()) await pace.breathe();
    }
    return out;
  }

  /** Whether the address may still be of the identity, by all that is known. */
  #holds(prefix: string, identity: number): boolean {
    const { inputs, tables, ipcache, local } = this.#options;
    const { said } = inputs;
    const address = prefix.slice(0, prefix.indexOf('/'));
    for (const row of said.list(tables.endpoints, 'ipv4', address))
      if (row.gone === undefined) return !local.contradicts(row, identity);
    // Pods of the slices are not in it before the first plan.
    const node = ipcache.row(prefix);
    if (node !== undefined && node.source !== 'apiserver') return node.identity === identity;
    let claimed = false;
    for (const row of said.list(tables.remoteEndpoints, 'address', address)) {
      if (row.identity !== identity) return false;
      claimed = true;
    }
    if (claimed) return true;
    if (node !== undefined) return node.identity === identity;
    if (NODES.has(identity)) return !said.initialised(tables.nodes) || !said.initialised(tables.apiserverAddresses);
    return identity < CLUSTER_FIRST || isLocalCidr(identity);
  }
}
