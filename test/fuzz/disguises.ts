/**
 * What programs read in place of objects. The API server of tests validates, and takes no object of megabytes; so hostile objects are stored as
 * plain ones of the same name, and whoever reads by a client of `disguised` is given what their author really wrote. Names, uids and versions stay
 * those that an API server gives.
 */
import type { FencingClient, KubeClient, KubeObject } from '@weir/kube';
import { grown } from './big.ts';

type Client = KubeClient & FencingClient;

export class Disguises {
  readonly #bodies = new Map<string, Readonly<Record<string, unknown>>>();

  put(uid: string, body: Readonly<Record<string, unknown>>): void {
    this.#bodies.set(uid, body);
  }

  remove(uid: string): void {
    this.#bodies.delete(uid);
  }

  /** The object as its author wrote it. */
  seen<T extends KubeObject>(object: T): T {
    const body = this.#bodies.get(object.metadata.uid ?? '');
    if (body === undefined) return object;
    const { metadata, ...rest } = grown(body) as Readonly<Record<string, unknown>>;
    const { name, namespace, uid, resourceVersion, generation, creationTimestamp } = object.metadata;
    const given = { name, namespace, uid, resourceVersion, generation, creationTimestamp };
    const known = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    const claimed = typeof metadata === 'object' && metadata !== null ? metadata : {};
    const { apiVersion, kind } = object;
    return { ...object, ...rest, apiVersion, kind, metadata: { ...claimed, ...known } } as T;
  }
}

/** `onList`: each first page of a whole list that is read; a reader that follows its watch lists each kind once. */
export function disguised(client: Client, disguises: Disguises, onList: (plural: string) => void): Client {
  const seen = <T extends KubeObject>(object: T): T => disguises.seen(object);
  const reads: Partial<Client> = {
    get: async (...args) => seen(await client.get(...args)),
    async list(...args) {
      const page = await client.list(...args);
      return { ...page, items: page.items.map(seen) };
    },
    async listPage(resource, options) {
      if (options.limit > 1 && options.continueToken === undefined) onList(resource.plural);
      const page = await client.listPage(resource, options);
      return { ...page, items: page.items.map(seen) };
    },
    async *watch(resource, options) {
      for await (const event of client.watch(resource, options)) yield { ...event, object: seen(event.object) };
    },
  };
  return withOwn(client, reads);
}

/** The client, with some of its methods replaced. */
export function withOwn<C extends object>(client: C, methods: Partial<C>): C {
  return new Proxy(client, {
    get(target, name) {
      const replaced: unknown = Reflect.get(methods, name);
      if (replaced !== undefined) return replaced;
      const own: unknown = Reflect.get(target, name);
      return typeof own === 'function' ? (own.bind(target) as unknown) : own;
    },
  });
}
