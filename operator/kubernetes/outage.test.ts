/** How long after an outage of the API server the operator asks and writes again: its default options, in virtual time. */
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { type ApiError, type KubeClient, type KubeObject, ServerPulse } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { Asked, OUTAGES, seeded } from '../../shared/kube/testing/outages.ts';
import { NO_LIMITS } from '../limits.ts';
import { createTables, show } from '../tables.ts';
import { Inputs } from './inputs.ts';
import { policySources, reportSources, workloadSources } from './sources.ts';
import { createTargets, targetSources } from './targets.ts';
import { Writers } from './writers.ts';
import { writtenKinds } from './written-kinds.ts';

/** The longest wait before the next try, and a turn of the event loop. */
const LONGEST_WAIT_MS = 5_001;
/** Least time between two rounds of slices, of which the second has what waited for identities. */
const PACE_MS = 2 * 50;

const READ = [
  ...['ciliumclusterwidenetworkpolicies', 'ciliumendpointslices', 'ciliumidentities', 'ciliumnetworkpolicies'],
  ...['namespaces', 'networkpolicies', 'nodepolicystatuses', 'nodes', 'peersets', 'pods', 'resolvedpolicies'],
];
const WRITTEN = [
  ...['ciliumendpointslices', 'ciliumidentities', 'ciliumnetworkpolicies', 'events', 'peersets', 'resolvedpolicies'],
];

/** An API server, as a client with a pulse sees it; it fails while `failure` is set. */
class Server {
  readonly pulse = new ServerPulse();
  failure: ApiError | undefined;
  readonly asked = new Asked();
  #cut = new AbortController();
  #version = 1;

  fail(error: ApiError): void {
    this.failure = error;
    this.#cut.abort();
    this.#cut = new AbortController();
  }

