import { afterEach, describe, expect, it } from '@jest/globals';
import { delay } from '@weir/process/delay';
import { ApiError, LeadershipLostError } from './errors.ts';
import { type Answer, type FakeServer, fakeServer, send } from './fake-server.ts';
import type { Lease, Pod } from './kubernetes-objects.ts';
import { LeaderElector } from './leader.ts';
import { resources } from './resources.ts';
import type { KubeClient } from './types.ts';

let server: FakeServer | undefined;
const electors: LeaderElector[] = [];
afterEach(async () => {
  for (const elector of electors.splice(0)) await elector.stop();
  await server?.stop();
  server = undefined;
});

/** One lease, with optimistic locking; `broken` answers 500 instead, `silent` nothing. Pods are created, those of the namespace `slow` never. */
async function leaseServer(initial?: Lease): Promise<{
  lease: () => Lease | undefined;
  broken: (yes: boolean) => void;
  silent: () => void;
  touch: () => void;
  remove: () => void;
  /** Requests for the lease that come from now on are answered when the function is called that this gives. */
  hold: () => () => void;
}> {
  let lease = initial;
  let version = 1;
  let broken = false;
  let silent = false;
  let held: (() => void)[] | undefined;
  const answer: Answer = (seen, response) => {
    if (silent) return;
    const given = seen.body as Lease | undefined;
    if (seen.path.includes('/pods')) {
      if (!seen.path.includes('/slow/')) send(response, 201, seen.body);
    } else if (broken) send(response, 500, { kind: 'Status' });
    else if (seen.method === 'GET') {
      if (lease === undefined) send(response, 404, { kind: 'Status', reason: 'NotFound' });
      else send(response, 200, lease);
    } else if (seen.method === 'POST' && lease !== undefined) send(response, 409, { reason: 'AlreadyExists' });
    else if (seen.method === 'PUT' && given?.metadata.resourceVersion !== lease?.metadata.resourceVersion) {
      send(response, 409, { reason: 'Conflict' });
    } else {
      version += 1;
      lease = { ...(given as Lease), metadata: { ...(given as Lease).metadata, resourceVersion: String(version) } };
      send(response, 200, lease);
    }
  };
  server = await fakeServer((seen, response) => {
    if (held === undefined || seen.path.includes('/pods')) answer(seen, response);
    else held.push(() => answer(seen, response));
  });
  return {
    lease: () => lease,
    remove: () => {
      lease = undefined;
    },
    hold: () => {
      held = [];
      return () => {
        const waiting = held ?? [];
        held = undefined;
        for (const each of waiting) each();
      };
    },
    broken: (yes) => {
      broken = yes;
    },
    silent: () => {
      silent = true;
    },
    touch: () => {
      version += 1;
      if (lease !== undefined) lease = { ...lease, metadata: { ...lease.metadata, resourceVersion: String(version) } };
    },
  };
}

interface Candidate {
  readonly elector: LeaderElector;
  readonly elected: Promise<void>;
  readonly lost: Promise<Error>;
  readonly errors: readonly Error[];
}

function candidate(
  identity: string,
  timing: { lease?: number; deadline?: number; retry?: number; now?: () => number } = {},
): Candidate {
  if (server === undefined) throw new Error('no server');
  const elected = Promise.withResolvers<void>();
  const lost = Promise.withResolvers<Error>();
  const errors: Error[] = [];
  const elector = new LeaderElector({
    client: server.client,
    namespace: 'ns',
    name: 'op',
    identity,
    leaseDurationMs: timing.lease ?? 60_000,
    renewDeadlineMs: timing.deadline ?? 40_000,
    retryPeriodMs: timing.retry ?? 20,
    onElected: elected.resolve,
    onLost: lost.resolve,
    onError: (error) => errors.push(error),
    ...(timing.now === undefined ? {} : { now: timing.now }),
  });
  electors.push(elector);
  elector.start();
  return { elector, elected: elected.promise, lost: lost.promise, errors };
}

const held = (holderIdentity: string, renewTime = '2001-01-01T00:00:00.000000Z'): Lease => ({
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  metadata: { name: 'op', namespace: 'ns', resourceVersion: '1' },
  spec: { holderIdentity, leaseDurationSeconds: 1, renewTime, leaseTransitions: 4 },
});

