import { labelsKey } from '@weir/labels';
import { addressesOf, addressPair } from '@weir/net';
import type { StateDB } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { LocalNumbers } from '../derive/index.ts';
import { type NodeInterface, nodeInterfaces, podRoutes } from '../host/interfaces.ts';
import { VETH_PATTERN } from '../host/veth.ts';
import type { EndpointRow, KernelEndpoint } from '../tables.ts';

export interface StraysOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'endpoints' | 'localPods'>;
  readonly numbers: LocalNumbers;
  readonly nodeNetns: string | undefined;
  readonly log: Logger;
  readonly allocateId: () => number;
  /** Where endpoints outlive the agent. */
  readonly file: string;
  /** The rows of endpoints have changed. */
  readonly save: () => void;
}

/** What an agent finds at its start. */
export interface FoundAtStart {
  readonly kernel: readonly KernelEndpoint[];
  /** The live interface of each endpoint that has links or filters of ours. */
  readonly hooked: ReadonlyMap<number, number>;
  /** Endpoints that have something pinned. */
  readonly pinned: ReadonlySet<number>;
}

/**
 * Finds endpoints that no file names, and those whose interface has gone. An endpoint whose interface lives is never given up:
 * where no file knows it, its row is made from what the kernel has, and from the pod of its address as soon as that is known.
 */
export class Strays {
  readonly #options: StraysOptions;

  constructor(options: StraysOptions) {
    this.#options = options;
  }

  /** Makes rows of what was found and has none. Call it before anything is computed. */
  async take({ kernel, hooked, pinned }: FoundAtStart): Promise<void> {
    const { db, tables, nodeNetns, numbers } = this.#options;
    using snapshot = db.read();
    const rows = new Map(Array.from(snapshot.all(tables.endpoints), (row) => [row.id, row]));
    for (const { id, identity } of kernel) {
      const labels = rows.get(id)?.labels;
      if (labels !== undefined) numbers.adoptLabels(labelsKey(labels), identity);
    }
    const known = new Set(rows.values().flatMap(({ gone, ifindex }) => (gone === undefined ? [ifindex] : [])));
    const byIndex = new Map<number, NodeInterface>();
    for (const one of (await nodeInterfaces(nodeNetns)).values()) byIndex.set(one.ifindex, one);
    const live = [...hooked].filter(([, ifindex]) => byIndex.has(ifindex));
    const found = new Map<number, Partial<KernelEndpoint>>();
    for (const [id, ifindex] of live) found.set(ifindex, { id });
    for (const one of kernel) {
      const here = byIndex.get(one.ifindex);
      // The index of what was an endpoint's may be of an interface of somebody else by now.
      if (here !== undefined && (found.has(one.ifindex) || VETH_PATTERN.test(here.name))) found.set(one.ifindex, one);
    }
    for (const { ifindex, name } of byIndex.values())
      if (VETH_PATTERN.test(name) && !found.has(ifindex)) found.set(ifindex, {});
    for (const ifindex of known) found.delete(ifindex);
    if (found.size === 0) return;
    const routes = await podRoutes(nodeNetns);
    const used = new Set([...rows.keys(), ...kernel.map(({ id }) => id), ...pinned]);
    const given = new Set(rows.values().flatMap(({ addresses }) => addresses));
    const taken: EndpointRow[] = [];
    for (const [ifindex, one] of found) {
      const here = byIndex.get(ifindex);
      if (here === undefined) continue;
      const free = [...(one.addresses ?? []), ...(routes.get(here.name) ?? [])].filter((each) => !given.has(each));
      const addresses = addressesOf(addressPair(free));
      for (const address of addresses) given.add(address);
      const id = one.id ?? this.#freeId(used);
      this.#makeRoom(rows, id, used);
      const row = this.#rowOf(here, { id, addresses, identity: one.identity ?? 0 });
      rows.set(id, row);
      db.write([tables.endpoints], (txn) => txn.upsert(tables.endpoints, row));
      taken.push(row);
    }
    this.#tellTaken(taken, kernel.length + hooked.size > 0);
    this.#options.save();
  }

