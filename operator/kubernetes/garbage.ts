/**
 * Removes what agents wrote and can no longer remove themselves: the NodePolicyStatus of a node that is deleted, and a
 * CiliumEndpoint whose pod is gone.
 *
 * Guarantees: nothing goes that was seen without its owner for less than the grace period, except a CiliumEndpoint whose
 * pod and node are both gone, which nobody can want back; the API server itself, not the watch, must say that the owner
 * is gone; an object that somebody has written since it was read stays.
 */
import { ApiError, type CiliumEndpoint, type KubeClient, type KubeObject, type Resource, resources } from '@weir/kube';
import { delay } from '@weir/process/delay';
import type { StateDB, Table } from '@weir/statedb';

const PAGE = 500;

export interface GarbageOptions {
  readonly db: StateDB;
  readonly client: KubeClient;
  /** Whether the watch knows a pod. Not trusted alone. */
  readonly hasPod: (namespace: string, name: string) => boolean;
  /** Milliseconds that an object is kept after it was first seen without its owner. */
  readonly graceMs: number;
  /** Milliseconds between two looks. */
  readonly intervalMs: number;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly onDeleted: (resource: string, key: string) => void;
  /** A look, or one deletion, failed: the next look tries again. */
  readonly onError: (error: Error) => void;
}

/** An object without its owner. */
interface Orphan {
  readonly uid: string;
  /** When it was seen so first. Milliseconds since the epoch. */
  readonly since: number;
}

/** Nodes by everything that an endpoint may call them: names and addresses. */
type Nodes = ReadonlySet<string>;

export class GarbageCollector {
  readonly #options: GarbageOptions;
  readonly #orphans: Table<Orphan>;
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;

  /** Registers a table: `orphans`. */
  constructor(options: GarbageOptions) {
    this.#options = options;
    this.#orphans = options.db.table({ name: 'orphans', key: ({ uid }) => uid });
  }

  /** Call when the pods are known completely. The first look follows at once, and only notes what it sees. */
  start(): void {
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  /** One look. Throws ApiError when the lists cannot be read. */
  async sweep(): Promise<void> {
    const { client, db } = this.#options;
    const { signal } = this.#stop;
    const noted = new Map<string, Orphan>();
    const nodes = (await client.list(resources.KubeNode, { signal })).items;
    const names = new Set(nodes.map(({ metadata }) => metadata.name));
    const known = new Set([
      ...names,
      ...nodes.flatMap(({ status }) => (status?.addresses ?? []).map((a) => a.address)),
    ]);
    for (const object of (await client.list(resources.NodePolicyStatus, { signal })).items) {
      if (!names.has(object.metadata.name) && this.#due(object, noted)) {
        await this.#remove(resources.NodePolicyStatus, object, resources.KubeNode);
      }
    }
    let continueToken: string | undefined;
    do {
      const page = await client.listPage(resources.CiliumEndpoint, {
        limit: PAGE,
        signal,
        ...(continueToken === undefined ? {} : { continueToken }),
      });
      for (const object of page.items) await this.#look(object, known, noted);
      continueToken = page.continueToken;
    } while (continueToken !== undefined && !this.#stop.signal.aborted);
    db.write([this.#orphans], (txn) => {
      // What is not noted has its owner again, or is gone.
      for (const { uid } of txn.all(this.#orphans)) if (!noted.has(uid)) txn.delete(this.#orphans, uid);
      for (const orphan of noted.values()) txn.upsert(this.#orphans, orphan);
    });
  }

  async #run(): Promise<void> {
    const { intervalMs } = this.#options;
    while (!this.#stop.signal.aborted) {
      try {
        await this.sweep();
      } catch (error) {
        this.#report(error);
      }
      await delay(intervalMs, this.#stop.signal);
    }
  }

  async #look(object: CiliumEndpoint, nodes: Nodes, noted: Map<string, Orphan>): Promise<void> {
    const { namespace = '', name } = object.metadata;
    if (this.#options.hasPod(namespace, name)) return;
    // Whoever may write endpoints may leave anything out.
    const status: Partial<NonNullable<CiliumEndpoint['status']>> | undefined = object.status;
    const node = status?.networking?.node;
    const nodeGone = node !== undefined && !nodes.has(node);
    if (this.#due(object, noted) || nodeGone) await this.#remove(resources.CiliumEndpoint, object, resources.Pod);
  }

  #due(object: KubeObject, noted: Map<string, Orphan>): boolean {
    const { db, graceMs, now } = this.#options;
    const { uid = '' } = object.metadata;
    using snapshot = db.read();
    const orphan = snapshot.get(this.#orphans, uid) ?? { uid, since: now() };
    noted.set(uid, orphan);
    return now() - orphan.since >= graceMs;
  }

  /** Removes `object` when its owner, of the same name, is not there. */
  async #remove<T extends KubeObject>(resource: Resource<T>, object: T, owner: Resource<KubeObject>): Promise<void> {
    if (this.#stop.signal.aborted) return;
    const { client, onDeleted } = this.#options;
    const { name, namespace, uid, resourceVersion } = object.metadata;
    const key = namespace === undefined ? name : `${namespace}/${name}`;
    try {
      if (await isThere(client, owner, name, namespace, this.#stop.signal)) return;
      await client.delete(resource, name, namespace, {
        ...(uid === undefined ? {} : { uid }),
        ...(resourceVersion === undefined ? {} : { resourceVersion }),
      });
      onDeleted(resource.plural, key);
    } catch (error) {
      // Gone already, or written since: not garbage.
      if (error instanceof ApiError && (error.notFound || error.conflict)) return;
      this.#report(error);
    }
  }

  #report(error: unknown): void {
    if (!this.#stop.signal.aborted) this.#options.onError(error instanceof Error ? error : new Error(String(error)));
  }
}

async function isThere(
  client: KubeClient,
  resource: Resource<KubeObject>,
  name: string,
  namespace: string | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    await client.get(resource, name, namespace, signal);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.notFound) return false;
    throw error;
  }
}
