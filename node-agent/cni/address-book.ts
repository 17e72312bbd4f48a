import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { parseAddress } from '@weir/net';
import { type ChangeStream, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { messageOf } from '../config/system-error.ts';
import type { Logger } from '../core.ts';
import { objects, StateFile } from '../persist.ts';
import type { EndpointRow } from '../tables.ts';
import type { PodAddressRow } from './types.ts';

/**
 * How long an address is given to nobody after it was given back, in milliseconds. Other nodes know a pod's address until their watch has
 * brought the slice without it; a watch that works is later than ours by seconds at most, and kubelet forgets a pod in that time too.
 */
export const REST_MS = 30_000;

/** What outlives an agent. */
export interface AddressRecord {
  readonly rows: readonly PodAddressRow[];
  /** By the boot clock, in milliseconds; 0: nothing is missing from the rows. */
  readonly restsUntil: number;
}

export interface AddressBookOptions {
  readonly db: StateDB;
  readonly endpoints: Table<EndpointRow>;
  /** Boot clock in milliseconds: it goes on over restarts of the agent, and nobody sets it. */
  readonly now: () => number;
  readonly log: Logger;
  /** Keeps the book over restarts. Absent: the book is new at each start. */
  readonly file?: Pick<StateFile<AddressRecord>, 'path' | 'read' | 'save'>;
}

/**
 * Which addresses endpoints have, which ADDs are about to give, and which rest. It follows the endpoints table, whoever changes that. The
 * last address given is always in it, so that the next one comes after it. What has rested is forgotten.
 *
 * A lost, torn or unwritable file only makes addresses rest longer: of what is not known, everything rests from the start of the agent.
 */
export class AddressBook {
  readonly #options: AddressBookOptions;
  readonly #table: Table<PodAddressRow>;
  readonly #endpoints: ChangeStream<EndpointRow>;
  /** Until then an address that is not in the book rests: it may have been given back before the book began. */
  #restsUntil = 0;
  #problem: string | undefined;
  #stopped = false;
  #unfollow: () => void = () => undefined;

  constructor(options: AddressBookOptions) {
    const { db, endpoints } = options;
    this.#options = options;
    this.#table = db.table<PodAddressRow>({
      name: 'podAddresses',
      key: ({ address }) => address,
      indexes: [
        { name: 'endpoint', keys: ({ endpoint }) => (endpoint === undefined ? [] : [keys.uint(endpoint)]) },
        { name: 'freedAt', keys: ({ freedAt }) => (freedAt === undefined ? [] : [keys.uint(freedAt)]) },
      ],
    });
    this.#endpoints = db.changes(endpoints, { name: 'pod-addresses' });
  }

  /**
   * Takes up the book of the agent before. Without one every address rests first: the node's last pod may have gone a moment ago, and left
   * nothing to tell. `fresh`: no agent of Weir was on this node before.
   */
  start(fresh: boolean): void {
    const now = this.#now();
    const saved = this.#load();
    if (saved !== undefined) this.#restsUntil = Math.min(saved.restsUntil, now + REST_MS);
    else if (!fresh) {
      this.#restsUntil = now + REST_MS;
      this.#options.log.info(
        { restMs: REST_MS },
        'no record of the addresses given back: each rests before it is given',
      );
    }
    this.#options.db.write([this.#table], (txn) => {
      // Of a boot before: its clock says nothing now. In use: by endpoints that still are, which the next lines say, or until now.
      for (const row of saved?.rows ?? [])
        txn.upsert(this.#table, { ...row, freedAt: Math.min(row.freedAt ?? now, now) });
    });
    this.follow();
    // From now on there is a record, though no pod may ever have come.
    if (saved === undefined) this.#save();
    this.#listen();
  }

  stop(): void {
    this.#stopped = true;
    this.#unfollow();
    this.#endpoints[Symbol.dispose]();
  }

  /** Takes in what has become of endpoints. */
  follow(): void {
    const changes = this.#endpoints.next();
    if (changes.length === 0) return;
    const now = this.#now();
    this.#options.db.write([this.#table], (txn) => {
      for (const { row } of changes) {
        for (const { address, order } of txn.list(this.#table, 'endpoint', keys.uint(row.id)))
          txn.upsert(this.#table, { address, order, freedAt: now });
      }
      for (const { row, deleted } of changes) {
        // Of one that was found without an address nothing is known.
        if (deleted || row.ipv4 === '') continue;
        const order = txn.get(this.#table, row.ipv4)?.order ?? this.#next(txn);
        txn.upsert(this.#table, { address: row.ipv4, order, endpoint: row.id });
      }
      this.#forgetRested(txn, now);
    });
    this.#save();
  }

  /** An ADD is about to give the address: it is taken, and the last one given. */
  give(address: string): void {
    this.#options.db.write([this.#table], (txn) => {
      txn.upsert(this.#table, { address, order: this.#next(txn) });
    });
  }

  /** The ADD has ended. Without an endpoint nobody has seen the address: it need not rest. */
  settle(address: string): void {
    this.follow();
    this.#options.db.write([this.#table], (txn) => {
      const row = txn.get(this.#table, address);
      if (row !== undefined && row.endpoint === undefined && row.freedAt === undefined)
        txn.upsert(this.#table, { ...row, freedAt: 0 });
    });
  }

  /** `use`: an endpoint or an ADD has it; `rest`: it was given back lately. */
  state(address: string): 'use' | 'rest' | undefined {
    using snapshot = this.#options.db.read();
    const row = snapshot.get(this.#table, address);
    const now = this.#now();
    if (row === undefined) return now < this.#restsUntil ? 'rest' : undefined;
    if (row.freedAt === undefined) return 'use';
    return now < row.freedAt + REST_MS ? 'rest' : undefined;
  }

  /** The last address given. */
  last(): string | undefined {
    using snapshot = this.#options.db.read();
    return this.#newest(snapshot)?.address;
  }

  /** Why the book would not outlive this agent; undefined when it would. */
  get problem(): string | undefined {
    return this.#problem;
  }

  #now(): number {
    return Math.floor(this.#options.now());
  }

  #listen(): void {
    this.#unfollow = this.#endpoints.watch().onFire(() => {
      queueMicrotask(() => {
        if (this.#stopped) return;
        this.follow();
        this.#listen();
      });
    });
  }

  #newest(reader: Reader): PodAddressRow | undefined {
    return Iterator.from(reader.all(this.#table)).reduce<PodAddressRow | undefined>(
      (newest, row) => (newest === undefined || row.order > newest.order ? row : newest),
      undefined,
    );
  }

  #next(reader: Reader): number {
    return (this.#newest(reader)?.order ?? 0) + 1;
  }

  /** What has rested, but for the last one given. */
  #forgetRested(txn: WriteTxn, now: number): void {
    const newest = this.#newest(txn);
    for (const row of txn.range(this.#table, '', keys.uint(Math.max(0, now - REST_MS)), 'freedAt'))
      if (row !== newest) txn.delete(this.#table, row.address);
  }

  #load(): AddressRecord | undefined {
    const { file, log } = this.#options;
    try {
      return file?.read();
    } catch (error) {
      log.warn(
        { error: messageOf(error), restMs: REST_MS },
        'record of given addresses cannot be read: each rests first',
      );
      this.#restsUntil = this.#now() + REST_MS;
      return undefined;
    }
  }

  #save(): void {
    const { db, file, log } = this.#options;
    if (file === undefined) return;
    using snapshot = db.read();
    try {
      file.save({ rows: [...snapshot.all(this.#table)], restsUntil: this.#restsUntil });
      this.#problem = undefined;
    } catch (error) {
      const message = `${file.path} cannot be written: ${messageOf(error)}; after a restart of the agent no address is given for ${REST_MS / 1000} s`;
      if (message !== this.#problem)
        log.error({ path: file.path, error: messageOf(error) }, 'given addresses cannot be saved');
      this.#problem = message;
      // An older record would call addresses free that have been given back since. None makes all of them rest.
      try {
        rmSync(file.path, { force: true });
      } catch {
        // On a disk that takes no write it cannot go either: the message above says so.
      }
    }
  }
}

/** The book's file in the state folder of `node`. */
export function addressFile(folder: string, node: string): StateFile<AddressRecord> {
  return new StateFile({ path: join(folder, 'addresses.json'), node, decode: decodeRecord });
}

function decodeRecord(json: unknown): AddressRecord {
  if (
    typeof json !== 'object' ||
    json === null ||
    !('restsUntil' in json) ||
    !isCount(json.restsUntil) ||
    !('rows' in json)
  )
    throw new Error('has no rows and restsUntil');
  const rows = objects(json.rows, 'addresses').map(({ address, order, endpoint, freedAt }): PodAddressRow => {
    if (typeof address !== 'string' || parseAddress(address).family !== 4)
      throw new Error(`has an address that is no IPv4 address: ${JSON.stringify(address)}`);
    if (!isCount(order)) throw new Error(`has no order of ${address}`);
    return { address, order, ...(isCount(endpoint) ? { endpoint } : {}), ...(isCount(freedAt) ? { freedAt } : {}) };
  });
  return { rows, restsUntil: json.restsUntil };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}
