/**
 * The reflectors: everything that parts read (`Source`), each kind once, into their sinks.
 *
 * Guarantee: a kind that is not served, or that the operator may not read, does not hold up the rest where every source of it is
 * optional; every other kind does, because without it what would be written could be wrong. Whoever waits is told for which kind.
 */
import { isDeepStrictEqual } from 'node:util';
import {
  ApiError,
  apiVersionOf,
  createReflector,
  type KubeClient,
  type KubeObject,
  type Reflector,
  type Resource,
} from '@weir/kube';
import { PartListError } from '@weir/process/parts';
import type { InitDone, StateDB, Table } from '@weir/statedb';
import type { Source } from '../parts/contract.ts';
import type { InputSource } from '../types.ts';
import { fanOut } from './reflect.ts';

export interface InputsOptions {
  readonly client: KubeClient;
  readonly db: StateDB;
  /** How far each kind has been read. */
  readonly table: Table<InputSource, 'place'>;
  /** Asked once, at the start. */
  readonly sources: () => readonly Source[];
  /** A list or watch failed, and is tried again. */
  readonly onError: (error: Error, context: { readonly resource: string; readonly retryInMs: number }) => void;
}

export class Inputs {
  readonly #options: InputsOptions;
  readonly #reflectors: { readonly resource: string; readonly reflector: Reflector }[] = [];
  readonly #table: Table<InputSource, 'place'>;
  readonly #complete: InitDone;

  constructor(options: InputsOptions) {
    this.#options = options;
    this.#table = options.table;
    this.#complete = options.db.initialiser(this.#table, 'inputs');
  }

  /** Resolves when every kind has been read completely, or does not matter; then table `inputSources` is complete. */
  async start(): Promise<void> {
    const sources = this.#options.sources();
    const kinds = new Map(sources.map(({ resource }) => [resource.plural, resource]));
    const of = ({ plural }: Resource<KubeObject>) => sources.filter((source) => source.resource.plural === plural);
    await Promise.all([...kinds.values()].map((kind) => this.#reflect(kind, of(kind))));
    this.#options.db.write([this.#table], (txn) => this.#complete(txn));
  }

  async stop(): Promise<void> {
    await Promise.all(this.#reflectors.map(({ reflector }) => reflector.stop()));
  }

  /** Kinds that were read once, and for more than `staleMs` could not be followed: their names, for how long, and why. */
  stale(staleMs: number): string[] {
    const now = performance.now();
    using snapshot = this.#options.db.read();
    return this.#reflectors.flatMap(({ resource, reflector: { synced, staleSince } }) => {
      if (!synced || staleSince === undefined || now - staleSince < staleMs) return [];
      const { missing, error: why = 'no answer' } = snapshot.get(this.#table, resource) ?? {};
      if (missing !== undefined) return [];
      return [`${resource} (for ${Math.round((now - staleSince) / 1000)} s: ${why})`];
    });
  }

  /** What is waited for, and why it has not come. */
  waiting(): string[] {
    using snapshot = this.#options.db.read();
    return [...snapshot.prefix(this.#table, '', 'place')]
      .filter(({ synced }) => !synced)
      .map(({ name, error }) => (error === undefined ? name : `${name} (${error})`));
  }

  /** `sources`: all of one kind. Resolves when the rest need not wait for it. */
  #reflect(resource: Resource<KubeObject>, sources: readonly Source[]): Promise<void> {
    const { client, onError } = this.#options;
    const { plural } = resource;
    const optional = sources.every((source) => source.optional !== undefined);
    const done = Promise.withResolvers<void>();
    const sink = fanOut(...sources.map((source) => source.sink));
    this.#note(plural, {});
    const reflector = createReflector({
      ...readingOf(sources),
      client,
      resource,
      sink: {
        ...sink,
        replace: (items, version) => {
          sink.replace(items, version);
          if (!optional || this.#note(plural, { missing: undefined }).missing === undefined) return;
          for (const source of sources) source.optional?.missing(undefined);
        },
        synced: () => {
          this.#note(plural, { synced: true });
          for (const source of sources) source.sink.synced?.();
          done.resolve();
        },
      },
      onError: (error, context) => {
        const { synced, missing } = this.#note(plural, { error: failureOf(error, resource) });
        onError(error, context);
        if (synced || missing !== undefined || !optional || !isMissing(error)) return;
        this.#note(plural, { missing: resource.kind });
        for (const source of sources) source.optional?.missing(error.message);
        done.resolve();
      },
    });
    this.#reflectors.push({ resource: plural, reflector });
    reflector.start();
    return done.promise;
  }

  /** Returns what was known of the kind before. */
  #note(name: string, news: Partial<InputSource>): InputSource {
    return this.#options.db.write([this.#table], (txn) => {
      const place = txn.count(this.#table);
      const fresh = { name, place, synced: false, error: undefined, missing: undefined };
      const known = txn.get(this.#table, name) ?? fresh;
      txn.upsert(this.#table, { ...known, ...news });
      return known;
    });
  }
}

/** How the kind is read, which all its sources share. */
function readingOf(
  sources: readonly Source[],
): Pick<Source, 'list' | 'pageSize'> & { trim?: (object: KubeObject) => KubeObject } {
  const [first, ...others] = sources;
  const other = others.find(({ list }) => !isDeepStrictEqual(list, first?.list));
  if (other !== undefined)
    throw new PartListError(
      `parts ask for different ${other.resource.plural}: all sources of a kind must have the same \`list\``,
    );
  const sizes = sources.flatMap(({ pageSize }) => pageSize ?? []);
  const trimming = sources.filter((source) => source.trim !== undefined);
  return {
    ...(first?.list === undefined ? {} : { list: first.list }),
    ...(sizes.length === 0 ? {} : { pageSize: Math.min(...sizes) }),
    ...(trimming.length === 0
      ? {}
      : { trim: (object) => trimming.reduce((left, source) => source.trim?.(left) ?? left, object) }),
  };
}

/** Not served, or not ours to read. */
function isMissing(error: Error): boolean {
  return error instanceof ApiError && (error.forbidden || error.notFound);
}

/** What a failure asks of the reader. */
function failureOf(error: Error, resource: Resource<KubeObject>): string {
  const kind = `${resource.plural} (${apiVersionOf(resource)})`;
  if (!(error instanceof ApiError)) return error.message;
  if (error.forbidden) return `${error.message}; grant the operator's role get, list and watch on ${kind}`;
  if (error.notFound) return `${error.message}; the API server does not serve ${kind}`;
  return error.message;
}
