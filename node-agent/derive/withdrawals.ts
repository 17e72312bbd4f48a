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
import { hostPrefix, isAddress, prefixOrNone } from './prefixes.ts';
import { Rows } from './working.ts';

/**
 * How long the first plan may take once it is known who pods are, in milliseconds. An ordinary start takes less; until then what was found counts,
 * so that a pod which both its old and its new labels allow sees no gap.
 */
export const WITHDRAW_AFTER_MS = 5_000;

const { host: HOST, 'remote-node': REMOTE_NODE, 'kube-apiserver': KUBE_APISERVER } = RESERVED_ID;
/** They go by address. */
const NODES: readonly number[] = [HOST, REMOTE_NODE, KUBE_APISERVER];
const NOTHING: Withdrawal = { addresses: [], endpoints: [], reopened: [], renew: false };

/** Who is told of: the pods of this node by their own objects, or all pods by the slices. */
type Kind = 'local' | 'slices';

/** The only row. */
interface Withdrawn {
  /** When each kind, which is complete, begins to count, by the clock that was given. */
  readonly due: Readonly<Partial<Record<Kind, number>>>;
  /** Whether nodes and API servers were complete when addresses were looked at. */
  readonly nodes: boolean;
  readonly servers: boolean;
  /** How much is taken back in the kernel. */
  readonly addresses: number;
  readonly endpoints: number;
}

/** An address that was taken back, and whose it was found to be. Key: `prefix`. */
interface Taken {
  readonly prefix: string;
  readonly identity: number;
}

export interface WithdrawalsOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'remoteEndpoints' | 'endpoints' | 'localPods' | 'nodes' | 'apiserverAddresses'>;
  readonly inputs: Pick<Inputs, 'said'>;
  readonly ipcache: Pick<IpcacheDeriver, 'row'>;
  readonly addresses: Pick<Addresses, 'identityAt' | 'hasElement' | 'withFound' | 'put'>;
  readonly shapes: Pick<EndpointShapes, 'kernels' | 'close' | 'reopen'>;
  readonly local: Pick<LocalEndpoints, 'contradicts' | 'confirms'>;
  /** Whether endpoints are enforced at all. */
  readonly enforcing: boolean;
  readonly pace: Pace;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
}

/**
 * What an agent takes back of what it found in the kernel while its inputs are not complete. Without all of them no policy can be concluded, and
 * the rules that were found stay in force; but they go by identities, and whose an address is may have changed since. Guarantee: an
 * address that the slices give to somebody else, or to nobody, becomes unknown, and an endpoint whose pod is certainly not of the identity that
 * it was found with is closed. Nobody gets rights by it but those that he was found with, when the inputs say again what was found; the first plan
 * says who they are.
 */
export class Withdrawals {
  readonly #options: WithdrawalsOptions;
  readonly #row: Rows<'', Withdrawn>;
  readonly #taken: Rows<string, Taken>;
  /** Addresses still to be looked at. */
  readonly #dirty = new Set<string>();
  #over = false;

