/** Of policies that ask for more than one may, what they ask for is kept, and nothing of their rules: not even while all of them are listed. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { type KubeClient, type KubeObject, type Resource, resources } from '@weir/kube';
import { createStateDB, type Table } from '@weir/statedb';
import { eventually } from '../../test/eventually.ts';
import { NO_LIMITS } from '../limits.ts';
import { TestModel } from '../model/testing/test-model.ts';
import { createTables } from '../tables.ts';
import { cnp, namespace } from '../testing.ts';
import type { PolicyRow } from '../types.ts';
import { Inputs } from './inputs.ts';
import { namespaceRow, policyRow } from './rows.ts';
import { policySources, reportSources, workloadSources } from './sources.ts';
import type { Stored } from './target.ts';
import { createTargets, targetSources } from './targets.ts';

const LIMITS = { ...NO_LIMITS, rulesPerPolicy: 100 };
const RULES = 20_000;

function policy(name: string, rules: number, generation = 1, version = 1): KubeObject {
  const object = cnp(`tenant/${name}`, { endpointSelector: {}, ingress: Array.from({ length: rules }, () => ({})) });
  const annotations = { note: 'x'.repeat(10_000) };
  return {
    ...object,
    metadata: { ...object.metadata, uid: name, generation, resourceVersion: String(version), annotations },
  };
}

/** An API server that has policies, and tells of changes by `event`. */
class Server {
  readonly policies: KubeObject[] = [];
  readonly pages: number[] = [];
  #event = Promise.withResolvers<KubeObject>();

  event(object: KubeObject): void {
    this.#event.resolve(object);
  }

  readonly client = {
    listPage: async (resource: Resource<KubeObject>, options: { limit: number; continueToken?: string }) => {
      if (resource.plural !== resources.CiliumNetworkPolicy.plural) return { items: [], resourceVersion: '1' };
      const from = Number(options.continueToken ?? 0);
      const end = from + options.limit;
      this.pages.push(options.limit);
      const continueToken = end < this.policies.length ? { continueToken: `${end}` } : {};
      return { items: structuredClone(this.policies.slice(from, end)), resourceVersion: '1', ...continueToken };
    },
    watch: (resource: Resource<KubeObject>, { signal }: Parameters<KubeClient['watch']>[1]) =>
      this.#watch(resource, signal),
    apply: async (_resource: Resource<KubeObject>, object: KubeObject) => {
      const whole = this.policies.find(({ metadata: { name } }) => name === object.metadata.name);
      return { ...structuredClone(whole), ...object, metadata: { ...whole?.metadata, resourceVersion: '7' } };
    },
  } as unknown as KubeClient;