  readonly client = {
    pulse: this.pulse,
    listPage: async ({ plural }: { readonly plural: string }) => {
      this.#ask(plural);
      await this.#answer();
      const items = plural === 'ciliumnetworkpolicies' ? [POLICY] : [];
      return { items, resourceVersion: '1' };
    },
    watch: (resource: { readonly plural: string }, options: Parameters<KubeClient['watch']>[1]) =>
      this.#watch(resource.plural, options),
    apply: async ({ plural }: { readonly plural: string }, object: KubeObject) => {
      this.#ask(`apply ${plural}`);
      await this.#answer();
      this.asked.take(plural);
      this.#version += 1;
      return { ...object, metadata: { ...object.metadata, resourceVersion: String(this.#version) } };
    },
  } as unknown as KubeClient;

  async *#watch(plural: string, { signal, accepted }: Parameters<KubeClient['watch']>[1]): AsyncGenerator<never> {
    this.#ask(plural);
    await this.#answer();
    accepted?.();
    const ended = AbortSignal.any([this.#cut.signal, ...(signal === undefined ? [] : [signal])]);
    await new Promise<void>((resolve) => ended.addEventListener('abort', () => resolve()));
    if (signal?.aborted !== true) await this.#answer();
  }

  #ask(what: string): void {
    this.asked.ask(what, this.failure === undefined);
  }

  /** As the transport tells its pulse. */
  async #answer(): Promise<void> {
    if (this.failure === undefined) {
      this.pulse.answered();
      return;
    }
    this.pulse.failed(this.failure);
    throw this.failure;
  }
}

const POLICY = {
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { namespace: 'ns', name: 'p', uid: 'u', resourceVersion: '1' },
};

let server: Server;
let db: ReturnType<typeof createStateDB>;
let tables: ReturnType<typeof createTables>;
let inputs: Inputs;
let writers: Writers;

beforeEach(() => {
  jest.useFakeTimers();
  server = new Server();
  db = createStateDB({ freeze: true });
  tables = createTables(db);
  const { client } = server;
  const nothing = (): undefined => undefined;
  const shared = { db, client, tables, onWrite: nothing };
  const targets = createTargets({ ...shared, onStatusDrift: nothing });
  const into = { db, tables, onBad: nothing, onMissing: nothing, limits: NO_LIMITS };
  const sources = [...targetSources(targets), ...policySources(into), ...workloadSources(into), ...reportSources(into)];
  inputs = new Inputs({ client, db, table: tables.inputSources, sources: () => sources, onError: nothing });
  const kinds = writtenKinds({
    ...shared,
    targets,
    attempted: (...rows) => writers.attempted(...rows),
    onStatus: nothing,
  });
  writers = new Writers({ client, db, kinds, onError: nothing });
});
afterEach(async () => {
  server.failure = undefined;
  const stopping = Promise.all([inputs.stop(), writers.stop()]);
  await jest.advanceTimersByTimeAsync(10_000);
  await stopping;
  jest.useRealTimers();
  jest.restoreAllMocks();
});

/** Something for each writer; `generation` tells it from what was written before. */
function change(generation: number): void {
  const { peerSets, identities, resolved, slices, events, statuses } = tables;
  const hash = `set-${generation}`;
  const source = { kind: 'CiliumNetworkPolicy' as const, namespace: 'ns', name: 'p', uid: 'u', generation };
  const about = { key: 'cnp/ns/p', kind: source.kind, uid: 'u', namespace: 'ns', name: 'p' };
  const at = '2026-11-21T05:00:00Z';
  db.write([peerSets, identities, resolved, slices, events, statuses], (txn) => {
    show(txn, peerSets, { name: hash, hash, selector: { requirements: [] }, identities: [], slice: 0, slices: 1 });
    show(txn, identities, { id: 256 + generation, labels: { 'k8s:io.kubernetes.pod.namespace': 'ns' } });
    show(txn, resolved, {
      name: 'cnp-ns.p',
      source,
      rules: [
        { subject: hash, direction: 'ingress', verdict: 'allow', peers: [], defaultDeny: true, cookie: 1, path: '' },
      ],
    });
    const networking = { addressing: [], node: '' };
    const endpoints = [{ name: 'pod', id: 0, identity: 256 + generation, networking }];
    show(txn, slices, { name: 'slice', namespace: 'ns', endpoints });
    const event = { key: 'event', about, type: 'Warning' as const, reason: 'Invalid', message: '' };
    show(txn, events, { ...event, count: generation, first: at, last: at });
    const status = {
      observedGeneration: generation,
      summary: { nodes: '0/0', endpoints: 0, rules: 0 },
      conditions: [],
    };
    show(txn, statuses, { ...about, status });
  });
}

/** Everything is read and written; then the server fails for so long, and meanwhile everything changes. Returns when it answers again. */
async function outage(forMs: number, error: ApiError): Promise<number> {
  const started = inputs.start();
  await jest.advanceTimersByTimeAsync(1_000);
  await started;
  change(1);
  writers.start();
  await jest.advanceTimersByTimeAsync(10_000);
  expect(server.asked.kinds).toEqual(READ);
  expect([...server.asked.written.keys()].sort()).toEqual(WRITTEN);
  server.fail(error);
  server.asked.clear();
  change(2);
  await jest.advanceTimersByTimeAsync(forMs);
  expect(server.asked.written.size).toBe(0);
  server.failure = undefined;
  return performance.now();
}

/** Kinds that were read with an answer since the outage began. */
const answers = (): number => server.asked.read.size;

describe('an outage of the API server', () => {
  it.each(OUTAGES)('of $seconds s, $what: nobody waits longer than the longest wait', async ({ seconds, error }) => {
    // Every wait is as long as it may be.
    jest.spyOn(Math, 'random').mockReturnValue(0);
    const ended = await outage(seconds * 1_000, error);
    await jest.advanceTimersByTimeAsync(20_000);
    const { read, written } = server.asked;
    expect([...read.keys()].sort()).toEqual(READ);
    expect([...written.keys()].sort()).toEqual(WRITTEN);
    for (const at of [...read.values(), ...written.values()])
      expect(Math.round(at - ended)).toBeLessThanOrEqual(LONGEST_WAIT_MS + PACE_MS);
    // A server that is away for longer is not asked more rarely.
    for (const what of [...READ, 'apply peersets', 'apply ciliumidentities', 'apply events']) {
      const times = server.asked.times(what);
      expect([what, times.length > seconds / 5]).toEqual([what, true]);
      for (const [index, at] of times.slice(1).entries())
        expect(Math.round(at - (times[index] ?? 0))).toBeLessThanOrEqual(LONGEST_WAIT_MS);
    }
    expect([...new Set(writers.failing().values())]).toEqual([0]);
  });

  it.each(OUTAGES)('of $seconds s, $what: the first answer wakes everybody', async ({ seconds, error }) => {
    jest.spyOn(Math, 'random').mockImplementation(seeded(seconds));
    const ended = await outage(seconds * 1_000, error);
    while (answers() === 0) await jest.advanceTimersByTimeAsync(1);
    expect(Math.round(performance.now() - ended)).toBeLessThanOrEqual(LONGEST_WAIT_MS);
    await jest.advanceTimersByTimeAsync(PACE_MS);
    expect(answers()).toBe(READ.length);
    expect([...server.asked.written.keys()].sort()).toEqual(WRITTEN);
    expect([...writers.failing()].filter(([, rows]) => rows > 0)).toEqual([]);
  });
});
