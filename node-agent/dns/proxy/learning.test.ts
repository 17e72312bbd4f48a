/** What the proxy asks of the agent: an identity of each set of selectors that addresses have, however they came to have it. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import type { FromProxy, ToProxy } from '../protocol.ts';
import { Conversation } from './conversation.ts';
import { Learning } from './learning.ts';
import { Names } from './names.ts';
import { Rules } from './rules.ts';
import { createTables } from './tables.ts';

const ADDRESS = '192.0.2.1';

class Fixture {
  readonly told: FromProxy[] = [];
  readonly rows = new Map<string, number>();
  readonly learning: Learning;
  readonly #conversation: Conversation;

  constructor(waitMs = 200) {
    const db = createStateDB({ freeze: true });
    const tables = createTables(db);
    const names = new Names({
      ...{ db, tables, minTtl: 0, mostAddresses: 9, mostOfEndpoint: 9, mostInAll: 9 },
      rows: {
        set: (address, identity) => this.rows.set(address, identity) === this.rows,
        delete: (address) => this.rows.delete(address),
      },
      tell: () => undefined,
      onCut: () => undefined,
      onLacking: (address) => this.learning.lacks(address),
    });
    this.learning = new Learning({ names, tell: (message) => this.told.push(message), connected: () => true, waitMs });
    const rules = new Rules({ db, tables, names });
    this.#conversation = new Conversation({ rules, names, learning: this.learning, keep: () => undefined });
  }

  /** All of one turn of the event loop, and what follows from it. */
  async hear(...messages: readonly ToProxy[]): Promise<void> {
    for (const message of messages) await this.#conversation.receive(message);
    await new Promise((resolve) => setImmediate(resolve));
  }

  greet(): readonly FromProxy[] {
    return [...this.#conversation.greeting()];
  }

  answer(name: string): Promise<void> | undefined {
    return this.learning.learn(1, name, [{ address: ADDRESS, ttl: 60 }]);
  }

  /** Sets that the agent was asked for since the last look. */
  wanted(): unknown[] {
    return this.told.splice(0).map((message) => (message.type === 'wanted' ? message.selectors : message));
  }
}

const selector = (number: number, pattern: string): ToProxy => ({ type: 'selector', selector: number, pattern });
const identity = (number: number, ...selectors: number[]): ToProxy => ({
  type: 'identity',
  identity: number,
  selectors,
});

describe('an identity is asked for', () => {
  it('when a rule comes whose pattern is of a name that has one by another', async () => {
    const it = new Fixture();
    await it.hear(selector(2, 'a.com'), identity(1002, 2));
    expect(it.answer('a.com')).toBeUndefined();
    await it.hear(selector(1, '*.com'));
    expect(it.wanted()).toEqual([[1, 2]]);
    await it.hear(identity(1001, 1));
    // Pods of the rule that was there first keep the address meanwhile.
    expect(it.rows.get(ADDRESS)).toBe(1002);
    await it.hear(identity(1003, 1, 2));
    expect(it.rows.get(ADDRESS)).toBe(1003);
    expect(it.wanted()).toEqual([]);
  });

  it('when a rule goes, of the patterns that are left', async () => {
    const it = new Fixture();
    const parts = [identity(1001, 1), identity(1002, 2), identity(1003, 3)];
    await it.hear(selector(1, 'a.com'), selector(2, '*.com'), selector(3, '*'), ...parts, identity(1123, 1, 2, 3));
    expect(it.answer('a.com')).toBeUndefined();
    await it.hear({ type: 'selector-gone', selector: 3 });
    expect(it.wanted()).toEqual([[1, 2]]);
  });

  it('when it goes alone, as when a rule is taken back and made again', async () => {
    const it = new Fixture();
    await it.hear(selector(1, 'a.com'), selector(2, '*.com'), identity(1001, 1), identity(1012, 1, 2));
    expect(it.answer('a.com')).toBeUndefined();
    await it.hear({ type: 'identity-gone', identity: 1012 });
    expect(it.wanted()).toEqual([[1, 2]]);
  });

  it('once while the agent is about to give it, and again when an answer has waited for it in vain', async () => {
    const it = new Fixture(20);
    await it.hear(selector(1, 'a.com'), selector(2, '*.com'));
    const first = it.answer('a.com');
    const second = it.answer('a.com');
    expect(it.wanted()).toEqual([[1, 2]]);
    await Promise.all([first, second]);
    void it.answer('a.com');
    expect(it.wanted()).toEqual([[1, 2]]);
  });

  it('again when its rule has gone and come, which the agent may have heard too early', async () => {
    const it = new Fixture();
    await it.hear(selector(1, 'a.com'), selector(2, '*.com'), identity(1001, 1));
    void it.answer('a.com');
    expect(it.wanted()).toEqual([[1, 2]]);
    await it.hear({ type: 'selector-gone', selector: 2 });
    expect(it.wanted()).toEqual([]);
    await it.hear(selector(2, '*.com'));
    expect(it.wanted()).toEqual([[1, 2]]);
  });

  it('when a name goes, of the patterns that are left', async () => {
    const it = new Fixture();
    await it.hear(selector(1, 'a.com'), selector(2, 'a.*'), selector(3, 'b.com'), identity(1123, 1, 2, 3));
    void it.answer('a.com');
    void it.answer('b.com');
    it.wanted();
    await it.hear({ type: 'forget', pattern: 'b.com' });
    expect(it.rows.has(ADDRESS)).toBe(false);
    expect(it.wanted()).toEqual([[1, 2]]);
  });

  it('of a new agent once, in its greeting', async () => {
    const it = new Fixture();
    await it.hear(selector(1, 'a.com'), selector(2, '*.com'), identity(1001, 1));
    void it.answer('a.com');
    it.wanted();
    expect(it.greet()).toContainEqual({ type: 'wanted', selectors: [1, 2] });
    void it.answer('a.com');
    expect(it.wanted()).toEqual([]);
  });
});

it('keeps nothing of answers that have waited for an identity in vain, however many', async () => {
  const kept: WeakRef<object>[] = [];
  const lacking = (): readonly (readonly number[])[] => {
    const sets = [[1, 2]];
    kept.push(...sets.map((each) => new WeakRef(each)));
    return sets;
  };
  const names: Pick<Names, 'learn' | 'lacking'> = { learn: () => [], lacking };
  const learning = new Learning({
    names: names as Names,
    tell: () => undefined,
    connected: () => true,
    waitMs: 1,
  });
  const learn = async (): Promise<void> => learning.learn(1, 'a.com', []);
  await Promise.all(Array.from({ length: 100 }, learn));
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  const left = (): number => kept.filter((set) => set.deref() !== undefined).length;
  for (let turn = 0; turn < 50 && left() > 0; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    gc();
  }
  expect(kept).toHaveLength(100);
  expect(left()).toBe(0);
});

it('what a new agent says stays, also where what the one before did not say is still being taken back', async () => {
  const it = new Fixture();
  await it.hear(selector(1, 'b.com'), selector(2, 'a.com'));
  it.greet();
  const taking = it.hear({ type: 'complete' });
  it.greet();
  await it.hear(selector(2, 'a.com'), { type: 'complete' });
  await taking;
  void it.answer('a.com');
  expect(it.wanted()).toEqual([[2]]);
  void it.answer('b.com');
  expect(it.wanted()).toEqual([]);
});
