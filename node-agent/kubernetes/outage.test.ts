/** How long after an outage of the API server the agent asks and writes again: its default options, in virtual time. */
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { type ApiError, type KubeObject, type Resource, ServerPulse, type WatchEvent } from '@weir/kube';
import { Asked, OUTAGES, seeded } from '../../shared/kube/testing/outages.ts';
import { FakeCore, quiet } from '../testing/fake-core.ts';
import { UninstallMark } from '../uninstall/mark.ts';
import { Kubernetes } from './source.ts';
import { FakeClient } from './testing/fake-client.ts';

/** The longest wait before the next try, and a turn of the event loop. */
const LONGEST_WAIT_MS = 5_001;
/** Least time between two writes of a kind, also of those that fail. */
const PACE_MS = { nodepolicystatuses: 1_000, events: 1_000, nodes: 10_000 };

const READ = [
  ...['ciliumendpointslices', 'ciliumidentities', 'daemonsets', 'endpointslices', 'namespaces', 'nodes', 'peersets'],
  ...['pods', 'resolvedpolicies', 'services'],
];
const WRITTEN = ['ciliumendpoints', 'events', 'nodepolicystatuses', 'nodes'];

/** Notes when it was asked, and tells its pulse of each answer, as the real one's transport does. */
class ObservedClient extends FakeClient {
  readonly pulse = new ServerPulse();
  readonly asked = new Asked();

  override list<T extends KubeObject>(resource: Resource<T>) {
    this.#ask(resource.plural);
    return this.#told(super.list(resource));
  }
  override async *watch<T extends KubeObject>(
    resource: Resource<T>,
    options: { readonly signal?: AbortSignal; readonly accepted?: () => void },
  ): AsyncGenerator<WatchEvent<T>> {
    this.#ask(resource.plural);
    const accepted = (): void => {
      options.accepted?.();
      this.pulse.answered();
    };
    try {
      yield* super.watch(resource, { ...options, accepted });
    } catch (error) {
      this.pulse.failed(error);
      throw error;
    }
  }
  override get<T extends KubeObject>(resource: Resource<T>, name: string): Promise<T> {
    return this.#told(this.failure === undefined ? super.get(resource, name) : Promise.reject<T>(this.failure));
  }
  override apply<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T> {
    this.#ask(`apply ${resource.plural}`);
    return this.#written(resource.plural, super.apply(resource, object));
  }

  #ask(what: string): void {
    this.asked.ask(what, this.failure === undefined);
  }
  async #written<T>(plural: string, writing: Promise<T>): Promise<T> {
    const answer = await this.#told(writing);
    this.asked.take(plural);
    return answer;
  }
  async #told<T>(request: Promise<T>): Promise<T> {
    try {
      const answer = await request;
      this.pulse.answered();
      return answer;
    } catch (error) {
      this.pulse.failed(error);
      throw error;
    }
  }
}

let core: FakeCore;
let client: ObservedClient;
let source: Kubernetes;
let problem = 'none';

beforeEach(() => {
  jest.useFakeTimers();
  core = new FakeCore();
  client = new ObservedClient();
  source = new Kubernetes({
    core,
    client,
    nodeName: 'n1',
    // As the part `uninstall` brings it.
    sources: () => [new UninstallMark(core.db, { namespace: 'kube-system', name: 'weir-agent' }).source],
    problems: () => [{ reason: 'Test', message: problem }],
    log: quiet,
  });
  source.start();
});
afterEach(async () => {
  client.failure = undefined;
  const stopping = source.stop();
  await jest.advanceTimersByTimeAsync(10_000);
  await stopping;
  jest.useRealTimers();
  jest.restoreAllMocks();
});

/** Something to write for each writer; what was written before differs from it. */
async function change(generation: number): Promise<void> {
  problem = `problem ${generation}`;
  core.setRealised({ revision: generation, policyVersion: String(generation) });
  core.db.write([core.tables.podEvents], (txn) =>
    txn.upsert(core.tables.podEvents, {
      key: 'event',
      pod: { namespace: 'default', name: 'app1', uid: 'pod-uid' },
      ...{ reason: 'Test', message: problem, count: generation, first: 1_000, last: 1_000 },
    }),
  );
  const pod = { namespace: 'default', name: 'app1', uid: 'pod-uid' };
  const addresses = [`10.1.0.${generation}`];
  await core.upsertEndpoint({ id: 1, ifindex: 3, interfaceName: 'weir1', addresses, pod, createdAt: '' });
}

/** Everything is read and written; then the server fails for so long, and meanwhile everything changes. Returns when it answers again. */
async function outage(forMs: number, error: ApiError): Promise<number> {
  await change(2);
  await jest.advanceTimersByTimeAsync(60_000);
  expect(client.asked.kinds).toEqual(READ);
  expect([...client.asked.written.keys()].sort()).toEqual(WRITTEN);
  client.fail(error);
  client.asked.clear();
  await change(3);
  await jest.advanceTimersByTimeAsync(forMs);
  expect(client.asked.written.size).toBe(0);
  client.failure = undefined;
  return performance.now();
}

const paceOf = (plural: string): number => (PACE_MS as Readonly<Record<string, number>>)[plural] ?? 0;

describe('an outage of the API server', () => {
  it.each(OUTAGES)('of $seconds s, $what: nobody waits longer than the longest wait', async ({ seconds, error }) => {
    // Every wait is as long as it may be.
    jest.spyOn(Math, 'random').mockReturnValue(0);
    const ended = await outage(seconds * 1_000, error);
    await jest.advanceTimersByTimeAsync(20_000);
    const { read, written } = client.asked;
    expect([...read.keys()].sort()).toEqual(READ);
    for (const at of read.values()) expect(Math.round(at - ended)).toBeLessThanOrEqual(LONGEST_WAIT_MS);
    for (const plural of WRITTEN)
      expect(Math.round((written.get(plural) ?? Number.NaN) - ended)).toBeLessThanOrEqual(
        LONGEST_WAIT_MS + paceOf(plural),
      );
    // A server that is away for longer is not asked more rarely.
    for (const what of [...READ, 'apply ciliumendpoints', 'apply events']) {
      const times = client.asked.times(what);
      expect([what, times.length > seconds / 5]).toEqual([what, true]);
      for (const [index, at] of times.slice(1).entries())
        expect(Math.round(at - (times[index] ?? 0))).toBeLessThanOrEqual(LONGEST_WAIT_MS + PACE_MS.events);
    }
  });

  it.each(OUTAGES)('of $seconds s, $what: the first answer wakes everybody', async ({ seconds, error }) => {
    jest.spyOn(Math, 'random').mockImplementation(seeded(seconds));
    const ended = await outage(seconds * 1_000, error);
    await jest.advanceTimersByTimeAsync(20_000);
    const { read, written } = client.asked;
    const first = Math.min(...read.values(), ...written.values());
    expect(Math.round(first - ended)).toBeLessThanOrEqual(LONGEST_WAIT_MS);
    expect(Object.fromEntries(read)).toEqual(Object.fromEntries(READ.map((plural) => [plural, first])));
    for (const plural of WRITTEN)
      expect(Math.round((written.get(plural) ?? Number.NaN) - first)).toBeLessThanOrEqual(paceOf(plural));
  });
});