  constructor(options: WithdrawalsOptions) {
    this.#options = options;
    const { db } = options;
    this.#row = new Rows<'', Withdrawn>(db, { name: 'withdrawals', key: () => '' }, () => '');
    this.#taken = new Rows<string, Taken>(
      db,
      { name: 'withdrawnAddresses', key: ({ prefix }) => prefix },
      (prefix) => prefix,
    );
  }

  adopt(prefixes: Iterable<string>): void {
    for (const prefix of prefixes) if (isAddress(prefix)) this.#dirty.add(prefix);
  }

  endpointChanged(row: RemoteEndpointRow): void {
    if (this.#over) return;
    const { inputs, tables } = this.#options;
    const before = inputs.said.get(tables.remoteEndpoints, tableKey.pod(row.namespace, row.name));
    this.addressesChanged([...row.addresses, ...(before?.addresses ?? [])]);
  }

  nodeChanged(row: NodeRow): void {
    if (this.#over) return;
    const { inputs, tables } = this.#options;
    const before = inputs.said.get(tables.nodes, row.name);
    this.addressesChanged([...row.addresses, ...(before?.addresses ?? [])]);
    for (const cidr of row.podCidrs) {
      const prefix = prefixOrNone(cidr);
      if (prefix !== undefined) this.#dirty.add(prefix);
    }
  }

  addressesChanged(addresses: Iterable<string>): void {
    if (this.#over) return;
    for (const address of addresses) {
      const prefix = hostPrefix(address);
      if (prefix !== undefined) this.#dirty.add(prefix);
    }
  }

  /** A plan is concluded: what was found does not count any more. */
  end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#dirty.clear();
    this.#row.delete('');
    this.#taken.write((txn) => txn.deleteAll(this.#taken.table));
  }

  /** When there is something to withdraw though no input changes, by the clock that was given. */
  dueAt(): number | undefined {
    const { local = Infinity, slices = Infinity } = this.#row.get('')?.due ?? {};
    // Until somebody has looked: a timer may come a moment early.
    const due = [local, slices].filter((at) => at !== BEGUN && at !== Infinity);
    return due.length === 0 ? undefined : Math.min(...due);
  }

  /** The kernel has what `take` returned last. */
  done(): void {
    const row = this.#row.get('');
    const addresses = this.#taken.size;
    const endpoints = [...this.#options.shapes.kernels()].filter(({ closed }) => closed !== undefined).length;
    if (row !== undefined && (row.addresses !== addresses || row.endpoints !== endpoints))
      this.#row.set({ ...row, addresses, endpoints });
  }

  /** How much is taken back in the kernel, until the first plan. */
  counts(): Pick<Withdrawn, 'addresses' | 'endpoints'> {
    return this.#row.get('') ?? { addresses: 0, endpoints: 0 };
  }

  /** Whether it is known of pods, of this kind of them, and what was found of them counts no more. */
  begun(kind: Kind): boolean {
    return this.#row.get('')?.due[kind] === BEGUN;
  }

  /** What is to be taken back now, or given back; it counts as done from then on. */
  async take(): Promise<Withdrawal> {
    if (this.#over) return NOTHING;
    this.#wait();
    const { closed, reopened } = this.#judgeEndpoints();
    const addresses = this.begun('slices') ? await this.#judgeAddresses() : this.#judgeLocal([...closed, ...reopened]);
    return { addresses, endpoints: closed, reopened, renew: false };
  }

  /** Notes what is complete, and what has been for long enough. */
  #wait(): void {
    const { inputs, tables, addresses, now } = this.#options;
    const { said } = inputs;
    const before = this.#row.get('');
    const due = { ...before?.due };
    const complete = { local: said.initialised(tables.localPods), slices: said.initialised(tables.remoteEndpoints) };
    for (const kind of ['local', 'slices'] as const) {
      if (!complete[kind] || due[kind] === BEGUN) continue;
      due[kind] ??= now() + WITHDRAW_AFTER_MS;
      if (now() >= due[kind]) due[kind] = BEGUN;
    }
    const { addresses: count = 0, endpoints = 0 } = before ?? {};
    const [nodes, servers] = [said.initialised(tables.nodes), said.initialised(tables.apiserverAddresses)];
    const row = { due, nodes, servers, addresses: count, endpoints };
    if (before !== undefined && sameRow(before, row)) return;
    this.#row.set(row);
    // Those that counted because it was not known whose they are.
    if (before?.nodes !== row.nodes || before.servers !== row.servers)
      for (const identity of NODES) for (const prefix of addresses.withFound(identity)) this.#dirty.add(prefix);
  }

  /** Endpoints whose pods are not who they were, and those whose pods are again; with their addresses marked. */
  #judgeEndpoints(): { readonly closed: number[]; readonly reopened: number[] } {
    const { inputs, tables, shapes, local, enforcing } = this.#options;
    const closed: number[] = [];
    const reopened: number[] = [];
    if (!enforcing || !(this.begun('local') || this.begun('slices'))) return { closed, reopened };
    for (const kernel of [...shapes.kernels()]) {
      const row = inputs.said.get(tables.endpoints, tableKey.endpoint(kernel.id));
      if (row === undefined || row.gone !== undefined) continue;
      if (
        kernel.closed === undefined
          ? !local.contradicts(row, kernel.identity)
          : !local.confirms(row, kernel.closed.identity)
      )
        continue;
      if (kernel.closed === undefined) {
        shapes.close(kernel.id);
        closed.push(kernel.id);
      } else {
        shapes.reopen(kernel.id);
        reopened.push(kernel.id);
      }
      this.addressesChanged([row.ipv4]);
    }
    return { closed, reopened };
  }

  /** Addresses of these endpoints only: of others nothing is known yet. */
  #judgeLocal(endpoints: readonly number[]): IpcacheRow[] {
    const { inputs, tables } = this.#options;
    const out: IpcacheRow[] = [];
    for (const id of endpoints) {
      const row = inputs.said.get(tables.endpoints, tableKey.endpoint(id));
      const prefix = row === undefined ? undefined : hostPrefix(row.ipv4);
      if (prefix !== undefined) out.push(...this.#judge(prefix));
    }
    return out;
  }

  async #judgeAddresses(): Promise<IpcacheRow[]> {
    const { pace } = this.#options;
    const out: IpcacheRow[] = [];
    pace.restart();
    for (const prefix of this.#dirty) {
      out.push(...this.#judge(prefix));
      this.#dirty.delete(prefix);
      if (pace.due()) await pace.breathe();
    }
    return out;
  }

  /** How the kernel's element changes: not, to nobody, or back to what was found. */
  #judge(prefix: string): IpcacheRow[] {
    const { addresses } = this.#options;
    const taken = this.#taken.get(prefix);
    if (taken !== undefined) {
      if (!this.#holdsAgain(prefix, taken.identity)) return [];
      this.#taken.delete(prefix);
      return [this.#put(prefix, taken.identity)];
    }
    const identity = addresses.identityAt(prefix);
    if (identity === 0 || this.#holds(prefix, identity)) return [];
    // What it only had of the prefix around it was never its own.
    if (addresses.hasElement(prefix)) this.#taken.set({ prefix, identity });
    return [this.#put(prefix, 0)];
  }

  #put(prefix: string, identity: number): IpcacheRow {
    const { addresses, inputs, tables } = this.#options;
    addresses.put(prefix, identity);
    const [slice] = inputs.said.list(tables.remoteEndpoints, 'address', addressOf(prefix));
    const node = identity === 0 || hostPrefix(slice?.node ?? '') === undefined ? {} : { node: slice?.node ?? '' };
    return { prefix, identity, source: 'endpoint', ...node };
  }

  /** Whether an address that was taken back is of the identity: of an endpoint that must be certain. */
  #holdsAgain(prefix: string, identity: number): boolean {
    const { inputs, tables, local } = this.#options;
    for (const row of inputs.said.list(tables.endpoints, 'ipv4', addressOf(prefix)))
      if (row.gone === undefined && row.pod !== undefined) return local.confirms(row, identity);
    return this.#holds(prefix, identity);
  }

  /** Whether the address may still be of the identity, by all that is known. */
  #holds(prefix: string, identity: number): boolean {
    const { inputs, tables, ipcache, local } = this.#options;
    const { said } = inputs;
    // Addresses in a pod CIDR that nobody explains are not outside of the cluster.
    if (!isAddress(prefix)) return ipcache.row(prefix)?.source !== 'pod-cidr';
    const address = addressOf(prefix);
    for (const row of said.list(tables.endpoints, 'ipv4', address))
      if (row.gone === undefined) return !local.contradicts(row, identity);
    let claimed = false;
    for (const row of said.list(tables.remoteEndpoints, 'address', address)) {
      claimed = true;
      if (row.identity !== identity) return this.#isNode(prefix, identity);
    }
    if (claimed) return true;
    // Pods of the slices are not in it before the first plan.
    const row = ipcache.row(prefix);
    if (NODES.includes(identity)) {
      const servers = identity !== KUBE_APISERVER || said.initialised(tables.apiserverAddresses);
      const known = said.initialised(tables.nodes) && servers;
      return !known || row?.identity === identity;
    }
    if (row !== undefined) return row.identity === identity;
    return identity < CLUSTER_FIRST || isLocalCidr(identity);
  }

  /** Whether a node's claim of that identity stands before a pod's. */
  #isNode(prefix: string, identity: number): boolean {
    const row = this.#options.ipcache.row(prefix);
    return (row?.source === 'host' || row?.source === 'remote-node') && row.identity === identity;
  }
}

/** In the place of a time: it is over. */
const BEGUN = -1;

function addressOf(prefix: string): string {
  return prefix.slice(0, prefix.indexOf('/'));
}

function sameRow(a: Withdrawn, b: Withdrawn): boolean {
  return a.due.local === b.due.local && a.due.slices === b.due.slices && a.nodes === b.nodes && a.servers === b.servers;
}
