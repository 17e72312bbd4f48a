/**
 * Sockets whose backend is gone: closed, so that their owners connect again, to another backend.
 *
 * Guarantees: a socket is closed only where it was connected to a Service (svc_sockets has it), and no EndpointSlice has its backend any more, ready or
 * not, and no frontend in the kernel: who connects again gets another. What went while no agent ran is not closed.
 */
import { setImmediate as nextIteration } from 'node:timers/promises';
import { messageOf } from '@weir/process/errors';
import { type Derivation, derive, type StateDB, type Table } from '@weir/statedb';
import { BpfError, type BpfMap, closeSockets, inNetns } from 'libbpf-ts';
import type { Logger } from '../core.ts';
import type { EndpointRow } from '../tables.ts';
import { readSocketKey, socketPort } from './layout.ts';
import { backendName } from './realised.ts';
import type { EndpointSliceRow, Protocol } from './types.ts';

const ENOENT = 2;
/** Keys of svc_sockets that are read in one iteration of the event loop: a few milliseconds. */
const A_TURN = 4096;
const MOST_TARGETS = 524_288;

export type Closing = 'off' | 'udp' | 'all';

/** An address and port that some slice has. Key: as `backendName` makes it. */
export interface EndpointTargetRow {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
}

export interface SocketCloserOptions {
  readonly db: StateDB;
  readonly slices: Table<EndpointSliceRow, 'service'>;
  readonly endpoints: Table<EndpointRow>;
  readonly closing: Exclude<Closing, 'off'>;
  /** Map svc_sockets; asked for when something is to be closed. */
  readonly sockets: () => Pick<BpfMap, 'keys'>;
  /** Resolves once the kernel has what the tables say. */
  readonly settled: () => Promise<void>;
  /** Default: the process's own. */
  readonly nodeNetns?: string;
  readonly log: Logger;
}

export class SocketCloser {
  readonly #options: SocketCloserOptions;
  readonly #targets: Table<EndpointTargetRow>;
  readonly #stop = new AbortController();
  #derivation: Derivation | undefined;
  #loop: Promise<void> | undefined;

  constructor(options: SocketCloserOptions) {
    this.#options = options;
    this.#targets = options.db.table({ name: 'endpointTargets', key: backendName });
  }

  start(): void {
    const { db, slices } = this.#options;
    this.#derivation = derive(db, {
      name: 'endpointTargets',
      into: this.#targets,
      inputs: [slices],
      fn: ({ endpoints, ports }) => {
        // No node translates to so many: nothing is connected to them by a Service.
        if (endpoints.length * ports.length > MOST_TARGETS)
          throw new RangeError(`${endpoints.length} endpoints with ${ports.length} ports each`);
        return endpoints.flatMap(({ addresses }) =>
          addresses.flatMap((address) => ports.map(({ port, protocol }) => ({ address, port, protocol }))),
        );
      },
      onError: ({ key: slice, error }) =>
        this.#options.log.warn({ slice, error: messageOf(error) }, 'cannot close sockets to endpoints of this slice'),
    });
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    this.#derivation?.[Symbol.dispose]();
  }

  async #run(): Promise<void> {
    const { db, closing, settled, log } = this.#options;
    const { signal } = this.#stop;
    using changes = db.changes(this.#targets, { name: 'closing' });
    while (!signal.aborted) {
      const gone = changes.next().flatMap(({ row, deleted }) => {
        const isMeant = deleted && (row.protocol === 'UDP' || (closing === 'all' && row.protocol === 'TCP'));
        return isMeant ? [row] : [];
      });
      try {
        if (gone.length > 0) {
          await settled();
          await this.#close(gone);
        }
        await changes.watch().wait(signal);
      } catch (error) {
        if (signal.aborted) return;
        log.error({ error: messageOf(error) }, 'cannot close sockets to backends that are gone');
      }
    }
  }

  /** One namespace after another, as each may take milliseconds; none where no socket is connected to what is gone. */
  async #close(gone: readonly EndpointTargetRow[]): Promise<void> {
    const { db, endpoints, nodeNetns, log } = this.#options;
    const cookies = await this.#cookies(gone);
    if (cookies.size === 0) return;
    const pods = (): (string | undefined)[] => {
      using snapshot = db.read();
      return Array.from(snapshot.all(endpoints), ({ netns }) => netns).filter((netns) => netns !== undefined);
    };
    let closed = 0;
    const failures: string[] = [];
    for (const netns of new Set([nodeNetns, ...pods()])) {
      if (this.#stop.signal.aborted) return;
      try {
        closed += netns === undefined ? closeHere(cookies) : inNetns(netns, () => closeHere(cookies));
      } catch (error) {
        // The pod has ended.
        if (!(error instanceof BpfError && error.errno === ENOENT)) failures.push(messageOf(error));
      }
      await nextIteration();
    }
    if (closed > 0) log.info({ closed }, 'closed sockets to backends that are gone');
    const [first] = failures;
    if (first !== undefined)
      log.warn({ error: first, namespaces: failures.length }, 'cannot close sockets to backends that are gone');
  }

  /** Of sockets that are connected to what is gone, and has not come back. */
  async #cookies(gone: readonly EndpointTargetRow[]): Promise<Cookies> {
    const { db, sockets } = this.#options;
    const left = gone.filter((target) => {
      using snapshot = db.read();
      return !snapshot.has(this.#targets, backendName(target));
    });
    const names = new Set(left.map(backendName));
    const ports = new Set(left.map(({ port }) => port));
    const found = new Map<string, Set<bigint>>();
    let read = 0;
    for (const key of names.size === 0 ? [] : sockets().keys()) {
      read += 1;
      if (read % A_TURN === 0) {
        await nextIteration();
        if (this.#stop.signal.aborted) break;
      }
      // Of most nothing else is read.
      if (!ports.has(socketPort(key))) continue;
      const { cookie, ...backend } = readSocketKey(key);
      const name = backendName(backend);
      if (!names.has(name)) continue;
      const place = `${backend.protocol} ${backend.port}`;
      found.set(place, (found.get(place) ?? new Set()).add(cookie));
    }
    return found;
  }
}

/** By `TCP 80`. */
type Cookies = ReadonlyMap<string, ReadonlySet<bigint>>;

function closeHere(all: Cookies): number {
  let closed = 0;
  for (const [place, cookies] of all) {
    const [protocol, port] = place.split(' ') as ['TCP' | 'UDP', string];
    closed += closeSockets(protocol, Number(port), cookies);
  }
  return closed;
}
