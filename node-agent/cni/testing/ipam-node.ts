/** A node that hands out addresses: its tables and its agents, without a kernel. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { Tables } from '../../core.ts';
import { createTables, tableKey } from '../../create-tables.ts';
import type { AddressRecord } from '../../state/address-record.ts';
import { StateFiles } from '../../state/state-files.ts';
import type { ContainerPort } from '../../tables.ts';
import { quiet } from '../../testing/fake-core.ts';
import { AddressLeases, type AddressLeasesOptions } from '../address-leases.ts';
import { Ipam } from '../ipam.ts';
import { rangeOf } from '../kernel-addresses.ts';
import { KnownAs } from '../known-as.ts';
import type { NodeAddress } from '../types.ts';

export const CIDR = '10.9.8.0/28';
export const ALL = Array.from({ length: 13 }, (_, at) => `10.9.8.${at + 2}`);

/** A node: its tables, what its kernel has, and agents that follow one another. */
export class Node {
  now = 1_000_000;
  db: StateDB = createStateDB({ freeze: true });
  tables: Tables = createTables(this.db);
  readonly kernel = new Map<string, NodeAddress>();
  saved: AddressRecord | undefined;
  leases: AddressLeases;
  ipam: Ipam;
  #id = 0;
  #record: () => AddressRecord = () => ({ rows: [], restsUntil: 0 });

  readonly cidrs: readonly string[];

  constructor(cidrs: string | readonly string[] = CIDR, files?: AddressLeasesOptions['files']) {
    this.cidrs = typeof cidrs === 'string' ? [cidrs] : cidrs;
    this.leases = this.#leases(files);
    this.ipam = this.#ipam();
    this.leases.start(true);
  }

  /** What an ADD does. */
  add(podUid: string, before?: string): string {
    const [address = ''] = this.addAll(podUid, before === undefined ? [] : [before]);
    return address;
  }
  /** The same, where the node has CIDRs of two families. */
  addAll(podUid: string, before: readonly string[] = []): readonly string[] {
    const addresses = this.ipam.allocate({ podUid, kernel: [...this.kernel.values()], before });
    this.attach(...addresses);
    this.ipam.release(addresses);
    return addresses;
  }
  attach(...addresses: readonly string[]): void {
    const id = ++this.#id;
    this.db.write([this.tables.endpoints], (txn) =>
      txn.upsert(this.tables.endpoints, {
        id,
        ifindex: id,
        interfaceName: `x${id}`,
        addresses,
        createdAt: '',
      }),
    );
  }
  /** What a DEL does, or whatever else ends an endpoint. */
  remove(address: string): void {
    this.db.write([this.tables.endpoints], (txn) => {
      for (const { id } of txn.list(this.tables.endpoints, 'address', address))
        txn.delete(this.tables.endpoints, tableKey.endpoint(id));
    });
    this.leases.follow();
  }
  slice(name: string, address: string | undefined, podUid?: string, namedPorts: readonly ContainerPort[] = []): void {
    this.db.write([this.tables.remoteEndpoints], (txn) => {
      if (address === undefined) return void txn.delete(this.tables.remoteEndpoints, `ns/${name}`);
      txn.upsert(this.tables.remoteEndpoints, {
        ...{ namespace: 'ns', name, addresses: [address], identity: 300, node: '', namedPorts },
        ...(podUid === undefined ? {} : { podUid }),
      });
    });
  }
  pod(name: string, address: string | undefined, uid = name): void {
    this.db.write([this.tables.localPods], (txn) => {
      if (address === undefined) return void txn.delete(this.tables.localPods, `ns/${name}`);
      txn.upsert(this.tables.localPods, {
        ...{ namespace: 'ns', name, uid, labels: {}, serviceAccount: '', namedPorts: [] },
        addresses: [address],
      });
    });
  }
  route(address: string, there: boolean): void {
    const range = rangeOf(address);
    if (there && range !== undefined)
      this.kernel.set(address, { ...range, what: `route to ${address} by eth9`, device: 'eth9' });
    else this.kernel.delete(address);
  }
  live(): string[] {
    using snapshot = this.db.read();
    return [...snapshot.all(this.tables.endpoints)].flatMap(({ addresses }) => addresses);
  }
  /** The next agent, on the tables that it finds. `lost`: without the file; `files`: with these. */
  restart(lost = false, files?: AddressLeasesOptions['files']): void {
    this.leases.stop();
    using snapshot = this.db.read();
    const before = Array.from(snapshot.all(this.tables.endpoints), ({ addresses }) => addresses);
    this.db = createStateDB({ freeze: true });
    this.tables = createTables(this.db);
    if (lost) this.saved = undefined;
    this.leases = this.#leases(files);
    this.ipam = this.#ipam();
    for (const addresses of before) this.attach(...addresses);
    this.leases.start(false);
  }

  #leases(files?: AddressLeasesOptions['files']): AddressLeases {
    const memory: AddressLeasesOptions['files'] = {
      provide: (_, content) => {
        this.#record = content as () => AddressRecord;
      },
      load: (() =>
        this.saved === undefined ? 'absent' : { content: this.saved }) as AddressLeasesOptions['files']['load'],
      save: async () => {
        this.saved = structuredClone(this.#record());
        return true;
      },
    };
    const { endpoints } = this.tables;
    const knownAs = new KnownAs({ db: this.db, tables: this.tables, clusterName: 'default' });
    return new AddressLeases({
      db: this.db,
      endpoints,
      now: () => this.now,
      log: quiet,
      knownAs,
      files: files ?? memory,
    });
  }
  #ipam(): Ipam {
    return new Ipam({ db: this.db, tables: this.tables, leases: this.leases, cidrs: () => this.cidrs });
  }
}

/** Files on disk, in a folder of their own. */
export async function withFiles(body: (files: () => StateFiles, path: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'weir-addresses-'));
  const files = (): StateFiles => new StateFiles({ folder, node: 'node1', db: createStateDB(), log: quiet });
  try {
    await body(files, join(folder, 'addresses.json'));
  } finally {
    rmSync(folder, { recursive: true });
  }
}
