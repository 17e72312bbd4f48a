/**
 * How long others wait for their turn where somebody brings a crowd: counted in changes that are taken in before theirs, and in writes that are
 * made before theirs. Neither depends on how fast the machine is.
 */
import type { KubeClient, KubeObject, Resource } from '@weir/kube';
import type { AnyTable, Change, ChangeStream, StateDB } from '@weir/statedb';
import { PLACES } from '../../operator/kubernetes/writer.ts';
import { EDITED, FRESH, LATER } from './story.ts';

/** Namespaces that change anything: the victim's, one of a pod that goes, the tenant's. Each may be before the victim twice. */
const NAMESPACES = 3;
/** Its own changes are two pods and a policy. */
const MOST_CHANGES = 2 * NAMESPACES + 2;
/** As many as have a place at once, and one of each namespace in between: of its kind, of one that it waits for, and of those that wait for that. */
const MOST_WRITES = 3 * (PLACES + NAMESPACES);

interface Awaited {
  readonly what: string;
  readonly most: number;
}

/** Changes in the order in which the model takes them in. */
interface AwaitedChange extends Awaited {
  readonly table: string;
  readonly isIt: (row: never) => boolean;
}

/** Requests of one kind, and of one that it waits for, in the order in which they are made. */
interface AwaitedWrite extends Awaited {
  readonly kind: string;
  readonly after?: string;
  readonly isIt: (object: never) => boolean;
}

const podKey = ({ namespace, name }: typeof LATER): string => `${namespace}/${name}`;
const policyName = `${EDITED.metadata.namespace}/${EDITED.metadata.name}`;

const CHANGES: readonly AwaitedChange[] = [
  ...[LATER, FRESH].map((pod) => ({
    what: `pod ${podKey(pod)} is taken in`,
    most: MOST_CHANGES,
    table: 'placedPods',
    isIt: ({ row }: { row: { key: string } }) => row.key === podKey(pod),
  })),
  {
    what: `the edit of ${policyName} is taken in`,
    most: MOST_CHANGES,
    table: 'parsedPolicies',
    isIt: ({ row }: { row: { key: string; generation: number } }) =>
      row.key === `cnp/${policyName}` && row.generation > 1,
  },
];

const WRITES: readonly AwaitedWrite[] = [
  {
    what: `the edit of ${policyName} is resolved`,
    most: MOST_WRITES,
    kind: 'ResolvedPolicy',
    after: 'PeerSet',
    isIt: ({ metadata }: KubeObject) => metadata.name === `cnp-${policyName.replace('/', '.')}`,
  },
  {
    what: `pod ${podKey(FRESH)} has an identity`,
    most: MOST_WRITES,
    kind: 'CiliumIdentity',
    isIt: (object: { 'security-labels': Readonly<Record<string, string>> }) =>
      object['security-labels']['k8s:app'] === FRESH.app,
  },
  ...[LATER, FRESH].map((pod) => ({
    what: `pod ${podKey(pod)} is in a slice`,
    most: MOST_WRITES,
    kind: 'CiliumEndpointSlice',
    after: 'CiliumIdentity',
    isIt: ({ namespace, endpoints }: { namespace: string; endpoints: readonly { name: string }[] }) =>
      namespace === pod.namespace && endpoints.some(({ name }) => name === pod.name),
  })),
];

/** Objects that the operator asks the API server to write, in order. */
export class Writes {
  readonly #asked: { readonly kind: string; readonly object: KubeObject; readonly held: boolean }[] = [];
  #held = false;
  #answered = Promise.resolve();
  #answer: () => void = () => undefined;

  readonly through = (client: KubeClient): Pick<KubeClient, 'apply'> => ({
    apply: async (resource, object, options) => {
      this.#asked.push({ kind: (resource as Resource<KubeObject>).kind, object, held: this.#held });
      await this.#answered;
      return await client.apply(resource, object, options);
    },
  });

  /** From now on no request is answered. */
  close(): void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#asked.length = 0;
    this.#held = true;
    this.#answered = promise;
    this.#answer = resolve;
  }

  /** Requests are answered again. Those that come from now on count: what had a place before was under way. */
  open(): void {
    this.#held = false;
    this.#answer();
  }

  /** What comes too late, or never, in sentences. */
  late(): string[] {
    return WRITES.flatMap(({ what, most, kind, after, isIt }) => {
      const counted = this.#asked.filter((write) => write.kind === kind || write.kind === after);
      const place = counted.findIndex((write) => write.kind === kind && isIt(write.object as never));
      const before = counted.slice(0, place).filter(({ held }) => !held).length;
      return judged(what, most, place < 0 ? place : before, counted.length);
    });
  }
}

/** From now on. */
export class Turns {
  readonly #streams: readonly ChangeStream<unknown>[];
  readonly #taken = CHANGES.map((awaited) => ({ awaited, before: 0, there: false }));
  #over = false;

  constructor(db: StateDB) {
    const tables = Map.groupBy(CHANGES, ({ table }) => table);
    this.#streams = [...tables.keys()].map((name) => this.#follow(db, tableOf(db, name)));
  }

  /** What comes too late, or never, in sentences; counts no more. */
  late(): string[] {
    this.#over = true;
    for (const stream of this.#streams) stream[Symbol.dispose]();
    return this.#taken.flatMap(({ awaited: { what, most }, before, there }) =>
      judged(what, most, there ? before : -1, before),
    );
  }

  #follow(db: StateDB, table: AnyTable): ChangeStream<unknown> {
    const stream = db.changes<unknown>(table, { name: 'turns' });
    stream.next();
    // Within the commit: what is written in one transaction has its order, what is written again later has lost it.
    const look = (): void => {
      if (this.#over) return;
      for (const change of stream.next()) this.#count(table.name, change);
      stream.watch().onFire(look);
    };
    look();
    return stream;
  }

  #count(table: string, { row }: Change<unknown>): void {
    for (const taken of this.#taken) {
      if (taken.there || taken.awaited.table !== table) continue;
      if (taken.awaited.isIt(row as never)) taken.there = true;
      else taken.before += 1;
    }
  }
}

function judged(what: string, most: number, before: number, of: number): string[] {
  if (before < 0) return [`${what}: never, after ${of} of others`];
  return before > most ? [`${what}: after ${before} of others, where ${most} may be before it`] : [];
}

function tableOf(db: StateDB, name: string): AnyTable {
  const found = db.tables().find((table) => table.name === name)?.table;
  if (found === undefined) throw new Error(`there is no table ${name}`);
  return found;
}
