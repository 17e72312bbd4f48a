/** What a full table of addresses costs: a CIDR looks at those that are in it, and no other. */
import { expect, it } from '@jest/globals';
import { CIDR_BASE } from '@weir/identity';
import { createStateDB } from '@weir/statedb';
import { createTables } from '../create-tables.ts';
import type { IpcacheRow } from '../tables.ts';
import { RefusedCidrs } from './refused-cidrs.ts';

it('a CIDR that is given looks at the refused ones in it alone, however many others there are', () => {
  const db = createStateDB({ freeze: true });
  const asked: string[] = [];
  const refused = new RefusedCidrs({
    db,
    tables: createTables(db),
    content: () => undefined,
    around: () => 2,
    atPrefix: (prefix) => {
      asked.push(prefix);
      return 2;
    },
    words: () => [],
  });
  const cidr = (prefix: string, number: number): IpcacheRow => ({
    prefix,
    identity: CIDR_BASE + number,
    source: 'cidr',
  });
  const full = (): void => {
    throw new Error('no room');
  };
  for (let at = 0; at < 200; at += 1) expect(() => refused.give(cidr(`10.${at}.0.0/16`, at), full)).toThrow('no room');
  for (let at = 0; at < 200; at += 1) expect(() => refused.give(cidr(`10.${at}.0.0/16`, at), full)).toThrow('no room');
  expect(asked).toEqual([]);
  let given = 0;
  refused.give(cidr('10.8.0.0/14', 300), () => {
    given += 1;
  });
  expect([given, asked]).toEqual([1, ['10.8.0.0/16', '10.9.0.0/16', '10.10.0.0/16', '10.11.0.0/16']]);
  expect(refused.none).toBe(false);
});