  /** `lost`: the kernel enforces something here, so that the file of endpoints is missing, older or of no use. Otherwise Weir is new here. */
  #tellTaken(rows: readonly EndpointRow[], lost: boolean): void {
    if (rows.length === 0) return;
    const { log, file } = this.#options;
    const endpoints = named(rows);
    if (lost)
      log.warn({ file, endpoints }, `${count(rows)} taken from the kernel: the file does not name them, or is missing`);
    else
      log.info(
        { endpoints },
        `${count(rows)} made for pods that run since before this installation; \`weir status\` says how each is judged until its pod is known`,
      );
  }

  /**
   * The endpoint's interface is gone, or `away`: in another network namespace. Whoever added the endpoint says when it is to be
   * forgotten.
   */
  gone(id: number, away: boolean): void {
    const { db, tables, log, save } = this.#options;
    const row = db.write([tables.endpoints], (txn) => {
      const known = txn.get(tables.endpoints, tableKey.endpoint(id));
      if (known === undefined || known.gone !== undefined) return undefined;
      // Nobody else will delete it.
      if (known.found !== undefined && known.pod === undefined && !away)
        txn.delete(tables.endpoints, tableKey.endpoint(id));
      else txn.upsert(tables.endpoints, { ...known, gone: new Date().toISOString() });
      return known;
    });
    if (row === undefined) return;
    log.info(
      { endpoint: id, interface: row.interfaceName, pod: row.pod },
      'the interface of an endpoint is gone; removing the endpoint from the kernel',
    );
    save();
  }

  /** Endpoints whose interface is there again, as it was or with another index: they count again, and are to be closed before anything else. */
  async returned(): Promise<readonly EndpointRow[]> {
    const { db, tables, nodeNetns, log, save } = this.#options;
    using snapshot = db.read();
    const gone = [...snapshot.list(tables.endpoints, 'stray', 'gone')];
    if (gone.length === 0) return [];
    const interfaces = await nodeInterfaces(nodeNetns);
    const back = gone.flatMap(({ gone: _, ...row }) => {
      const here = interfaces.get(row.interfaceName);
      if (here === undefined || (row.hostMac !== undefined && here.mac !== row.hostMac)) return [];
      return [{ ...row, ifindex: here.ifindex }];
    });
    if (back.length === 0) return [];
    const rows = db.write([tables.endpoints], (txn) =>
      // A DEL may have come meanwhile.
      back
        .filter(({ id }) => txn.get(tables.endpoints, tableKey.endpoint(id))?.gone !== undefined)
        .map((row) => {
          txn.upsert(tables.endpoints, row);
          return row;
        }),
    );
    for (const { id, interfaceName } of rows)
      log.warn(
        { endpoint: id, interface: interfaceName },
        'the interface of an endpoint is back; it is enforced again',
      );
    save();
    return rows;
  }

  /** Finds pods of what was found, and forgets what went away with its pod, or of which the pod has another. Cheap when nothing is to do. */
  sync(): void {
    const { db, tables, save } = this.#options;
    using snapshot = db.read();
    const complete = db.pendingInitialisers(tables.localPods).length === 0;
    const changes: { readonly id: number; readonly row?: EndpointRow }[] = [];
    for (const row of snapshot.list(tables.endpoints, 'stray', 'found')) {
      const [pod, ...more] = new Set(
        row.addresses.flatMap((each) => [...snapshot.list(tables.localPods, 'address', each)]),
      );
      // Two pods that claim its addresses: neither is believed.
      if (pod === undefined || more.length > 0) continue;
      const { namespace, name, uid } = pod;
      const [other] = snapshot.list(tables.endpoints, 'pod', tableKey.pod(namespace, name));
      if (other === undefined) changes.push({ id: row.id, row: { ...row, pod: { namespace, name, uid } } });
    }
    for (const { id, pod } of snapshot.list(tables.endpoints, 'stray', 'gone')) {
      if (pod === undefined || !complete) continue;
      const key = tableKey.pod(pod.namespace, pod.name);
      const there = snapshot.get(tables.localPods, key);
      const anew = (): boolean =>
        Iterator.from(snapshot.list(tables.endpoints, 'pod', key)).some(({ gone }) => gone === undefined);
      if (there === undefined || (pod.uid !== undefined && there.uid !== pod.uid) || anew()) changes.push({ id });
    }
    if (changes.length === 0) return;
    db.write([tables.endpoints], (txn) => {
      for (const { id, row } of changes) {
        if (row === undefined) txn.delete(tables.endpoints, tableKey.endpoint(id));
        else txn.upsert(tables.endpoints, row);
      }
    });
    save();
  }

  #freeId(used: Set<number>): number {
    for (;;) {
      const id = this.#options.allocateId();
      if (used.has(id)) continue;
      used.add(id);
      return id;
    }
  }

  /** Links are pinned by the endpoint's id: what the kernel has keeps it, an older file's endpoint gets another. */
  #makeRoom(rows: Map<number, EndpointRow>, id: number, used: Set<number>): void {
    const { db, tables } = this.#options;
    const row = rows.get(id);
    if (row === undefined) return;
    const moved = { ...row, id: this.#freeId(used) };
    rows.set(moved.id, moved);
    db.write([tables.endpoints], (txn) => {
      txn.delete(tables.endpoints, tableKey.endpoint(id));
      txn.insert(tables.endpoints, moved);
    });
  }

  #rowOf(
    { ifindex, name, mac }: NodeInterface,
    { id, addresses, identity }: Pick<KernelEndpoint, 'id' | 'addresses' | 'identity'>,
  ): EndpointRow {
    const labels = this.#options.numbers.labelsOf(identity);
    return {
      id,
      ifindex,
      interfaceName: name,
      addresses,
      ...(mac === undefined ? {} : { hostMac: mac }),
      ...(labels === undefined ? {} : { labels: Object.fromEntries(JSON.parse(labels) as [string, string][]) }),
      found: { identity },
      createdAt: new Date().toISOString(),
    };
  }
}

/** Whether nothing but the kernel speaks for the endpoint. */
export function unexplained({ found, pod, labels }: EndpointRow): boolean {
  return found !== undefined && pod === undefined && labels === undefined;
}

function count(rows: readonly EndpointRow[]): string {
  return rows.length === 1 ? '1 endpoint was' : `${rows.length} endpoints were`;
}

/** Endpoints with their interfaces and pods, the first three by name. */
export function named(rows: readonly EndpointRow[]): string {
  const [first, second, third, ...more] = rows.map(({ id, interfaceName, pod }) => {
    const of = pod === undefined ? '' : `, pod ${pod.namespace}/${pod.name}`;
    return `endpoint ${id} (${interfaceName}${of})`;
  });
  const some = [first, second, third].filter((text) => text !== undefined).join(', ');
  return more.length === 0 ? some : `${some} and ${more.length} more`;
}