  async *#watch({ plural }: Resource<KubeObject>, signal: AbortSignal | undefined): AsyncGenerator<unknown> {
    const ended = new Promise<undefined>((resolve) => signal?.addEventListener('abort', () => resolve(undefined)));
    const isOurs = plural === resources.CiliumNetworkPolicy.plural;
    for (;;) {
      const object = await (isOurs ? Promise.race([ended, this.#event.promise]) : ended);
      if (object === undefined) return;
      this.#event = Promise.withResolvers();
      yield { type: 'MODIFIED', object };
    }
  }
}

let server: Server;
let db: ReturnType<typeof createStateDB>;
let tables: ReturnType<typeof createTables>;
let targets: ReturnType<typeof createTargets>;
let inputs: Inputs;

beforeEach(() => {
  server = new Server();
  db = createStateDB({ freeze: true });
  tables = createTables(db);
  const nothing = (): undefined => undefined;
  const { client } = server;
  targets = createTargets({ db, client, tables, onStatusDrift: nothing, onWrite: nothing });
  const into = { db, tables, onBad: nothing, onMissing: nothing, limits: LIMITS };
  const sources = [...targetSources(targets), ...policySources(into), ...workloadSources(into), ...reportSources(into)];
  inputs = new Inputs({ client, db, table: tables.inputSources, sources: () => sources, onError: nothing });
});
afterEach(() => inputs.stop());

function rows<T>(name: string): T[] {
  using snapshot = db.read();
  return [...snapshot.all(db.tables().find((each) => each.name === name)?.table as Table<T>)];
}

const sizeOf = (value: unknown): number =>
  JSON.stringify(value, (_, part) => (typeof part === 'bigint' ? 0 : part)).length;
const rowOf = (name: string): PolicyRow | undefined =>
  rows<PolicyRow>('policies').find(({ key }) => key === `cnp/tenant/${name}`);

function conditionsOf(row: PolicyRow): unknown {
  const model = new TestModel({ cluster: 'default', identityGraceMs: 0, now: () => 0, policyLimits: LIMITS });
  model.setNamespace(namespaceRow(namespace('tenant')));
  model.setPolicy(row);
  return model.flush().statuses.map((edit) => edit.row?.status.conditions);
}

describe('policies that ask for more than one may', () => {
  it('are kept in a few hundred bytes each, are listed few at a time, and say what they need as before', async () => {
    for (let n = 0; n < 25; n += 1) server.policies.push(policy(`p${n}`, RULES));
    await inputs.start();
    for (const row of [...rows<PolicyRow>('policies'), ...rows<Stored<unknown>>('storedCiliumNetworkPolicyStatus')])
      expect(sizeOf(row)).toBeLessThan(500);
    expect(rows('policies')).toHaveLength(25);
    expect(server.pages).toEqual([10, 10, 10]);
    const [whole, row] = [policyRow(policy('p0', RULES), 'CiliumNetworkPolicy'), rowOf('p0')];
    if (row === undefined) throw new Error('there is no row');
    expect(conditionsOf(row)).toEqual(conditionsOf(whole));
    expect(JSON.stringify(conditionsOf(row))).toContain('the policy needs 20000 rules, and one may need 100');
  });

  it('nor does the answer to a write of their status bring their rules back', async () => {
    server.policies.push(policy('p', RULES));
    await inputs.start();
    const { apiVersion, kind, metadata } = policy('p', 0);
    const { name, namespace: where = '' } = metadata;
    const status = { observedGeneration: 1, conditions: [] };
    await targets.statuses.CiliumNetworkPolicy.apply({
      ...{ apiVersion, kind, metadata: { name, namespace: where, uid: 'p' } },
      status: status as never,
    });
    const [stored] = rows<Stored<{ readonly status: unknown }>>('storedCiliumNetworkPolicyStatus');
    expect(stored?.object.status).toEqual(status);
    expect(sizeOf(stored)).toBeLessThan(500);
  });

  it('are counted once a generation; one that asks for less is kept whole', async () => {
    server.policies.push(policy('p', RULES), policy('q', 3));
    await inputs.start();
    const first = rowOf('p')?.demand;
    expect(sizeOf(rowOf('q')?.object)).toBeGreaterThan(sizeOf(rowOf('p')?.object));
    // Without a generation of its own nobody looks at what it asks for again.
    server.event(policy('p', 3, 1, 2));
    await eventually(
      async () => rows<Stored<unknown>>('storedCiliumNetworkPolicyStatus').map(({ version }) => version),
      (versions) => versions.includes(2n),
      5,
    );
    expect(rowOf('p')?.demand).toBe(first);
    server.event(policy('p', RULES, 2, 3));
    await eventually(
      async () => rowOf('p')?.generation,
      (generation) => generation === 2,
      5,
    );
    expect(rowOf('p')?.demand).not.toBe(first);
    expect(rowOf('p')?.demand).toEqual({ selectors: 1, rules: RULES, entries: RULES });
    server.event(policy('p', 2, 3, 4));
    await eventually(
      async () => rowOf('p')?.generation,
      (generation) => generation === 3,
      5,
    );
    expect(rowOf('p')?.object).toMatchObject({ spec: { ingress: [{}, {}] } });
  });
});
