import { setImmediate } from 'node:timers/promises';
import { afterEach, expect, it } from '@jest/globals';
import { ApiError, type KubeClient, type KubeObject, type ResolvedPolicyObject } from '@weir/kube';
import type { ResolvedRule } from '@weir/policy';
import type { Clock } from '@weir/reconciler';
import { createStateDB } from '@weir/statedb';
import { DependencyError } from '../errors.ts';
import { peerSetName } from '../names.ts';
import { createTables, show } from '../tables.ts';
import type { PeerSetRow, ResolvedRow } from '../types.ts';
import { peerSetObject, resolvedObject } from './objects.ts';
import { createTargets } from './targets.ts';
import { isOrdinaryWait } from './waits.ts';
import { Writers } from './writers.ts';
import { writtenKinds } from './written-kinds.ts';

type Fate = 'ok' | 'lost';

/** An API server that answers when it is told to, and the writers on it. Retries come at once. */
class Lab {
  /** What the API holds: the names of peer sets, and the peer sets that each ResolvedPolicy names. */
  readonly sets = new Set<string>();
  readonly policies = new Map<string, readonly string[]>();
  /** ResolvedPolicies that named, at some moment, a peer set that was not there. */
  readonly broken: string[] = [];
  readonly failures: { readonly error: Error; readonly failingMs: number }[] = [];
  readonly #waiting = new Map<string, ((fate: Fate) => void)[]>();
  readonly #db = createStateDB({ freeze: true });
  readonly #tables = createTables(this.#db);
  readonly #writers: Writers;
  readonly #complete = this.#db.initialiser(this.#tables.peerSets, 'lab');
  #version = 1;

