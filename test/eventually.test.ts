import { describe, expect, it } from '@jest/globals';
import { eventually } from './eventually.ts';

describe('eventually', () => {
  it('gives the first answer that holds', async () => {
    let asked = 0;
    const get = async (): Promise<number> => {
      asked += 1;
      return asked;
    };
    expect(await eventually(get, (value) => value === 3)).toBe(3);
    expect(asked).toBe(3);
  });

  it('fails when none holds in time, and shows the last', async () => {
    const never = eventually(
      async () => ({ state: 'restoring', ids: [1, 2] }),
      () => false,
      0,
    );
    await expect(never).rejects.toThrow("still so after 0 s: { state: 'restoring', ids: [ 1, 2 ] }");
  });
});