const pod = (namespace: string): Pod => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { namespace, name: 'one' },
});

/** A client that writes only while `elector` leads. */
function fenced({ elector }: Candidate): KubeClient {
  if (server === undefined) throw new Error('no server');
  return server.client.fenced(elector.fence);
}

const created = (): number => server?.requests.filter(({ path }) => path.includes('/pods')).length ?? 0;

describe('LeaderElector', () => {
  it('creates the lease, leads, and releases it on stop', async () => {
    const { lease } = await leaseServer();
    const one = candidate('one');
    await one.elected;
    expect(lease()?.spec).toMatchObject({ holderIdentity: 'one', leaseDurationSeconds: 60, leaseTransitions: 0 });
    await one.elector.stop();
    expect(one.elector.leading).toBe(false);
    expect(lease()?.spec?.holderIdentity).toBe('');
  });

  it('gives back what it took while it was stopped', async () => {
    const { lease, hold } = await leaseServer();
    const answer = hold();
    const one = candidate('one');
    while ((server?.requests.length ?? 0) < 1) await delay(1);
    answer();
    const again = hold();
    while ((server?.requests.length ?? 0) < 2) await delay(1);
    const stopped = one.elector.stop();
    again();
    await stopped;
    expect(one.elector.leading).toBe(false);
    expect(lease()?.spec?.holderIdentity).toBe('');
  });

  it('that is abandoned is kept, and expires: what is being written may end until then', async () => {
    const { lease } = await leaseServer();
    let now = 0;
    const one = candidate('one', { now: () => now });
    await one.elected;
    await one.elector.abandon();
    const requests = server?.requests.length;
    await fenced(one).create(resources.Pod, pod('a'));
    expect([lease()?.spec?.holderIdentity, one.elector.leading]).toEqual(['one', true]);
    now += 40_000;
    await expect(fenced(one).create(resources.Pod, pod('a'))).rejects.toThrow(LeadershipLostError);
    expect([server?.requests.length, created()]).toEqual([(requests ?? 0) + 1, 1]);
  });

  it('a lease that somebody deletes is not taken while its holder may still write', async () => {
    const { lease, remove, broken } = await leaseServer();
    let now = 5_000;
    const one = candidate('one', { now: () => now });
    await one.elected;
    const two = candidate('two', { lease: 1_000, deadline: 500, now: () => now });
    while (two.elector.unreached !== undefined) await delay(1);
    broken(true);
    await one.elector.abandon();
    broken(false);
    remove();
    const seen = server?.requests.length ?? 0;
    while ((server?.requests.length ?? 0) < seen + 3) await delay(1);
    expect([lease(), two.elector.leading]).toEqual([undefined, false]);
    now += 60_001;
    await two.elected;
    expect(lease()?.spec?.holderIdentity).toBe('two');
  });

  it('a released lease is taken at once; while it is renewed nobody else leads', async () => {
    const { lease } = await leaseServer();
    const one = candidate('one');
    await one.elected;
    const two = candidate('two');
    expect(two.elector.leading).toBe(false);
    await one.elector.stop();
    await two.elected;
    expect(lease()?.spec).toMatchObject({ holderIdentity: 'two', leaseTransitions: 1 });
  });

  it('does not trust the clock of the holder: an old renewTime is waited for like a new one', async () => {
    const { lease } = await leaseServer(held('other'));
    let now = 5_000;
    const one = candidate('one', { lease: 1_000, deadline: 500, now: () => now });
    while ((server?.requests.length ?? 0) < 5) await new Promise((resolve) => setTimeout(resolve, 5));
    // Seen five times, but for no time at all by our own clock.
    expect(lease()?.spec?.holderIdentity).toBe('other');
    now += 1_001;
    await one.elected;
    expect(lease()?.spec).toMatchObject({ holderIdentity: 'one', leaseTransitions: 5 });
  });

  it('stops leading when it cannot renew, and says so', async () => {
    const { broken } = await leaseServer();
    const one = candidate('one', { deadline: 2_000 });
    await one.elected;
    broken(true);
    expect((await one.lost).message).toContain('ns/op');
    expect(one.elector.leading).toBe(false);
  });

  it('who thaws after the deadline sends no write, whatever timer comes first', async () => {
    await leaseServer();
    let now = 0;
    const one = candidate('one', { retry: 30_000, now: () => now });
    const client = fenced(one);
    await expect(client.create(resources.Pod, pod('a'))).rejects.toThrow(LeadershipLostError);
    await one.elected;
    await client.create(resources.Pod, pod('a'));
    expect(created()).toBe(1);
    now += 40_000;
    expect(one.elector.leading).toBe(false);
    await expect(client.create(resources.Pod, pod('a'))).rejects.toThrow(LeadershipLostError);
    expect(created()).toBe(1);
    expect(await one.lost).toBeInstanceOf(LeadershipLostError);
  });

  it('ends the writes that are under way when leadership is lost', async () => {
    const { broken } = await leaseServer();
    const one = candidate('one', { deadline: 2_000 });
    await one.elected;
    const write = expect(fenced(one).create(resources.Pod, pod('slow'))).rejects.toThrow(LeadershipLostError);
    while (created() === 0) await delay(1);
    broken(true);
    await write;
    expect(created()).toBe(1);
  });

  it('a leader renews with one request, and looks again when somebody else has written', async () => {
    const { lease, touch } = await leaseServer();
    const one = candidate('one');
    await one.elected;
    const gets = (): number => server?.requests.filter(({ method }) => method === 'GET').length ?? 0;
    const puts = (): number => server?.requests.filter(({ method }) => method === 'PUT').length ?? 0;
    const before = gets();
    while (puts() < 5) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(gets()).toBe(before);
    touch();
    while (gets() === before) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(one.elector.leading).toBe(true);
    expect(lease()?.spec?.holderIdentity).toBe('one');
  });

  it('looks again when a lease that nobody renews expires, not a period later', async () => {
    await leaseServer(held('other'));
    const one = candidate('one', { lease: 10_000_000, deadline: 9_000_000, retry: 8_000_000 });
    await one.elected;
  });

  it('says why it cannot reach the lease, from the start or for longer than a leader may, and until it reaches it', async () => {
    const { broken } = await leaseServer(held('other'));
    let now = 1_000;
    broken(true);
    const { elector, errors } = candidate('one', { lease: 10_000_000, deadline: 9_000_000, now: () => now });
    expect(elector.unreached).toBe('lease ns/op has not been reached yet');
    while (errors.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(elector.unreached).toMatch(/^lease ns\/op has not been reached yet: .*500/);
    broken(false);
    while (elector.unreached !== undefined) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(elector.leading).toBe(false);
    broken(true);
    const before = errors.length;
    while (errors.length === before) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(elector.unreached).toBeUndefined();
    now += 9_000_001;
    expect(elector.unreached).toMatch(/^lease ns\/op has not been reached for 9000 s: .*500/);
  });

  it('a server that is silent is an error with its address and the time that it had, for whoever waits and for the leader', async () => {
    const { silent } = await leaseServer();
    const leader = candidate('one', { deadline: 6_000 });
    await leader.elected;
    silent();
    const standby = candidate('two', { deadline: 6_000 });
    for (const [{ errors }, method] of [
      [leader, 'PUT'],
      [standby, 'GET'],
    ] as const) {
      const said = new RegExp(`^${method} http://127.0.0.1:.*/leases/op: no answer within 3000 ms$`);
      while (errors.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      expect(errors[0]).toBeInstanceOf(ApiError);
      expect(errors[0]).toMatchObject({ reason: 'Timeout', message: expect.stringMatching(said) });
    }
  });

  it('refuses times that could let two lead', () => {
    const options = {
      client: {} as never,
      namespace: '',
      name: '',
      identity: 'one',
      onElected: () => {},
      onLost: () => {},
    };
    expect(() => new LeaderElector({ ...options, leaseDurationMs: 10, renewDeadlineMs: 10 })).toThrow(
      'renewDeadlineMs',
    );
    expect(() => new LeaderElector({ ...options, identity: '' })).toThrow('needs an identity');
  });
});
