import { describe, expect, it } from '@jest/globals';
import type { Condition, PolicyStatus } from '@weir/kube';
import { createStateDB, type WriteTxn } from '@weir/statedb';
import { eventObject } from '../kubernetes/objects.ts';
import { createTables } from '../tables.ts';
import type { EventRow, PolicyObjectKind, StatusRow } from '../types.ts';
import { EventBook } from './events.ts';
import { statusTables } from './status-tables.ts';

const NOW = 1_700_000_000_000;

type Said = readonly [Condition['type'], Condition['status'], string, string?];

const status = (generation: number, ...said: readonly Said[]): PolicyStatus => ({
  observedGeneration: generation,
  summary: { nodes: '0/0', endpoints: 0, rules: 0 },
  conditions: said.map(([type, value, reason, message = 'm']) => ({
    type,
    status: value,
    reason,
    message,
    observedGeneration: generation,
    lastTransitionTime: '2026-01-01T00:00:00Z',
  })),
});

const row = (of: PolicyStatus, kind: PolicyObjectKind = 'CiliumNetworkPolicy', uid = 'u'): StatusRow => ({
  key: 'cnp/a/web',
  kind,
  namespace: 'a',
  name: 'web',
  uid,
  status: of,
});

interface Told {
  readonly key: string;
  readonly row: EventRow | undefined;
}

/** A book, and what it has changed in the desired table since the last look. */
class Book {
  readonly #db = createStateDB({ freeze: true });
  readonly #tables = { ...createTables(this.#db), ...statusTables(this.#db) };
  readonly #book = new EventBook(this.#tables);
  readonly #told = this.#db.changes(this.#tables.events);

  note(before: PolicyStatus | undefined, after: StatusRow, now: number): void {
    this.#write((txn) => this.#book.note(txn, before, after, now));
  }

  forget(policy: string): void {
    this.#write((txn) => this.#book.forget(txn, policy));
  }

  drain(now: number): Told[] {
    this.#write((txn) => this.#book.tellDue(txn, now));
    return this.#told.next().map(({ row: desired, deleted }) => ({
      key: desired.row.key,
      row: deleted ? undefined : desired.row,
    }));
  }

  dueInMs(now: number): number | undefined {
    using snapshot = this.#db.read();
    return this.#book.dueInMs(snapshot, now);
  }

  #write(act: (txn: WriteTxn) => void): void {
    this.#db.write([this.#tables.events, this.#tables.toldEvents], act);
  }
}

/** What is told of a history of statuses, all at one instant. */
const told = (history: readonly PolicyStatus[], kind?: PolicyObjectKind): string[] => {
  const book = new Book();
  let before: PolicyStatus | undefined;
  return history.flatMap((after) => {
    book.note(before, row(after, kind), NOW);
    before = after;
    return book.drain(NOW).map((edit) => `${edit.row?.type} ${edit.row?.reason} ${edit.row?.message}`);
  });
};

