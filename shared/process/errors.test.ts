import { expect, it } from '@jest/globals';
import { delay } from './delay.ts';
import { codeOf, messageOf } from './errors.ts';

it.each([
  [new Error('disk full'), 'disk full'],
  [{ message: 'of another realm' }, 'of another realm'],
  [Object.assign(new AggregateError([], ''), { code: 'ECONNREFUSED' }), 'ECONNREFUSED'],
  ['text', 'text'],
  [undefined, 'undefined'],
])('the message of %p', (error, message) => {
  expect(messageOf(error)).toBe(message);
});

it.each([
  [Object.assign(new Error(), { code: 'ENOENT' }), 'ENOENT'],
  [Object.assign(new Error(), { code: 7 }), undefined],
  [null, undefined],
])('the code of %p', (error, code) => {
  expect(codeOf(error)).toBe(code);
});

it('a delay ends early, without an error, when its signal aborts, before or meanwhile', async () => {
  const controller = new AbortController();
  const waiting = delay(2 ** 30, controller.signal);
  controller.abort();
  await waiting;
  await delay(2 ** 30, controller.signal, { ref: false });
});
