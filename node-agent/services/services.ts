import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '@weir/process/errors';
import { createReconciler, type Reconciler } from '@weir/reconciler';
import { type Derivation, type DeriveFailure, derive, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import type { Logger } from '../core.ts';
import type { NodeRow } from '../tables.ts';
import { type ClaimOwnerRow, type ClaimRow, claimKey, claimRows, isAnsweredBy, isAnybodys } from './claims.ts';
import type { FaceSources, FrontendFailure } from './faces.ts';
import { frontendRowKey, frontendsOf } from './frontends.ts';
import { deriveNodeAddresses, interfaceAddresses, NodeAddressOperations } from './node-addresses.ts';
import { FrontendOperations } from './operations.ts';
import { adopt, type RealisedTables, realisedTables } from './realised.ts';
import { deriveServiceAddresses, ServiceAddressOperations, serviceAddressKey } from './service-addresses.ts';
import type {
  EndpointSliceRow,
  Frontend,
  NodeAddressRow,
  OwnAddressRow,
  ServiceAddressRow,
  ServiceObjectRow,
} from './types.ts';

/** How often the addresses of this node's interfaces are read, in milliseconds. */
const LOOK_MS = 10_000;
/** Of map `svc_slots`. */
const MOST_SLOTS = 524_288;

export interface ServiceTables {
  readonly objects: Table<ServiceObjectRow>;
  readonly claims: Table<ClaimRow>;
  readonly claimOwners: Table<ClaimOwnerRow>;
  readonly slices: Table<EndpointSliceRow, 'service'>;
  readonly frontends: Table<Frontend>;
  readonly ownAddresses: Table<OwnAddressRow>;
  readonly nodeAddresses: Table<NodeAddressRow>;
  readonly serviceAddresses: Table<ServiceAddressRow>;
}

export function serviceTables(db: StateDB): ServiceTables {
  return {
    objects: db.table<ServiceObjectRow>({
      name: 'serviceObjects',
      key: ({ namespace, name }) => `${namespace}/${name}`,
      equals: isDeepStrictEqual,
    }),
    claims: db.table<ClaimRow>({ name: 'serviceClaims', key: ({ rank }) => rank, equals: isDeepStrictEqual }),
    claimOwners: db.table<ClaimOwnerRow>({
      name: 'serviceClaimOwners',
      key: ({ key }) => key,
      equals: isDeepStrictEqual,
    }),
    slices: db.table<EndpointSliceRow, 'service'>({
      name: 'serviceEndpoints',
      key: ({ namespace, name }) => `${namespace}/${name}`,
      indexes: [{ name: 'service', keys: ({ service }) => [service] }],
      equals: isDeepStrictEqual,
    }),
    frontends: db.table({ name: 'frontends', key: frontendRowKey }),
    ownAddresses: db.table({ name: 'ownAddresses', key: ({ address }) => address }),
    nodeAddresses: db.table({ name: 'nodeAddresses', key: ({ address }) => address }),
    serviceAddresses: db.table({ name: 'serviceAddresses', key: serviceAddressKey }),
  };
}

/** The Service whose endpoints are the API servers: who took their addresses would keep nodes from learning that he does no more. */
const API_SERVERS = 'default/kubernetes';

/** Keeps `frontends` what Services, slices and nodes come to. In the order in which each follows from those before. */
export function deriveFrontends(
  db: StateDB,
  { objects, claims, claimOwners, slices, frontends }: ServiceTables,
  nodes: Table<NodeRow>,
  node: string,
  onError?: (failure: DeriveFailure) => void,
): readonly Derivation[] {
  return [
    derive(db, { name: 'service-claims', into: claims, inputs: [objects], fn: claimRows }),
    // Of those with one key the first row of the driving table stands.
    derive(db, {
      name: 'service-claim-owners',
      into: claimOwners,
      inputs: [claims],
      fn: ({ key, service }) => [{ key, service }],
    }),
    derive(db, {
      name: 'frontends',
      into: frontends,
      inputs: [objects, claimOwners, slices, nodes],
      fn: (object, read) => {
        const zone = read.get(nodes, node)?.zone;
        const name = `${object.namespace}/${object.name}`;
        const own = [...read.list(slices, 'service', name)];
        checkRoom(object, own);
        let servers: readonly EndpointSliceRow[] | undefined;
        const apiServers = () => (servers ??= [...read.list(slices, 'service', API_SERVERS)]);
        return frontendsOf(
          object,
          own,
          { node, ...(zone === undefined ? {} : { zone }) },
          (claim) =>
            read.get(claimOwners, claimKey(claim))?.service !== name ||
            (isAnybodys(claim) && isAnsweredBy(claim, apiServers())),
        );
      },
      equals: isDeepStrictEqual,
      ...(onError === undefined ? {} : { onError }),
    }),
  ];
}

/** What no node's map has room for is not worked out: one slice with many ports would take an agent's memory. */
function checkRoom(
  { ports, externalAddresses, balancerAddresses }: ServiceObjectRow,
  slices: EndpointSliceRow[],
): void {
  const addresses = slices.reduce((sum, { endpoints }) => sum + endpoints.length, 0);
  const nodePorts = ports.filter(({ nodePort }) => nodePort !== undefined).length;
  const others = [externalAddresses, balancerAddresses].filter((each) => each !== undefined).length;
  const needed = addresses * (ports.length * (1 + others) + nodePorts);
  if (needed > MOST_SLOTS)
    throw new RangeError(`needs up to ${needed} slots (endpoints of each port) of the ${MOST_SLOTS} of a node`);
}

export interface ServicesOptions {
  readonly db: StateDB;
  readonly map: (name: string) => BpfMap;
  readonly nodes: Table<NodeRow>;
  readonly nodeName: string;
  /** Default: the process's own. */
  readonly nodeNetns?: string;
  readonly log: Logger;
}

/** Services from tables into maps. */
export class Services {
  readonly tables: ServiceTables;
  readonly #options: ServicesOptions;
  readonly realised: RealisedTables;
  #derived: readonly Derivation[] = [];
  #frontends: Derivation | undefined;
  #reconciler: Reconciler<Frontend> | undefined;
  #nodes: Reconciler<NodeAddressRow> | undefined;
  #addresses: Reconciler<ServiceAddressRow> | undefined;
  #looks: NodeJS.Timeout | undefined;

  constructor(options: ServicesOptions) {
    this.#options = options;
    this.tables = serviceTables(options.db);
    this.realised = realisedTables(options.db);
  }

  start(): void {
    const { db, map, nodes, nodeName, log } = this.#options;
    const { objects, frontends, ownAddresses, nodeAddresses, serviceAddresses } = this.tables;
    const maps = {
      frontends: map('svc_frontends'),
      slots: map('svc_slots'),
      backends: map('svc_backends'),
      members: map('svc_members'),
      sources: map('svc_sources'),
    };
    adopt(db, this.realised, maps);
    this.#look();
    this.#looks = setInterval(() => this.#lookAgain(), LOOK_MS).unref();
    const derived = deriveFrontends(db, this.tables, nodes, nodeName, ({ key: service, error }) =>
      log.error({ service, error: messageOf(error) }, 'cannot apply a change of a Service; it stays as it was'),
    );
    this.#frontends = derived.at(-1);
    this.#derived = [
      ...derived,
      deriveNodeAddresses(db, nodes, ownAddresses, nodeAddresses, nodeName),
      deriveServiceAddresses(db, objects, serviceAddresses),
    ];
    this.#reconciler = createReconciler<Frontend>({
      name: 'services',
      db,
      table: frontends,
      operations: new FrontendOperations({ db, maps, realised: this.realised }),
      onError: ({ service, portName }, error) =>
        log.error(
          { service, port: portName, error: messageOf(error) },
          'cannot write a Service into the kernel; retrying',
        ),
    });
    this.#nodes = createReconciler<NodeAddressRow>({
      name: 'service-nodes',
      db,
      table: nodeAddresses,
      operations: new NodeAddressOperations(map('svc_nodes'), map('svc_filter')),
      onError: ({ address }, error) =>
        log.error({ address, error: messageOf(error) }, 'cannot write an address of a node into the kernel; retrying'),
    });
    this.#addresses = createReconciler<ServiceAddressRow>({
      name: 'service-addresses',
      db,
      table: serviceAddresses,
      operations: new ServiceAddressOperations(map('svc_addresses'), map('svc_filter')),
      onError: ({ address }, error) =>
        log.error(
          { address, error: messageOf(error) },
          'an address of cannot write a Service into the kernel; retrying',
        ),
    });
    for (const reconciler of this.#reconcilers()) reconciler.start();
  }

  /** What people see of Services. */
  get faces(): FaceSources {
    const { db } = this.#options;
    const { frontends } = this.tables;
    return { read: () => db.read(), frontends, realised: this.realised, failures: () => this.failures() };
  }

  /** Frontends that the kernel does not have as wanted, by the key of their row, or all of a Service by its own, with why. */
  failures(): ReadonlyMap<string, FrontendFailure> {
    const refused = this.#frontends?.failing() ?? [];
    const failing = this.#reconciler?.failing() ?? [];
    return new Map([
      ...refused.map(({ key, error }) => [key, { service: key, message: messageOf(error) }] as const),
      ...failing.map(
        ({ row, error }) => [frontendRowKey(row), { service: row.service, message: messageOf(error) }] as const,
      ),
    ]);
  }

  /** Addresses of Services and nodes that the kernel does not have, with why. */
  failingAddresses(): readonly { readonly address: string; readonly message: string }[] {
    const failing = [...(this.#nodes?.failing() ?? []), ...(this.#addresses?.failing() ?? [])];
    return failing.map(({ row: { address }, error }) => ({ address, message: messageOf(error) }));
  }

  /** Whether all Services are known. */
  complete(): boolean {
    using snapshot = this.#options.db.read();
    return snapshot.initialised(this.tables.frontends);
  }

  /** Resolves once the kernel has, or refuses, what the tables say now. */
  async settled(): Promise<void> {
    const { db } = this.#options;
    for (const derivation of this.#derived) derivation.flush();
    using snapshot = db.read();
    await this.#reconciler?.waitUntil(snapshot.revision(this.tables.frontends));
    await this.#nodes?.waitUntil(snapshot.revision(this.tables.nodeAddresses));
    await this.#addresses?.waitUntil(snapshot.revision(this.tables.serviceAddresses));
  }

  /** What is in the kernel goes on. */
  async stop(): Promise<void> {
    clearInterval(this.#looks);
    await Promise.all(this.#reconcilers().map((each) => each.stop()));
    for (const derivation of this.#derived) derivation[Symbol.dispose]();
  }

  #reconcilers(): { start(): void; stop(): Promise<void> }[] {
    return [this.#reconciler, this.#nodes, this.#addresses].flatMap((each) => (each === undefined ? [] : [each]));
  }

  /** What was read last stays while nothing can be read. */
  #lookAgain(): void {
    try {
      this.#look();
    } catch (error) {
      this.#options.log.warn({ error: messageOf(error) }, "cannot read addresses of this node's interfaces");
    }
  }

  #look(): void {
    const { db, nodeNetns } = this.#options;
    const { ownAddresses: table } = this.tables;
    const there = new Set(interfaceAddresses(nodeNetns));
    db.write([table], (txn) => {
      for (const { address } of txn.all(table)) if (!there.has(address)) txn.delete(table, address);
      for (const address of there) if (!txn.has(table, address)) txn.insert(table, { address });
    });
  }
}
