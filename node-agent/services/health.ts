/** What load balancers ask of this node: whether a Service has backends here, and whether the node translates at all. As kube-proxy answers. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '@weir/process/errors';
import { createReconciler, type Operations, type Reconciler } from '@weir/reconciler';
import { type Derivation, derive, type StateDB, type Table } from '@weir/statedb';
import type { Logger } from '../core.ts';
import type { ServiceTables } from './services.ts';

/** Who asks is anybody who reaches the node. */
const LIMITS = { connections: 64, requestMs: 5000 } as const;

/** Where this node says how it is. Key: `name`. */
export interface HealthServerRow {
  /** `namespace/name` of a Service, or `healthz`. */
  readonly name: string;
  /** Absent: all addresses. */
  readonly host?: string;
  readonly port: number;
  /** Of the Service: addresses of this node that are ready. */
  readonly localEndpoints?: number;
}

export interface ServiceHealthOptions {
  readonly db: StateDB;
  readonly tables: Pick<ServiceTables, 'objects' | 'slices'>;
  readonly nodeName: string;
  /** Where `/healthz` is served; absent: nowhere. */
  readonly healthz?: { readonly host: string | undefined; readonly port: number };
  /** Addresses for questions about Services; default: all. */
  readonly host?: string;
  /** Services have come to the kernel. */
  readonly translates: () => boolean;
  readonly log: Logger;
}

export class ServiceHealth {
  readonly #options: ServiceHealthOptions;
  readonly #table: Table<HealthServerRow>;
  readonly #wanted: Table<HealthServerRow>;
  readonly #servers: HealthServers;
  #derived: readonly Derivation[] = [];
  #reconciler: Reconciler<HealthServerRow> | undefined;

  constructor(options: ServiceHealthOptions) {
    const { db } = options;
    this.#options = options;
    this.#wanted = db.table<HealthServerRow>({ name: 'healthzServers', key: ({ name }) => name });
    this.#table = db.table<HealthServerRow>({
      name: 'healthServers',
      key: ({ name }) => name,
      equals: isDeepStrictEqual,
    });
    this.#servers = new HealthServers((name) => this.#answer(name));
  }

  start(): void {
    const { db, tables, nodeName, healthz, host, log } = this.#options;
    const { objects, slices } = tables;
    if (healthz !== undefined) {
      const { host: at, port } = healthz;
      const row = { name: 'healthz', port, ...(at === undefined ? {} : { host: at }) };
      db.write([this.#wanted], (txn) => void txn.upsert(this.#wanted, row));
    }
    this.#derived = [
      derive(db, {
        name: 'services',
        into: this.#table,
        inputs: [objects, slices],
        fn: ({ namespace, name, healthPort: port }, read) => {
          if (port === undefined) return [];
          const own = [...read.list(slices, 'service', `${namespace}/${name}`)].flatMap(({ endpoints }) => endpoints);
          const here = own.filter(({ node, ready, terminating }) => node === nodeName && ready && !terminating);
          const localEndpoints = new Set(here.flatMap(({ addresses }) => addresses)).size;
          return [{ name: `${namespace}/${name}`, port, localEndpoints, ...(host === undefined ? {} : { host }) }];
        },
        equals: isDeepStrictEqual,
      }),
      derive(db, { name: 'healthz', into: this.#table, inputs: [this.#wanted], fn: (row) => [row] }),
    ];
    this.#reconciler = createReconciler<HealthServerRow>({
      name: 'health-servers',
      db,
      table: this.#table,
      operations: this.#servers,
      onError: ({ name, port }, error) =>
        log.error({ service: name, port, error: whyNot(error) }, 'cannot serve health; retrying'),
    });
    this.#reconciler.start();
  }

  failing(): readonly { readonly name: string; readonly message: string }[] {
    const failing = this.#reconciler?.failing() ?? [];
    return failing.map(({ row: { name }, error }) => ({ name, message: whyNot(error) }));
  }

  async settled(): Promise<void> {
    for (const derivation of this.#derived) derivation.flush();
    using snapshot = this.#options.db.read();
    await this.#reconciler?.waitUntil(snapshot.revision(this.#table));
  }

  async stop(): Promise<void> {
    await this.#reconciler?.stop();
    for (const derivation of this.#derived) derivation[Symbol.dispose]();
    await this.#servers.close();
  }

  #answer(name: string): HealthAnswer | undefined {
    const ok = this.#options.translates();
    using snapshot = this.#options.db.read();
    const row = snapshot.get(this.#table, name);
    if (row === undefined) return undefined;
    const { localEndpoints } = row;
    if (localEndpoints === undefined) {
      const now = new Date().toISOString();
      return { ok, body: { lastUpdated: now, currentTime: now, nodeEligible: true } };
    }
    const [namespace = '', service = ''] = name.split('/');
    return {
      ok: ok && localEndpoints > 0,
      body: { service: { namespace, name: service }, localEndpoints, serviceProxyHealthy: ok },
      weight: localEndpoints,
    };
  }
}

/** Ends the oldest connection when there are more: whoever holds many keeps nobody from asking. */
function limited(most: number): (socket: Socket) => void {
  const open = new Set<Socket>();
  return (socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    const [oldest] = open;
    if (open.size > most) oldest?.destroy();
  };
}

function whyNot(error: unknown): string {
  const message = messageOf(error);
  return message.includes('EADDRINUSE')
    ? `${message}: end kube-proxy where it still runs, or set kubeProxyReplacement to false`
    : message;
}

interface HealthAnswer {
  readonly ok: boolean;
  readonly body: object;
  readonly weight?: number;
}

/** A server for each row; what it answers is read when it is asked. */
class HealthServers implements Operations<HealthServerRow> {
  readonly #answer: (name: string) => HealthAnswer | undefined;
  readonly #running = new Map<string, { readonly at: string; readonly server: Server }>();

  constructor(answer: (name: string) => HealthAnswer | undefined) {
    this.#answer = answer;
  }

  async update({ name, host, port }: HealthServerRow): Promise<void> {
    const at = `${host ?? ''}:${port}`;
    if (this.#running.get(name)?.at === at) return;
    await this.#end(name);
    const server = createServer((request, response) => this.#respond(name, request, response));
    server.on('connection', limited(LIMITS.connections));
    server.requestTimeout = LIMITS.requestMs;
    server.headersTimeout = LIMITS.requestMs;
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ port, ...(host === undefined ? {} : { host }) }, resolve);
    });
    server.on('error', () => undefined);
    this.#running.set(name, { at, server });
  }

  async delete({ name }: HealthServerRow): Promise<void> {
    await this.#end(name);
  }

  /** Nothing outlives the process. */
  prune(): void {}

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#running.keys(), (name) => this.#end(name)));
  }

  async #end(name: string): Promise<void> {
    const server = this.#running.get(name)?.server;
    this.#running.delete(name);
    if (server === undefined) return;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }

  #respond(name: string, request: IncomingMessage, response: ServerResponse): void {
    const answer = this.#answer(name);
    const path = request.url?.split('?', 1)[0];
    if (answer === undefined || (name === 'healthz' && path !== '/healthz' && path !== '/livez')) {
      response.writeHead(404).end();
      return;
    }
    const { ok, body, weight } = answer;
    response.writeHead(ok ? 200 : 503, {
      ...{ 'content-type': 'application/json', 'x-content-type-options': 'nosniff', connection: 'close' },
      ...(weight === undefined ? {} : { 'x-load-balancing-endpoint-weight': String(weight) }),
    });
    response.end(JSON.stringify(body));
  }
}
