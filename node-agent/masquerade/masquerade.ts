import { existsSync, readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { canonicalPrefix } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import { createReconciler, type Reconciler } from '@weir/reconciler';
import { type Derivation, derive, type InitDone, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import type { Core, Logger } from '../core.ts';
import type { UplinkRow, Uplinks } from '../uplinks/part.ts';
import { DEFAULT_CONFIG, excludedBy, MasqueradeConfigError, parseConfig } from './config.ts';
import { prefixKey } from './maps.ts';
import type { ExcludedRow } from './types.ts';

/** How soon a change of the file counts. */
const LOOK_MS = 5000;

export interface MasqueradeOptions {
  readonly db: StateDB;
  readonly nodes: Core['tables']['nodes'];
  readonly uplinks: Uplinks;
  readonly map: (name: string) => BpfMap;
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
    this.#configDone = db.initialiser(this.#configured, 'config');
  }

  async start(): Promise<void> {
    const { db, nodes, uplinks, map, lookMs = LOOK_MS } = this.#options;
    this.#derivation = derive(db, {
      name: 'masquerade-cluster',
      into: this.#cluster,
      inputs: [nodes],
      fn: ({ podCidrs, addresses }): ExcludedRow[] => {
        const pods = new Set(podCidrs.flatMap(readable));
        const others = addresses.flatMap(readable).filter((prefix) => !pods.has(prefix));
        return [
          ...Array.from(pods, (prefix): ExcludedRow => ({ prefix, pods: true })),
          ...Array.from(new Set(others), (prefix) => ({ prefix })),
        ];
      },
      equals: isDeepStrictEqual,
    });
    const excluded = map('masq_excluded');
    this.#excludedReconcilers = [
      this.#excludes('masquerade-configured', this.#configured, this.#cluster, excluded),
      this.#excludes('masquerade-cluster', this.#cluster, this.#configured, excluded),
    ];
    this.#uplinkReconciler = uplinks.writesTo('masquerade-uplinks', db, map('masq_uplinks'));
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
    return { ok: true, message: 'at all uplinks' };
  }

  async #look(): Promise<void> {
    const { log } = this.#options;
    const before = this.#problem;
    try {
      this.#problem = undefined;
      this.#readConfig();
      await this.#whenExcludedStartUplinks();
    } catch (error) {
      this.#problem = messageOf(error);
      if (this.#problem !== before)
        log.error({ error: this.#problem }, 'cannot change masquerading; the former configuration stays in force');
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
        update: ({ prefix, pods }) => map.update(prefixKey(prefix), Uint8Array.of(pods === true ? 1 : 0, 0, 0, 0)),
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
        log.error(
          { prefix, error: messageOf(error) },
          'cannot write addresses that are not masqueraded into the kernel',
        ),
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
