import { expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { LocalNumbers } from '../derive/numbers.ts';
import { proxyCondition } from './proxy-condition.ts';

it('fails without a proxy where policies need it: by DNS rules, or by names alone', () => {
  let problem: string | undefined = 'it has gone';
  const numbers = new LocalNumbers(createStateDB({ freeze: true }));
  const { read } = proxyCondition({ socket: '/s', core: { numbers }, problem: () => problem });
  expect(read()).toMatchObject({ ok: true, off: true });
  numbers.names(['api.example.com']);
  expect(read()).toMatchObject({ ok: false, message: expect.stringContaining('it has gone') });
  numbers.releaseNames(['api.example.com']);
  expect(read()).toMatchObject({ ok: true, off: true });
  numbers.listeners.ofNames(['*']);
  expect(read()).toMatchObject({ ok: false });
  problem = undefined;
  expect(read()).toEqual({ ok: true, message: 'answers what policies let pods ask (/s)' });
});
