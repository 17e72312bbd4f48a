/** What a tenant has to be written does not delay what another has: counted in requests, not in time. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { KubeClient } from '@weir/kube';
import type { ResolvedRule } from '@weir/policy';
import { createStateDB } from '@weir/statedb';
import { kept } from '../../test/memory/kept.ts';
import { createTables, show } from '../tables.ts';
import type { EventRow, IdentityRow, PeerSetRow, ResolvedRow, SliceRow, StatusRow } from '../types.ts';
import { createTargets } from './targets.ts';
import { Writers } from './writers.ts';
import { writtenKinds } from './written-kinds.ts';

/** As many requests are under way, and as many again have a place before the next turn. */
const A_FEW = 2 * 8 + 2;
const MANY = 500;

/** An API server that answers each request one turn of the event loop later. */
class Lab {
  readonly db = createStateDB({ freeze: true });
  readonly tables = createTables(this.db);
  /** Requests in their order: `PeerSet name`. */
  readonly made: string[] = [];
  /** Requests that are answered when these resolve. */
  readonly held = new Map<string, Promise<void>>();
  readonly #running = new Map<string, number>();
  /** Most requests of one kind at once. */
  most = 0;
  readonly #writers: Writers;
  #version = 1;

  constructor() {
    const { db, tables } = this;
    const client: Pick<KubeClient, 'apply' | 'replace' | 'delete'> = {
      apply: async ({ kind }, object) => {
        await this.#request(kind, object.metadata.name);
        this.#version += 1;
        return { ...object, metadata: { ...object.metadata, resourceVersion: String(this.#version) } };
      },
      replace: () => Promise.reject(new Error('nothing is replaced here')),
      delete: async ({ kind }, name) => this.#request(`delete ${kind}`, name),
    };
    const nothing = (): undefined => undefined;
    const shared = { db, client, tables, onWrite: nothing };
    const targets = createTargets({ ...shared, onStatusDrift: nothing });
    for (const name of ['victim/p', ...Array.from({ length: MANY }, (_, n) => `tenant/p${n}`)]) {
      const [namespace = '', policy = ''] = name.split('/');
      const metadata = { namespace, name: policy, uid: name, resourceVersion: '1' };
      targets.statuses.CiliumNetworkPolicy.upsert({
        apiVersion: 'cilium.io/v2',
        kind: 'CiliumNetworkPolicy',
        metadata,
      });
    }
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
      onError: nothing,
    });
    this.#writers.start();
  }

  /** Waits until so many requests more have been made. */
  async after(requests: number): Promise<void> {
    for (const until = this.made.length + requests; this.made.length < until; ) await turn();
  }

  /** How many requests were made from now on before this one. */
  async ahead(request: string): Promise<number> {
    const from = this.made.length;
    while (!this.made.includes(request, from)) await turn();
    return this.made.indexOf(request, from) - from;
  }

  /** Waits until all is written; a deletion that waits for another is tried again until it is made. */
  async settled(): Promise<void> {
    while ((await this.#writers.settled()).size > 0) await turn();
  }

  async stop(): Promise<void> {
    await this.#writers.stop();
  }

  async #request(kind: string, name: string): Promise<void> {
    this.made.push(`${kind} ${name}`);
    const running = (this.#running.get(kind) ?? 0) + 1;
    this.#running.set(kind, running);
    this.most = Math.max(this.most, running);
    await (this.held.get(`${kind} ${name}`) ?? turn());
    this.#running.set(kind, (this.#running.get(kind) ?? 0) - 1);
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const peerSet = (hash: string, identities: readonly number[] = []): PeerSetRow => ({
  name: hash,
  hash,
  selector: { requirements: [] },
  identities,
  slice: 0,
  slices: 1,
});

function policy(namespace: string, name: string, hashes: readonly string[], generation = 1): ResolvedRow {
  const rule = (subject: string, index: number): ResolvedRule => ({
    subject,
    direction: 'ingress',
    verdict: 'allow',
    peers: [],
    defaultDeny: true,
    cookie: index + 1,
    path: `spec.ingress[${index}]`,
  });
  const uid = `${namespace}/${name}`;
  const source = { kind: 'CiliumNetworkPolicy' as const, namespace, name, uid, generation };
  return { name: `cnp-${namespace}.${name}`, source, rules: hashes.map(rule) };
}

const identity = (id: number, namespace: string): IdentityRow => ({
  id,
  labels: { 'k8s:io.kubernetes.pod.namespace': namespace },
});

const slice = (name: string, namespace: string, ids: readonly number[]): SliceRow => ({
  name,
  namespace,
  endpoints: ids.map((id) => ({ name: `p${id}`, id: 0, identity: id, networking: { addressing: [], node: '' } })),
});

const status = (namespace: string, name: string): StatusRow => ({
  key: `cnp/${namespace}/${name}`,
  kind: 'CiliumNetworkPolicy',
  namespace,
  name,
  uid: `${namespace}/${name}`,
  status: { observedGeneration: 1, summary: { nodes: '0/0', endpoints: 0, rules: 0 }, conditions: [] },
});

const event = (namespace: string, name: string): EventRow => {
  const { key, kind, uid } = status(namespace, name);
  const at = '2026-11-21T05:00:00Z';
  const about = { key, kind, uid, namespace, name };
  return {
    key: `event of ${key}`,
    about,
    type: 'Warning',
    reason: 'Invalid',
    message: '',
    count: 1,
    first: at,
    last: at,
  };
};

const all = <T>(make: (n: number) => T): T[] => Array.from({ length: MANY }, (_, n) => make(n));

let lab: Lab;
beforeEach(() => {
  lab = new Lab();
});
afterEach(async () => {
  await lab.settled();
  expect(lab.most).toBeLessThanOrEqual(8);
  await lab.stop();
});

describe('a tenant that has just made very many selectors', () => {
  /** In one policy, or in many. */
  const make = (policies: number): void => {
    const { db, tables } = lab;
    db.write([tables.peerSets, tables.resolved], (txn) => {
      for (const hash of all((n) => `t${n}`)) show(txn, tables.peerSets, peerSet(hash));
      const share = MANY / policies;
      for (let n = 0; n < policies; n += 1) {
        const hashes = Array.from({ length: share }, (_, each) => `t${n * share + each}`);
        show(txn, tables.resolved, policy('tenant', `p${n}`, hashes));
      }
    });
  };
  const victim = (hashes: readonly string[]): void => {
    const { db, tables } = lab;
    db.write([tables.peerSets, tables.resolved], (txn) => {
      for (const hash of hashes) show(txn, tables.peerSets, peerSet(hash));
      show(txn, tables.resolved, policy('victim', 'p', hashes));
    });
  };

  it.each([1, 20])('in %d policies: a new policy of another waits for few of them', async (policies) => {
    make(policies);
    await lab.after(20);
    victim(['v']);
    expect(await lab.ahead('ResolvedPolicy cnp-victim.p')).toBeLessThanOrEqual(2 * A_FEW);
  });

  it('waits for its own alone where it names one of them', async () => {
    make(1);
    await lab.after(20);
    victim(['v', `t${MANY - 1}`]);
    expect(await lab.ahead('ResolvedPolicy cnp-victim.p')).toBeLessThanOrEqual(2 * A_FEW);
  });

  it('and takes all of them back: a new policy of another waits for few deletions', async () => {
    make(20);
    await lab.settled();
    const { db, tables } = lab;
    db.write([tables.peerSets, tables.resolved], (txn) => {
      for (const { row } of txn.all(tables.peerSets)) txn.delete(tables.peerSets, row.name);
      for (const { row } of txn.all(tables.resolved)) txn.delete(tables.resolved, row.name);
    });
    await lab.after(20);
    victim(['v']);
    expect(await lab.ahead('ResolvedPolicy cnp-victim.p')).toBeLessThanOrEqual(2 * A_FEW);
  });

  it('and whose lists all change: its own new set goes before them', async () => {
    make(1);
    await lab.settled();
    const { db, tables } = lab;
    db.write([tables.peerSets], (txn) => {
      for (const hash of all((n) => `t${n}`)) show(txn, tables.peerSets, peerSet(hash, [1]));
    });
    await lab.after(20);
    db.write([tables.peerSets, tables.resolved], (txn) => {
      show(txn, tables.peerSets, peerSet('new'));
      show(txn, tables.resolved, policy('tenant', 'q', ['new']));
    });
    expect(await lab.ahead('ResolvedPolicy cnp-tenant.q')).toBeLessThanOrEqual(2 * A_FEW);
  });
});

it('a tenant with very many new identities and slices delays a new pod of another by few of them', async () => {
  const { db, tables } = lab;
  db.write([tables.identities, tables.slices], (txn) => {
    for (const id of all((n) => 300 + n)) show(txn, tables.identities, identity(id, 'tenant'));
    for (let n = 0; n < MANY / 10; n += 1) {
      const ids = Array.from({ length: 10 }, (_, each) => 300 + 10 * n + each);
      show(txn, tables.slices, slice(`ces-tenant-${n}`, 'tenant', ids));
    }
  });
  await lab.after(20);
  db.write([tables.identities, tables.slices], (txn) => {
    show(txn, tables.identities, identity(9_000, 'victim'));
    show(txn, tables.slices, slice('ces-victim-0', 'victim', [9_000]));
  });
  const ahead = lab.ahead('CiliumEndpointSlice ces-victim-0');
  await lab.ahead('CiliumIdentity 9000');
  // Rounds of slices are paced.
  const identities = lab.made.filter((request) => request.startsWith('CiliumIdentity')).length;
  expect(identities).toBeLessThanOrEqual(20 + A_FEW);
  await ahead;
});

it('nothing is kept of who asked for a request that was under way already', async () => {
  const asked = (): number => kept({ lab }, new Set())['Places.#asked'] ?? 0;
  const { db, tables } = lab;
  const { promise, resolve } = Promise.withResolvers<void>();
  lab.held.set('PeerSet shared', promise);
  const made = lab.ahead('PeerSet shared');
  db.write([tables.peerSets], (txn) => show(txn, tables.peerSets, peerSet('shared')));
  await made;
  db.write([tables.resolved], (txn) => show(txn, tables.resolved, policy('victim', 'p', ['shared'])));
  while (asked() === 0) await turn();
  resolve();
  await lab.settled();
  expect(asked()).toBe(0);
});

it('a slice waits for an identity that is on its way out and is wanted again', async () => {
  const { db, tables } = lab;
  const want = (id: number): void =>
    db.write([tables.identities, tables.slices], (txn) => {
      for (const { row } of txn.all(tables.identities)) txn.delete(tables.identities, String(row.id));
      show(txn, tables.identities, identity(id, 'a'));
      show(txn, tables.slices, slice('ces-a-0', 'a', [id]));
    });
  want(300);
  await lab.settled();
  const { promise, resolve } = Promise.withResolvers<void>();
  lab.held.set('delete CiliumIdentity 300', promise);
  want(301);
  await lab.ahead('delete CiliumIdentity 300');
  want(300);
  // Another that waits for nobody, and what follows it.
  db.write([tables.identities, tables.slices], (txn) => {
    show(txn, tables.identities, identity(302, 'b'));
    show(txn, tables.slices, slice('ces-b-0', 'b', [302]));
  });
  await lab.ahead('CiliumEndpointSlice ces-b-0');
  const from = lab.made.length;
  resolve();
  await lab.settled();
  expect(lab.made.slice(from)).toEqual([
    'CiliumIdentity 300',
    'CiliumEndpointSlice ces-a-0',
    'delete CiliumIdentity 301',
  ]);
});

it('a tenant with very many new statuses and events delays a status of another by few of them', async () => {
  const { db, tables } = lab;
  db.write([tables.statuses, tables.events], (txn) => {
    for (const name of all((n) => `p${n}`)) {
      show(txn, tables.events, event('tenant', name));
      show(txn, tables.statuses, status('tenant', name));
    }
  });
  await lab.after(20);
  db.write([tables.statuses, tables.events], (txn) => {
    show(txn, tables.events, event('victim', 'p'));
    show(txn, tables.statuses, status('victim', 'p'));
  });
  expect(await lab.ahead('CiliumNetworkPolicy p')).toBeLessThanOrEqual(3 * A_FEW);
});