describe('EventBook', () => {
  it('tells failures, each when the answer changes', () => {
    const bad = (generation: number, message: string) => status(generation, ['Valid', 'False', 'InvalidSpec', message]);
    expect(told([bad(1, 'x'), bad(1, 'x')])).toEqual(['Warning InvalidSpec x']);
    const failed = status(
      1,
      ['Valid', 'True', 'Valid'],
      ['ResolvedRefs', 'False', 'PortNameNotFound', 'no http'],
      ['Programmed', 'False', 'NodeFailed', 'n1: broken'],
      ['Ready', 'False', 'PortNameNotFound', 'no http'],
    );
    expect(told([failed])).toEqual(['Warning PortNameNotFound no http', 'Warning NodeFailed n1: broken']);
  });

  it('progress and success are told of NetworkPolicies alone, and only success', () => {
    const history = [
      status(1, ['Programmed', 'False', 'Progressing']),
      status(1, ['Programmed', 'True', 'Programmed', 'one node']),
      status(1, ['Programmed', 'True', 'Programmed', 'two nodes']),
      status(2, ['Programmed', 'False', 'Progressing']),
      status(2, ['Programmed', 'False', 'Invalid']),
    ];
    expect(told(history)).toEqual([]);
    expect(told(history, 'NetworkPolicy')).toEqual(['Normal Programmed one node']);
    const nobody = status(
      1,
      ['Valid', 'True', 'Valid', 'The policy is valid. Warning: spec.egress[0]: look here'],
      ['Programmed', 'True', 'NoMatchingEndpoints', 'no pod.'],
    );
    expect(told([nobody])).toEqual([]);
    expect(told([nobody], 'NetworkPolicy')).toEqual([
      'Normal NoMatchingEndpoints no pod. Warning: spec.egress[0]: look here',
    ]);
  });

  it('one Event for each reason: what comes often is told once in ten seconds, with its count, and is never lost', () => {
    const book = new Book();
    const drained: EventRow[] = [];
    const drain = (at: number): void => {
      drained.push(...book.drain(at).flatMap((edit) => (edit.row === undefined ? [] : [edit.row])));
    };
    let before: PolicyStatus | undefined;
    for (let i = 0; i < 25; i += 1) {
      const after = status(i, ['Programmed', 'False', 'NodeFailed', `message ${i}`]);
      book.note(before, row(after), NOW + i * 1_000);
      before = after;
      drain(NOW + i * 1_000);
    }
    expect(drained.map(({ count, message }) => `${count} ${message}`)).toEqual([
      '1 message 0',
      '11 message 10',
      '21 message 20',
    ]);
    expect(book.dueInMs(NOW + 24_000)).toBe(6_000);
    drain(NOW + 30_000);
    expect(drained.at(-1)).toMatchObject({ count: 25, first: '2023-11-14T22:13:20Z', last: '2023-11-14T22:13:44Z' });
    expect(book.dueInMs(NOW + 30_000)).toBeUndefined();
    expect(new Set(drained.map((event) => eventObject(event).metadata.name)).size).toBe(1);
  });

  it('a clock that was set back holds nothing back for long', () => {
    const book = new Book();
    const bad = (generation: number) => row(status(generation, ['Valid', 'False', 'InvalidSpec']));
    book.note(undefined, bad(1), NOW);
    book.note(bad(1).status, bad(2), NOW + 1_000);
    expect(book.drain(NOW - 3_600_000).at(-1)?.row?.count).toBe(2);
    book.note(bad(2).status, bad(3), NOW - 7_200_000);
    expect(book.dueInMs(NOW - 7_200_000)).toBe(10_000);
    expect(book.drain(NOW - 7_200_000)).toEqual([]);
    expect(book.drain(NOW - 7_190_000).at(-1)?.row?.count).toBe(3);
  });

  it('another policy of the name has Events of its own, and a policy that is gone leaves none behind', () => {
    const book = new Book();
    const bad = status(1, ['Valid', 'False', 'InvalidSpec']);
    book.note(undefined, row(bad), NOW);
    const [first] = book.drain(NOW);
    book.note(undefined, row(bad, 'CiliumNetworkPolicy', 'v'), NOW);
    const edits = book.drain(NOW);
    expect(edits[0]).toEqual({ key: first?.key, row: undefined });
    expect(edits[1]?.row).toMatchObject({ count: 1, about: { uid: 'v' } });
    book.forget('cnp/a/web');
    expect(book.drain(NOW)).toEqual([{ key: edits[1]?.key, row: undefined }]);
  });

  it('is an object that the API server takes: in the namespace of the policy, or in default', () => {
    const event = (more: Partial<EventRow['about']>): EventRow => ({
      key: 'k',
      about: { key: 'p', kind: 'CiliumNetworkPolicy', name: `${'x'.repeat(240)}.y`, uid: 'u', ...more },
      type: 'Warning',
      reason: 'InvalidSpec',
      message: 'm',
      count: 2,
      first: '2026-01-01T00:00:00Z',
      last: '2026-01-01T00:00:01Z',
    });
    const namespaced = eventObject(event({ namespace: 'a', kind: 'NetworkPolicy' }));
    expect(namespaced).toMatchObject({
      metadata: { namespace: 'a' },
      involvedObject: { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', namespace: 'a', uid: 'u' },
    });
    expect(namespaced.metadata.name.length).toBeLessThanOrEqual(253);
    const wide = eventObject(event({ kind: 'CiliumClusterwideNetworkPolicy' }));
    expect(wide.metadata.namespace).toBe('default');
    expect(wide.involvedObject).not.toHaveProperty('namespace');
  });
});