  /** `left`: what an earlier leader has written. */
  constructor(left: { readonly sets: readonly PeerSetRow[]; readonly policies: readonly ResolvedRow[] } = NOTHING) {
    const client: Pick<KubeClient, 'apply' | 'replace' | 'delete'> = {
      apply: ({ kind }, object) =>
        this.#request(`apply ${kind} ${object.metadata.name}`, () => this.#put(kind, object)),
      replace: () => Promise.reject(new Error('nothing is replaced here')),
      delete: ({ kind }, name) =>
        this.#request(`delete ${kind} ${name}`, () => {
          if (kind === 'PeerSet') this.sets.delete(name);
          else this.policies.delete(name);
        }),
    };
    const [db, tables, nothing] = [this.#db, this.#tables, () => undefined];
    const shared = { db, client, tables, onWrite: nothing };
    const targets = createTargets({ ...shared, onStatusDrift: nothing });
    targets.peerSets.replace(
      left.sets.map((row) => this.#put('PeerSet', peerSetObject(row))),
      '1',
    );
    targets.resolved.replace(
      left.policies.map((row) => this.#put('ResolvedPolicy', resolvedObject(row))),
      '1',
    );
    const kinds = writtenKinds({
      ...shared,
      targets,
      attempted: (...rows) => this.#writers.attempted(...rows),
      onStatus: nothing,
    });
    this.#writers = new Writers({
      client: {},
      db,
      kinds,
      // Every request is answered in the end.
      timing: { clock: impatient(), random: () => 0.5, stopGraceMs: 10_000 },
      onError: (_writer, _key, error, _retries, failingMs) => this.failures.push({ error, failingMs }),
    });
    this.#writers.start();
  }

  /** Requests that wait for their answer. */
  get waiting(): string[] {
    return [...this.#waiting].flatMap(([what, list]) => list.map(() => what));
  }

  /** What is desired, all of it: peer sets, and what policy `p` names in which generation; `undefined`: there is no policy. */
  want(sets: readonly string[], generation: number, named: readonly string[] | undefined): void {
    const { peerSets, resolved } = this.#tables;
    this.#db.write([peerSets, resolved], (txn) => {
      for (const { row } of txn.all(peerSets)) if (!sets.includes(row.hash)) txn.delete(peerSets, row.name);
      for (const hash of sets) show(txn, peerSets, peerSet(hash, 0, 1));
      if (named === undefined) txn.delete(resolved, 'cnp-p');
      else show(txn, resolved, policy(generation, named));
      this.#complete(txn);
    });
  }

  /** Answers the request once it has been made. */
  async answer(what: string, fate: Fate = 'ok'): Promise<void> {
    for (let turn = 0; !this.#waiting.has(what); turn += 1) {
      if (turn === 1_000) throw new Error(`nobody asks to ${what}, but: ${this.waiting.join(', ')}`);
      await setImmediate();
    }
    const [answer, ...others] = this.#waiting.get(what) ?? [];
    if (others.length > 0) this.#waiting.set(what, others);
    else this.#waiting.delete(what);
    answer?.(fate);
    await this.calm();
  }

  /** Whoever has something to do has done it. */
  async calm(): Promise<void> {
    for (let turn = 0; turn < 30; turn += 1) await setImmediate();
  }

  async stop(): Promise<void> {
    let stopped = false;
    const stopping = this.#writers.stop().finally(() => {
      stopped = true;
    });
    while (!stopped) {
      for (const what of this.waiting) await this.answer(what);
      await setImmediate();
    }
    await stopping;
  }

  #request<T>(what: string, run: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const answer = (fate: Fate): void => {
        const result = run();
        for (const [name, hashes] of this.policies)
          if (hashes.some((hash) => !this.sets.has(hash))) this.broken.push(`${name} after ${what}`);
        if (fate === 'ok') resolve(result);
        else reject(new ApiError('the answer is lost', { status: 503, reason: 'ServiceUnavailable' }));
      };
      this.#waiting.set(what, [...(this.#waiting.get(what) ?? []), answer]);
    });
  }

  #put<T extends KubeObject>(kind: string, object: T): T {
    this.#version += 1;
    if (kind === 'PeerSet') this.sets.add(object.metadata.name);
    else {
      const { spec } = object as unknown as ResolvedPolicyObject;
      this.policies.set(
        object.metadata.name,
        spec.rules.map(({ subject }) => subject),
      );
    }
    return { ...object, metadata: { ...object.metadata, resourceVersion: String(this.#version) } };
  }
}

/** Time passes as soon as nobody has anything else to do; what takes longer than a retry never comes. */
function impatient(): Clock {
  let now = 0;
  return {
    now: () => now,
    after: (ms, action) => {
      if (ms > 5_000) return () => undefined;
      const at = now + ms;
      const immediate = global.setImmediate(() => {
        now = Math.max(now, at);
        action();
      });
      return () => clearImmediate(immediate);
    },
  };
}

function peerSet(hash: string, slice: number, slices: number): PeerSetRow {
  return { name: peerSetName(hash, slice), hash, selector: { requirements: [] }, identities: [], slice, slices };
}

function policy(generation: number, named: readonly string[]): ResolvedRow {
  const rule = (subject: string, index: number): ResolvedRule => ({
    subject,
    direction: 'ingress',
    verdict: 'allow',
    peers: [],
    defaultDeny: true,
    cookie: index + 1,
    path: `spec.ingress[${index}]`,
  });
  const source = { kind: 'CiliumNetworkPolicy' as const, namespace: 'ns', name: 'p', uid: 'u', generation };
  return { name: 'cnp-p', source, rules: named.map(rule) };
}

const NOTHING = { sets: [], policies: [] };

let lab: Lab;
afterEach(() => lab.stop());

const APPLY = 'apply ResolvedPolicy cnp-p';

it('a peer set stays while a policy that names it is on its way to the API', async () => {
  lab = new Lab();
  lab.want(['a', 'b'], 1, ['a', 'b']);
  await lab.answer('apply PeerSet a');
  await lab.answer('apply PeerSet b');
  expect(lab.waiting).toEqual([APPLY]);
  lab.want(['a'], 2, ['a']);
  await lab.calm();
  expect(lab.waiting).toEqual([APPLY]);
  await lab.answer(APPLY);
  expect(lab.waiting).toEqual([APPLY]);
  await lab.answer(APPLY);
  await lab.answer('delete PeerSet b');
  expect([...lab.sets]).toEqual(['a']);
  expect(lab.broken).toEqual([]);
});

it('a peer set stays while the API may hold a policy that names it, as the answer to its write was lost', async () => {
  lab = new Lab();
  lab.want(['a', 'b'], 1, ['a', 'b']);
  await lab.answer('apply PeerSet a');
  await lab.answer('apply PeerSet b');
  lab.want(['a'], 2, ['a']);
  await lab.answer(APPLY, 'lost');
  expect(lab.waiting).toEqual([APPLY]);
  await lab.answer(APPLY);
  await lab.answer('delete PeerSet b');
  expect(lab.broken).toEqual([]);
});

it('a policy goes before its peer sets, also one that the API may hold, as the answer to its only write was lost', async () => {
  lab = new Lab();
  lab.want(['a'], 1, ['a']);
  await lab.answer('apply PeerSet a');
  lab.want([], 2, undefined);
  await lab.answer(APPLY, 'lost');
  await lab.answer('delete ResolvedPolicy cnp-p');
  await lab.answer('delete PeerSet a');
  expect(lab.policies.size + lab.sets.size).toBe(0);
  expect(lab.broken).toEqual([]);
});

it('a slice that a leader left, which died while the set shrank, goes though a policy names the set', async () => {
  lab = new Lab({ sets: [peerSet('a', 0, 2), peerSet('a', 1, 2)], policies: [policy(1, ['a'])] });
  lab.want(['a'], 1, ['a']);
  await lab.calm();
  expect(lab.waiting).toEqual(['apply PeerSet a']);
  await lab.answer('apply PeerSet a');
  await lab.answer('delete PeerSet a-1');
  expect([...lab.sets]).toEqual(['a']);
  expect(lab.failures).toEqual([]);
});

it('a generation that is no more desired is not written once its peer sets have gone', async () => {
  lab = new Lab();
  lab.want(['a', 'b'], 1, ['a', 'b']);
  await lab.answer('apply PeerSet a');
  lab.want(['a'], 2, ['a']);
  await lab.answer('apply PeerSet b');
  while (lab.waiting.length > 0) await lab.answer(lab.waiting.at(-1) ?? '');
  expect([...lab.sets]).toEqual(['a']);
  expect(lab.policies.get('cnp-p')).toEqual(['a']);
  expect(lab.broken).toEqual([]);
});

it('a policy whose peer sets are there waits for no others', async () => {
  lab = new Lab();
  lab.want(['a'], 1, ['a']);
  await lab.answer('apply PeerSet a');
  await lab.answer(APPLY);
  lab.want(['a', 'of', 'others'], 2, ['a']);
  await lab.calm();
  expect(lab.waiting.sort()).toEqual(['apply PeerSet of', 'apply PeerSet others', APPLY]);
});

it('a peer set that is on its way out is made again before a policy that names it anew', async () => {
  lab = new Lab();
  lab.want(['a', 'b'], 1, ['a', 'b']);
  await lab.answer('apply PeerSet a');
  await lab.answer('apply PeerSet b');
  await lab.answer(APPLY);
  lab.want(['a'], 2, ['a']);
  await lab.answer(APPLY);
  await lab.calm();
  expect(lab.waiting).toEqual(['delete PeerSet b']);
  lab.want(['a', 'b'], 3, ['a', 'b']);
  await lab.calm();
  await lab.answer('delete PeerSet b');
  expect(lab.waiting).toEqual(['apply PeerSet b']);
  await lab.answer('apply PeerSet b');
  await lab.answer(APPLY);
  expect([...lab.sets].sort()).toEqual(['a', 'b']);
  expect(lab.policies.get('cnp-p')).toEqual(['a', 'b']);
  expect(lab.broken).toEqual([]);
});

it('a peer set waits in silence for the policy that names it, and is told of when that lasts', async () => {
  lab = new Lab();
  lab.want(['a', 'b'], 1, ['a', 'b']);
  await lab.answer('apply PeerSet a');
  await lab.answer('apply PeerSet b');
  lab.want(['a'], 2, ['a']);
  while (!lab.failures.some(({ failingMs }) => failingMs > 120_000)) await lab.calm();
  const loud = lab.failures.filter(({ error, failingMs }) => !isOrdinaryWait(error, failingMs));
  expect(loud.length).toBeGreaterThan(0);
  expect(Math.min(...loud.map(({ failingMs }) => failingMs))).toBeGreaterThanOrEqual(60_000);
  // Many attempts in a short time are no reason.
  expect(lab.failures.length - loud.length).toBeGreaterThan(10);
  await lab.answer(APPLY);
});

it('only what another write or another hand mends is an ordinary wait', () => {
  const refused = (status: number, reason: string): ApiError => new ApiError('no', { status, reason });
  expect(isOrdinaryWait(refused(409, 'Conflict'), 59_999)).toBe(true);
  expect(isOrdinaryWait(refused(409, 'Conflict'), 60_000)).toBe(false);
  expect(isOrdinaryWait(refused(403, 'Forbidden'), 0)).toBe(false);
});

it('what waits for a writer that is stopped has not failed', async () => {
  const sets = Array.from({ length: 10 }, (_, each) => `s${each}`);
  lab = new Lab();
  lab.want(sets, 1, ['s9']);
  await lab.calm();
  // Two sets are not asked for yet, and never will be; the policy waits for one of them.
  expect(lab.waiting).toHaveLength(8);
  await lab.stop();
  expect(lab.failures).toEqual(Array(3).fill({ error: expect.any(DependencyError), failingMs: 0 }));
  expect(lab.policies.size).toBe(0);
});
