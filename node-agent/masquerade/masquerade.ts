import { execFile, execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { isDeepStrictEqual, promisify } from 'node:util';
import { canonicalPrefix } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import { createReconciler, type Reconciler } from '@weir/reconciler';
import { type Derivation, derive, type InitDone, keys, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import type { Core, Logger } from '../core.ts';
import { DEFAULT_CONFIG, excludedBy, MasqueradeConfigError, parseConfig } from './config.ts';
import { uplinksOf } from './interfaces.ts';
import { prefixKey, uplinkEntry } from './maps.ts';
import type { ExcludedRow, UplinkRow } from './types.ts';

/** How soon a change of the file or of an interface counts. */
const LOOK_MS = 5000;
const IP = ['ip', ['-json', 'address', 'show']] as const;
const run = promisify(execFile);

export interface MasqueradeOptions {
  readonly db: StateDB;
  readonly nodeName: string;
  readonly tables: Pick<Core['tables'], 'nodes' | 'endpoints'>;
  readonly map: (name: string) => BpfMap;
  /** Runs something in the node's network namespace. */
  readonly inNode: <T>(body: () => T) => T;
  /** Of ip-masq-agent's format; where it is not there the defaults count. */
  readonly configFile?: string;
  readonly log: Logger;
  readonly lookMs?: number;
}

/** Keeps the maps of bpf/masquerade.h as the configuration, the nodes and the node's interfaces ask for (contract: types.ts). */
export class Masquerade {
  readonly #options: MasqueradeOptions;
  readonly #configured: Table<ExcludedRow>;
  readonly #cluster: Table<ExcludedRow>;
  readonly #uplinks: Table<UplinkRow>;
  #configDone: InitDone | undefined;
  #derivation: Derivation | undefined;
  #excludedReconcilers: readonly Reconciler<ExcludedRow>[] = [];
  #uplinkReconciler: Reconciler<UplinkRow> | undefined;
  #writesUplinks = false;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> = Promise.resolve();
  #problem: string | undefined;

  constructor(options: MasqueradeOptions) {
    const { db } = options;
    this.#options = options;
    const excluded = (name: string): Table<ExcludedRow> => db.table({ name, key: ({ prefix }) => prefix });
    this.#configured = excluded('masqueradeExcluded');
    this.#cluster = excluded('masqueradeCluster');
    this.#uplinks = db.table<UplinkRow>({
      name: 'uplinks',
      key: ({ ifindex }) => keys.uint(ifindex),
      equals: isDeepStrictEqual,
    });
    this.#configDone = db.initialiser(this.#configured, 'config');
  }

  /** Indexes of the uplinks. Before the first look they are asked for at once, so that those of an earlier agent stay in place. */
  interfaces(): readonly number[] {
    const { db, inNode } = this.#options;
    using snapshot = db.read();
    if (snapshot.count(this.#uplinks) === 0) this.#take(inNode(() => execFileSync(...IP, { encoding: 'utf8' })));
    using now = db.read();
    return Array.from(now.all(this.#uplinks), ({ ifindex }) => ifindex);
  }

  async start(): Promise<void> {
    const { db, tables, map, lookMs = LOOK_MS } = this.#options;
    const { nodes } = tables;
    this.#derivation = derive(db, {
      name: 'masquerade-cluster',
      into: this.#cluster,
      inputs: [nodes],
      fn: ({ podCidrs, addresses }) =>
        [...new Set([...podCidrs, ...addresses].flatMap(readable))].map((prefix) => ({ prefix })),
      equals: isDeepStrictEqual,
    });
    const excluded = map('masq_excluded');
    this.#excludedReconcilers = [
      this.#excludes('masquerade-configured', this.#configured, this.#cluster, excluded),
      this.#excludes('masquerade-cluster', this.#cluster, this.#configured, excluded),
    ];
    this.#uplinkReconciler = this.#writesTo(map('masq_uplinks'));
    for (const reconciler of this.#excludedReconcilers) reconciler.start();
    await this.#look();
    this.#timer = setInterval(() => {
      this.#looking = this.#looking.then(() => this.#look());
    }, lookMs);
  }

  /** What is in the kernel goes on. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#looking;
    for (const reconciler of this.#excludedReconcilers) await reconciler.stop();
    if (this.#writesUplinks) await this.#uplinkReconciler?.stop();
    this.#derivation?.[Symbol.dispose]();
  }

  status(): { readonly ok: boolean; readonly message: string } {
    const [failing] = [
      ...this.#excludedReconcilers.flatMap((each) => each.failing()),
      ...(this.#uplinkReconciler?.failing() ?? []),
    ];
    const problem = this.#problem ?? failing?.error.message;
    if (problem !== undefined) return { ok: false, message: problem };
    if (!this.#writesUplinks) return { ok: true, message: 'waits for the addresses of the cluster' };
    using snapshot = this.#options.db.read();
    const names = Array.from(snapshot.all(this.#uplinks), ({ name, ipv4, ipv6 }) =>
      [name, ipv4, ipv6].filter((text) => text !== undefined).join(' '),
    );
    if (names.length === 0) return { ok: false, message: 'no Ethernet interface of the node has an address' };
    return { ok: true, message: `at ${names.join(', ')}` };
  }

  async #look(): Promise<void> {
    const { inNode, log } = this.#options;
    const before = this.#problem;
    try {
      this.#problem = undefined;
      this.#readConfig();
      // The child is in the namespace from its start; what waits for it need not be.
      const { printed } = inNode(() => ({ printed: run(...IP, { maxBuffer: 64 << 20 }) }));
      this.#take((await printed).stdout);
      await this.#whenExcludedStartUplinks();
    } catch (error) {
      this.#problem = messageOf(error);
      if (this.#problem !== before) log.error({ error: this.#problem }, 'masquerading stays as it is');
    }
  }

  #readConfig(): void {
    const { configFile, db } = this.#options;
    const config =
      configFile === undefined || !existsSync(configFile)
        ? DEFAULT_CONFIG
        : parseConfig(configFile, textOf(configFile));
    const wanted = excludedBy(config);
    db.write([this.#configured], (txn) => {
      for (const { prefix } of txn.all(this.#configured)) if (!wanted.has(prefix)) txn.delete(this.#configured, prefix);
      for (const prefix of wanted) if (!txn.has(this.#configured, prefix)) txn.insert(this.#configured, { prefix });
      this.#configDone?.(txn);
      this.#configDone = undefined;
    });
  }

  #take(printed: string): void {
    const { db, tables, nodeName } = this.#options;
    using snapshot = db.read();
    const isPods = (ifindex: number): boolean =>
      [...snapshot.list(tables.endpoints, 'ifindex', keys.uint(ifindex))].length > 0;
    const rows = uplinksOf(printed, isPods, snapshot.get(tables.nodes, nodeName)?.addresses ?? []);
    const wanted = new Set(rows.map(({ ifindex }) => ifindex));
    db.write([this.#uplinks], (txn) => {
      for (const { ifindex } of txn.all(this.#uplinks))
        if (!wanted.has(ifindex)) txn.delete(this.#uplinks, keys.uint(ifindex));
      for (const row of rows) txn.upsert(this.#uplinks, row);
    });
  }

  /** Nothing is translated before the kernel knows what not to translate. */
  async #whenExcludedStartUplinks(): Promise<void> {
    if (this.#writesUplinks) return;
    const { db } = this.#options;
    using snapshot = db.read();
    if (!snapshot.initialised(this.#configured) || !snapshot.initialised(this.#cluster)) return;
    const [configured, cluster] = this.#excludedReconcilers;
    await configured?.waitUntil(snapshot.revision(this.#configured));
    await cluster?.waitUntil(snapshot.revision(this.#cluster));
    this.#writesUplinks = true;
    this.#uplinkReconciler?.start();
  }

  #excludes(name: string, table: Table<ExcludedRow>, other: Table<ExcludedRow>, map: BpfMap): Reconciler<ExcludedRow> {
    const { db, log } = this.#options;
    return createReconciler<ExcludedRow>({
      name,
      db,
      table,
      operations: {
        update: ({ prefix }) => map.update(prefixKey(prefix), new Uint8Array(4)),
        delete: ({ prefix }) => {
          using snapshot = db.read();
          if (!snapshot.has(other, prefix)) map.delete(prefixKey(prefix));
        },
        prune: () => {
          using snapshot = db.read();
          if (!snapshot.initialised(table) || !snapshot.initialised(other)) return;
          const wanted = new Set(
            [table, other].flatMap((each) => Array.from(snapshot.all(each), ({ prefix }) => hex(prefixKey(prefix)))),
          );
          for (const key of map.keys()) if (!wanted.has(hex(key))) map.delete(key);
        },
      },
      onError: ({ prefix }, error) =>
        log.error({ prefix, error: messageOf(error) }, 'addresses that are not masqueraded are not in the kernel'),
    });
  }

  #writesTo(map: BpfMap): Reconciler<UplinkRow> {
    const { db, log } = this.#options;
    return createReconciler<UplinkRow>({
      name: 'masquerade-uplinks',
      db,
      table: this.#uplinks,
      operations: {
        update: (row) => map.update(...uplinkEntry(row)),
        delete: (row) => void map.delete(uplinkEntry(row)[0]),
        prune: (rows) => {
          const wanted = new Set(Array.from(rows, (row) => hex(uplinkEntry(row)[0])));
          for (const key of map.keys()) if (!wanted.has(hex(key))) map.delete(key);
        },
      },
      onError: ({ name }, error) =>
        log.error({ interface: name, error: messageOf(error) }, 'an interface does not masquerade'),
    });
  }
}

/** @throws MasqueradeConfigError */
function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new MasqueradeConfigError(file, `cannot be read: ${messageOf(error)}`, error);
  }
}

/** The canonical prefix; nothing for the name of a host. */
function readable(text: string): readonly string[] {
  try {
    return [canonicalPrefix(text)];
  } catch {
    return [];
  }
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}
