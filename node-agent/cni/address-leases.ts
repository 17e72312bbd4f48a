import { type Family, familyOf } from '@weir/net';
import { type ChangeStream, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { AgentFiles, Logger } from '../core.ts';
import type { AddressRecord, PodAddressRow } from '../state/address-record.ts';
import type { Loaded } from '../state/persist.ts';
import type { EndpointRow } from '../tables.ts';
import type { KnownAs } from './known-as.ts';

/**
 * How long an address is given to nobody after it was given back, in milliseconds, but to a pod that other nodes judge as they judged the one
 * before. They know a pod's address until their watch has brought the slice without it; a watch that works is later than ours by seconds at
 * most, and kubelet forgets a pod in that time too.
 */
export const REST_MS = 30_000;

const FAMILIES = [4, 6] as const;

export interface AddressLeasesOptions {
  readonly db: StateDB;
  readonly endpoints: Table<EndpointRow>;
  /** Boot clock in milliseconds: it goes on over restarts of the agent, and nobody sets it. */
  readonly now: () => number;
  readonly log: Logger;
  readonly knownAs: Pick<KnownAs, 'address'>;
  /** Keep the leases over restarts. */
  readonly files: Pick<AgentFiles, 'provide' | 'load' | 'save'>;
}

/**
 * Which addresses endpoints have, which ADDs are about to give, and which rest. They follow the endpoints table, whoever changes that. The
 * last address given of each family is always among them, so that the next one comes after it. What has rested is forgotten.
 *
 * A file that is lost or torn only makes addresses rest longer: of what is not known, everything rests from the start of the agent.
 */
export class AddressLeases {
  readonly #options: AddressLeasesOptions;
  readonly #table: Table<PodAddressRow>;
  readonly #endpoints: ChangeStream<EndpointRow>;
  /** Until then an address without a record rests: it may have been released before this agent started. */
  #restsUntil = 0;
  #stopped = false;
  #unfollow: () => void = () => undefined;

  constructor(options: AddressLeasesOptions) {
    const { db, endpoints } = options;
    this.#options = options;
    this.#table = db.table<PodAddressRow>({
      name: 'podAddresses',
      key: ({ address }) => address,
      indexes: [
        { name: 'endpoint', keys: ({ endpoint }) => (endpoint === undefined ? [] : [keys.uint(endpoint)]) },
        {
          name: 'newest',
          keys: ({ address, order }) => [
            keys.join(String(familyOf(address)), keys.uint(Number.MAX_SAFE_INTEGER - order)),
          ],
        },
        { name: 'freedAt', keys: ({ freedAt }) => (freedAt === undefined ? [] : [keys.uint(freedAt)]) },
      ],
    });
    this.#endpoints = db.changes(endpoints, { name: 'pod-addresses' });
  }

  /**
   * Takes up the leases of the agent before. Without them every address rests first: the node's last pod may have gone a moment ago, and
   * left nothing to tell. `fresh`: no agent of Weir was on this node before.
   */
  start(fresh: boolean): void {
    const { db, files, log } = this.#options;
    const now = this.#now();
    files.provide('addresses', () => this.#record());
    const loaded = files.load('addresses');
    const saved = recordOf(loaded);
    if (saved !== undefined) this.#restsUntil = Math.min(saved.restsUntil, now + REST_MS);
    else if (!fresh || loaded === 'unreadable') {
      this.#restsUntil = now + REST_MS;
      log.info({ restMs: REST_MS }, 'the record of released addresses is missing: each rests before it is assigned');
    }
    db.write([this.#table], (txn) => {
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
          txn.upsert(this.#table, { address, order, freedAt: now, ...this.#known(address) });
      }
      for (const { row, deleted } of changes) {
        for (const address of deleted ? [] : row.addresses) {
          const order = txn.get(this.#table, address)?.order ?? this.#next(txn);
          txn.upsert(this.#table, { address, order, endpoint: row.id });
        }
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
    const unused = this.#options.db.write([this.#table], (txn) => {
      const row = txn.get(this.#table, address);
      if (row === undefined || row.endpoint !== undefined || row.freedAt !== undefined) return false;
      txn.upsert(this.#table, { ...row, freedAt: 0 });
      return true;
    });
    if (unused) this.#save();
  }

  /** How long addresses without a record still rest, as the record of released addresses is incomplete; in milliseconds. */
  get restsFor(): number {
    return Math.max(0, this.#restsUntil - this.#now());
  }

  /** `use`: an endpoint or an ADD has it; `rest`: it was given back lately; `unknown`: it may have been, see `restsFor`. */
  state(address: string): 'use' | 'rest' | 'unknown' | undefined {
    using snapshot = this.#options.db.read();
    const row = snapshot.get(this.#table, address);
    if (row === undefined) return this.restsFor > 0 ? 'unknown' : undefined;
    if (row.freedAt === undefined) return 'use';
    return this.#now() < row.freedAt + REST_MS ? 'rest' : undefined;
  }

  /** As what other nodes knew an address that rests. */
  knownAs(address: string): string | undefined {
    using snapshot = this.#options.db.read();
    return snapshot.get(this.#table, address)?.knownAs;
  }

  /** The last address of the family that was given. */
  last(family: Family): string | undefined {
    using snapshot = this.#options.db.read();
    return this.#newest(snapshot, family)?.address;
  }

  #known(address: string): Pick<PodAddressRow, 'knownAs'> {
    const knownAs = this.#options.knownAs.address(address);
    return knownAs === undefined ? {} : { knownAs };
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

  #newest(reader: Reader, family: Family): PodAddressRow | undefined {
    const [newest] = reader.prefix(this.#table, keys.join(String(family)), 'newest');
    return newest;
  }

  #next(reader: Reader): number {
    return 1 + Math.max(...FAMILIES.map((family) => this.#newest(reader, family)?.order ?? 0));
  }

  /** What has rested, but for the last one given of each family. */
  #forgetRested(txn: WriteTxn, now: number): void {
    const newest = FAMILIES.map((family) => this.#newest(txn, family));
    for (const row of txn.range(this.#table, '', keys.uint(Math.max(0, now - REST_MS)), 'freedAt'))
      if (!newest.includes(row)) txn.delete(this.#table, row.address);
  }

  #record(): AddressRecord {
    using snapshot = this.#options.db.read();
    return { rows: [...snapshot.all(this.#table)], restsUntil: this.#restsUntil };
  }

  #save(): void {
    void this.#options.files.save('addresses');
  }
}

function recordOf(loaded: Loaded<AddressRecord>): AddressRecord | undefined {
  return typeof loaded === 'object' ? loaded.content : undefined;
}
