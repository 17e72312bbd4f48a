import { expect, it } from '@jest/globals';
import type { CiliumIdentity, KubeClient } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { identityObject } from '../kubernetes/objects.ts';
import { namespaceRow, podRow } from '../kubernetes/rows.ts';
import { adopted, createTargets } from '../kubernetes/targets.ts';
import { createTables } from '../tables.ts';
import { namespace, pod } from '../testing.ts';
import type { IdentityRow } from '../types.ts';
import { TestModel } from './testing/test-model.ts';

/** CiliumIdentities in the API, and the leaders that write them, one after another. */
class Leaders {
  readonly #api = new Map<number, CiliumIdentity>();
  #seconds = 0;
  #model = this.#start();

  /** A leader that knows what the API holds, and nothing else. `named`: numbers that a slice names. */
  next(named: readonly number[] = []): void {
    this.#model = this.#start(named);
  }

  /** The number of a pod of this app, which goes again. */
  number(app: string): number | undefined {
    this.#model.setPod(podRow(pod('a/p', { app }, { ip: '10.0.0.1', node: 'n1' })));
    const edits = this.#flush();
    this.#model.deletePod('a/p');
    this.#flush();
    return edits.find((row) => row?.labels['k8s:app'] === app)?.id;
  }

  /** Forgets what no pod has; the numbers that are left. */
  collect(): number[] {
    this.#model.collect();
    this.#flush();
    return [...this.#api.keys()];
  }

  remove(id: number): void {
    this.#api.delete(id);
  }

  write(row: IdentityRow): void {
    this.#seconds += 1;
    const { metadata, ...rest } = identityObject(row);
    const creationTimestamp = new Date(1_700_000_000_000 + 1_000 * this.#seconds).toISOString();
    this.#api.set(row.id, {
      ...rest,
      metadata: { ...metadata, creationTimestamp, resourceVersion: `${this.#seconds}` },
    });
  }

  #flush(): (IdentityRow | undefined)[] {
    const edits = this.#model.flush().identities;
    for (const { key, row } of edits) {
      if (row === undefined) this.#api.delete(Number(key));
      else if (!this.#api.has(row.id)) this.write(row);
    }
    return edits.map(({ row }) => row);
  }

  #start(named: readonly number[] = []): TestModel {
    const refused = (): Promise<never> => Promise.reject(new Error('nothing is written here'));
    const client: Pick<KubeClient, 'apply' | 'replace' | 'delete'> = {
      apply: refused,
      replace: refused,
      delete: refused,
    };
    const nothing = (): void => undefined;
    const db = createStateDB();
    const told = { onStatusDrift: nothing, onWrite: nothing };
    const targets = createTargets({ db, client, tables: createTables(db), ...told });
    targets.identities.replace([...this.#api.values()], `${this.#seconds}`);
    const model = new TestModel({ cluster: 'default', identityGraceMs: 0, now: () => 0 });
    const pods = named.map((identity) => ({ name: `p${identity}`, identity, addresses: [] }));
    model.adopt({ ...adopted(targets), slices: [{ name: 's', namespace: 'a', pods }] });
    model.setNamespace(namespaceRow(namespace('a')));
    model.adoptionDone();
    return model;
  }
}

it('a number that was given up is not given again by the next leader, as somebody may still take it for what it was', () => {
  const leaders = new Leaders();
  expect(['x', 'y', 'z'].map((app) => leaders.number(app))).toEqual([256, 257, 258]);
  expect(leaders.collect()).toEqual([258]);
  leaders.next();
  expect(leaders.number('other')).toBe(259);
  expect(leaders.collect()).toEqual([259]);
});

it('nor is one that slices still name, where somebody has deleted all identities while no operator led', () => {
  const leaders = new Leaders();
  expect(['x', 'y'].map((app) => leaders.number(app))).toEqual([256, 257]);
  leaders.remove(256);
  leaders.remove(257);
  leaders.next([256, 257, 70_000, Number.NaN]);
  expect(leaders.number('other')).toBe(258);
});

it('nor when the numbers have begun again from the first', () => {
  const leaders = new Leaders();
  leaders.write({ id: 65_534, labels: { 'k8s:app': 'old' } });
  leaders.next();
  expect(['x', 'y'].map((app) => leaders.number(app))).toEqual([65_535, 256]);
  leaders.remove(65_535);
  leaders.next();
  expect(leaders.number('other')).toBe(257);
});
