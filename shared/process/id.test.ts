import { expect, it } from '@jest/globals';
import { newId } from './id.ts';

it('ids are different, and may be part of the name of a file or of an API object', () => {
  const ids = Array.from({ length: 10_000 }, () => newId());
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of ids) expect(id).toMatch(/^[0-9a-z]{12}$/);
});

it('whoever calls back with arguments gets one, too', () => {
  const made = [1, 2, 3].map(newId);
  for (const id of made) expect(id).toHaveLength(12);
});
