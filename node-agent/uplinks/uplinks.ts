import { execFile, execFileSync } from 'node:child_process';
import { isDeepStrictEqual, promisify } from 'node:util';
import { messageOf } from '@weir/process/errors';
import { createReconciler, type Reconciler } from '@weir/reconciler';
import { keys, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import type { Core, Logger } from '../core.ts';
import { uplinksOf } from './interfaces.ts';
import { uplinkEntry } from './maps.ts';
import type { UplinkRow } from './types.ts';

/** How soon a change of an interface counts. */
const LOOK_MS = 5000;
const IP = ['ip', ['-json', 'address', 'show']] as const;
/** Of what `ip` prints: by itself Node.js takes 1 MiB, which some 7,000 addresses fill (kube-proxy with IPVS has one for each Service). */
const MAX_BUFFER = 64 << 20;
const run = promisify(execFile);

export interface UplinksOptions {
  readonly db: StateDB;
  readonly nodeName: string;
  readonly tables: Pick<Core['tables'], 'nodes' | 'endpoints'>;
  readonly map: (name: string) => BpfMap;
  /** Runs something in the node's network namespace. */
  readonly inNode: <T>(body: () => T) => T;
  readonly log: Logger;
  readonly lookMs?: number;
}

/** Knows the node's interfaces that lead out (contract: types.ts). */
export class Uplinks {
  readonly table: Table<UplinkRow>;
  readonly #options: UplinksOptions;
  #reconciler: Reconciler<UplinkRow> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> = Promise.resolve();
  #problem: string | undefined;

  constructor(options: UplinksOptions) {
    this.#options = options;
    this.table = options.db.table<UplinkRow>({
      name: 'uplinks',
      key: ({ ifindex }) => keys.uint(ifindex),
      equals: isDeepStrictEqual,
    });
  }

  /** Their indexes. Before the first look they are asked for at once, so that programs of an earlier agent stay in place. */
  interfaces(): readonly number[] {
    const { db, inNode } = this.#options;
    using before = db.read();
    if (before.count(this.table) === 0)
      this.#take(inNode(() => execFileSync(...IP, { encoding: 'utf8', maxBuffer: MAX_BUFFER })));
    using snapshot = db.read();
    return Array.from(snapshot.all(this.table), ({ ifindex }) => ifindex);
  }

  async start(): Promise<void> {
    const { db, map, lookMs = LOOK_MS } = this.#options;
    await this.#look();
    this.#reconciler = this.writesTo('uplinks', db, map('node_uplinks'));
    this.#reconciler.start();
    this.#timer = setInterval(() => {
      this.#looking = this.#looking.then(() => this.#look());
    }, lookMs);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#looking;
    await this.#reconciler?.stop();
  }

  /** Why they are not known, or not in the kernel; undefined while all is well. */
  problem(): string | undefined {
    return this.#problem ?? this.#reconciler?.failing()[0]?.error.message;
  }

  /** Drives the addresses into a map. The caller starts and stops it. */
  writesTo(name: string, db: StateDB, map: BpfMap): Reconciler<UplinkRow> {
    const { log } = this.#options;
    return createReconciler<UplinkRow>({
      name,
      db,
      table: this.table,
      operations: {
        update: (row) => map.update(...uplinkEntry(row)),
        delete: (row) => void map.delete(uplinkEntry(row)[0]),
        prune: (rows) => {
          const wanted = new Set(Array.from(rows, ({ ifindex }) => ifindex));
          for (const key of [...map.keys()])
            if (!wanted.has(new DataView(key.buffer, key.byteOffset).getUint32(0, true))) map.delete(key);
        },
      },
      onError: (row, error) =>
        log.error(
          { interface: row.name, error: messageOf(error) },
          'cannot write addresses of an interface into the kernel',
        ),
    });
  }

  async #look(): Promise<void> {
    const { inNode, log } = this.#options;
    try {
      // The child is in the namespace from its start; what waits for it need not be.
      const { printed } = inNode(() => ({ printed: run(...IP, { maxBuffer: MAX_BUFFER }) }));
      this.#take((await printed).stdout);
      this.#problem = undefined;
    } catch (error) {
      const problem = messageOf(error);
      if (problem !== this.#problem) log.error({ error: problem }, "cannot list the node's interfaces");
      this.#problem = problem;
    }
  }

  #take(printed: string): void {
    const { db, tables, nodeName } = this.#options;
    using snapshot = db.read();
    const isPods = (ifindex: number): boolean =>
      [...snapshot.list(tables.endpoints, 'ifindex', keys.uint(ifindex))].length > 0;
    const rows = uplinksOf(printed, isPods, snapshot.get(tables.nodes, nodeName)?.addresses ?? []);
    const wanted = new Set(rows.map(({ ifindex }) => ifindex));
    db.write([this.table], (txn) => {
      for (const { ifindex } of txn.all(this.table))
        if (!wanted.has(ifindex)) txn.delete(this.table, keys.uint(ifindex));
      for (const row of rows) txn.upsert(this.table, row);
    });
  }
}
