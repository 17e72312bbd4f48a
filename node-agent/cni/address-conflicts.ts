import { messageOf } from '@weir/process/errors';
import type { Reader, Table } from '@weir/statedb';
import type { PodEvents, PodRef } from '../core/pod-events.ts';
import type { Core, Logger } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { EndpointRow, LocalPodRow } from '../tables.ts';
import { holds, isOnly } from './kernel-addresses.ts';
import type { Network, NodeAddress } from './types.ts';

/** How often addresses are compared with what the node has. */
const AUDIT_MS = 30_000;

const CONFLICT_REASON = 'AddressConflict';

/** An address that somebody beside its endpoint has. Key: `address`. */
interface ConflictRow {
  readonly address: string;
  /** Who has it, in a sentence. */
  readonly message: string;
  /** Whose ADD was refused for it. Absent: an endpoint has the address. */
  readonly refused?: PodRef;
}

export interface AddressConflictsOptions {
  readonly core: Pick<Core, 'db' | 'tables'>;
  readonly network: Pick<Network, 'addressesWithin'>;
  readonly podCidrs: () => readonly string[];
  readonly events: PodEvents;
  readonly log: Logger;
}

/**
 * Addresses that two have: of an endpoint and another pod by its status, or of an endpoint and a route or interface that leads elsewhere. Each
 * is reported once, as a warning in the log and an Event of each pod, and is part of the node's status for as long as it lasts. Nothing
 * is taken from anybody.
 */
export class AddressConflicts {
  readonly #options: AddressConflictsOptions;
  readonly #table: Table<ConflictRow>;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(options: AddressConflictsOptions) {
    this.#options = options;
    this.#table = options.core.db.table<ConflictRow>({
      name: 'addressConflicts',
      key: ({ address }) => address,
      equals: (a, b) => a.message === b.message && a.refused?.uid === b.refused?.uid,
    });
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#running = this.#running
        .then(() => this.audit())
        .catch((error: unknown) =>
          this.#options.log.error({ error: messageOf(error) }, 'comparing the addresses of pods failed'),
        );
    }, AUDIT_MS).unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#running;
  }

  /** An ADD was refused because somebody has the address. */
  refused(address: string, message: string, pod: PodRef | undefined): void {
    this.#set({ address, message, ...(pod === undefined ? {} : { refused: pod }) }, pod === undefined ? [] : [pod]);
  }

  /** Compares the addresses of endpoints with what pods and the node's kernel have. */
  async audit(): Promise<void> {
    const { core, network, log } = this.#options;
    const kernel: NodeAddress[] = [];
    try {
      for (const cidr of this.#options.podCidrs()) kernel.push(...(await network.addressesWithin(cidr)));
    } catch (error) {
      // The next one asks again; ADD says it to those whom it keeps from their pod.
      log.info({ error: messageOf(error) }, "cannot read the node's routes and addresses");
      return;
    }
    using snapshot = core.db.read();
    const found = new Map<string, ConflictRow>();
    for (const endpoint of snapshot.all(core.tables.endpoints)) {
      for (const address of endpoint.addresses) {
        const others = [...this.#otherPods(snapshot, address, endpoint)];
        const places = inKernel(address, endpoint, kernel);
        if (others.length + places.length === 0) continue;
        const message = this.#messageOf(snapshot, { address, endpoint }, others, places);
        found.set(address, { address, message });
        this.#set({ address, message }, [endpoint.pod, ...others]);
      }
    }
    for (const row of snapshot.all(this.#table))
      if (!found.has(row.address) && !this.#stillRefused(row, kernel)) this.#end(row.address);
  }

  status(): { readonly ok: boolean; readonly message: string } {
    using snapshot = this.#options.core.db.read();
    const messages = Array.from(snapshot.all(this.#table), ({ message }) => message);
    return messages.length === 0
      ? { ok: true, message: 'each address has one owner' }
      : { ok: false, message: messages.join('; ') };
  }

  /** Other pods of this node that have the endpoint's address by their status. */
  *#otherPods(reader: Reader, address: string, { pod }: EndpointRow): Generator<LocalPodRow> {
    for (const other of reader.list(this.#options.core.tables.localPods, 'address', address)) {
      const same = other.namespace === pod?.namespace && other.name === pod.name;
      if (!same || (pod.uid !== undefined && pod.uid !== other.uid)) yield other;
    }
  }

  /**
   * Who has the address beside the endpoint, and what follows. Here it stays the endpoint's, whoever claims it.
   *
   * @param places where else on the node it is, in words
   */
  #messageOf(
    reader: Reader,
    { address, endpoint: { id, pod } }: { readonly address: string; readonly endpoint: EndpointRow },
    others: readonly PodRef[],
    places: readonly string[],
  ): string {
    const who = pod === undefined ? `endpoint ${id}` : nameOf(pod);
    const what = [
      ...(others.length === 0
        ? []
        : [`is claimed by ${others.map(nameOf).join(', ')}, too; ${this.#rulingOn(reader, address, who)}`]),
      ...(places.length === 0
        ? []
        : [`is elsewhere on the node, too (${places.join(', ')}): packets to it may not reach ${who}`]),
    ];
    return `address ${address} of ${who} ${what.join('; it ')}`;
  }

  /** Whose an address is that pods of this node claim: the slices say it to other nodes. */
  #rulingOn(reader: Reader, address: string, who: string): string {
    const { remoteEndpoints } = this.#options.core.tables;
    if (!reader.initialised(remoteEndpoints)) return 'whose it is to other nodes is not known yet';
    const owners = Array.from(reader.list(remoteEndpoints, 'address', address), nameOf);
    const [owner] = owners;
    if (owner === undefined)
      return "other nodes take it for nobody's until one pod alone claims it: delete the other one";
    if (owners.includes(who)) return `${who} had it first and keeps it`;
    return `other nodes take it for ${owner}'s, and what ${who} sends for that pod's: delete the one that should not have it`;
  }

  /** Until the pod has another address, or whoever had this one has not. */
  #stillRefused({ refused, address }: ConflictRow, kernel: readonly NodeAddress[]): boolean {
    if (refused === undefined) return false;
    const { db, tables } = this.#options.core;
    using snapshot = db.read();
    const key = tableKey.pod(refused.namespace, refused.name);
    if (snapshot.get(tables.localPods, key) === undefined) return false;
    for (const _ of snapshot.list(tables.endpoints, 'pod', key)) return false;
    return kernel.some((one) => holds(one, address));
  }

  #set(row: ConflictRow, pods: readonly (PodRef | undefined)[]): void {
    const { core, events, log } = this.#options;
    const before = core.db.write([this.#table], (txn) => txn.upsert(this.#table, row));
    if (before?.message === row.message && row.refused === undefined) return;
    log.warn({ address: row.address, conflict: row.message }, 'an address is claimed twice');
    for (const pod of pods) if (pod !== undefined) events.warn(pod, CONFLICT_REASON, row.message);
  }

  #end(address: string): void {
    this.#options.core.db.write([this.#table], (txn) => txn.delete(this.#table, address));
    this.#options.log.info({ address }, 'an address has one owner again');
  }
}

/** Routes of the one address to other interfaces, and interfaces that have it, in words. */
function inKernel(address: string, { interfaceName }: EndpointRow, kernel: readonly NodeAddress[]): string[] {
  return kernel.filter((one) => isOnly(one, address) && one.device !== interfaceName).map(({ what }) => what);
}

function nameOf({ namespace, name }: PodRef): string {
  return tableKey.pod(namespace, name);
}
