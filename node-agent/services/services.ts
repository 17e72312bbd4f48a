import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '@weir/process/errors';
import { createReconciler, type Reconciler } from '@weir/reconciler';
import { type Derivation, derive, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import type { Logger } from '../core.ts';
import { frontendRowKey, frontendsOf } from './frontends.ts';
import { FrontendOperations } from './operations.ts';
import { adopt, type RealisedTables, realisedTables } from './realised.ts';
import type { EndpointSliceRow, Frontend, ServiceObjectRow } from './types.ts';

export interface ServiceTables {
  readonly objects: Table<ServiceObjectRow>;
  readonly slices: Table<EndpointSliceRow, 'service'>;
  readonly frontends: Table<Frontend>;
}

export function serviceTables(db: StateDB): ServiceTables {
  return {
    objects: db.table<ServiceObjectRow>({
      name: 'serviceObjects',
      key: ({ namespace, name }) => `${namespace}/${name}`,
      equals: isDeepStrictEqual,
    }),
    slices: db.table<EndpointSliceRow, 'service'>({
      name: 'serviceEndpoints',
      key: ({ namespace, name }) => `${namespace}/${name}`,
      indexes: [{ name: 'service', keys: ({ service }) => [service] }],
      equals: isDeepStrictEqual,
    }),
    frontends: db.table({ name: 'frontends', key: frontendRowKey }),
  };
}

export interface ServicesOptions {
  readonly db: StateDB;
  readonly map: (name: string) => BpfMap;
  readonly log: Logger;
}

/** Services from tables into maps. */
export class Services {
  readonly tables: ServiceTables;
  readonly #options: ServicesOptions;
  readonly #realised: RealisedTables;
  #derivation: Derivation | undefined;
  #reconciler: Reconciler<Frontend> | undefined;

  constructor(options: ServicesOptions) {
    this.#options = options;
    this.tables = serviceTables(options.db);
    this.#realised = realisedTables(options.db);
  }

  start(): void {
    const { db, map, log } = this.#options;
    const { objects, slices, frontends } = this.tables;
    const maps = { frontends: map('svc_frontends'), slots: map('svc_slots'), backends: map('svc_backends') };
    adopt(db, this.#realised, maps);
    this.#derivation = derive(db, {
      name: 'frontends',
      into: frontends,
      inputs: [objects, slices],
      fn: (object, read) =>
        frontendsOf(object, [...read.list(slices, 'service', `${object.namespace}/${object.name}`)]),
      equals: isDeepStrictEqual,
    });
    this.#reconciler = createReconciler<Frontend>({
      name: 'services',
      db,
      table: frontends,
      operations: new FrontendOperations({ db, maps, realised: this.#realised }),
      onError: ({ service, portName }, error) =>
        log.error(
          { service, port: portName, error: messageOf(error) },
          'a Service is not in the kernel; it is tried again',
        ),
    });
    this.#reconciler.start();
  }

  /** Frontends that the kernel does not have as wanted, with why. */
  failing(): readonly { readonly service: string; readonly message: string }[] {
    return (this.#reconciler?.failing() ?? []).map(({ row, error }) => ({
      service: row.service,
      message: messageOf(error),
    }));
  }

  /** Resolves once the kernel has, or refuses, what the tables say now. */
  async settled(): Promise<void> {
    const { db } = this.#options;
    // The derivation follows the commit of its inputs.
    await new Promise((resolve) => setImmediate(resolve));
    using snapshot = db.read();
    await this.#reconciler?.waitUntil(snapshot.revision(this.tables.frontends));
  }

  /** What is in the kernel goes on. */
  async stop(): Promise<void> {
    await this.#reconciler?.stop();
    this.#derivation?.[Symbol.dispose]();
  }
}
