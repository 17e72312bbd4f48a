import { expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { PendingInputs } from './pending-inputs.ts';

it('inputs that are missing are a failure after half a minute in which none has come', () => {
  let now = 0;
  let names = ['a', 'b'];
  const pending = new PendingInputs(
    createStateDB({ freeze: true }),
    () => names,
    () => now,
  );
  expect(pending.lasting()).toBe(false);
  now = 29_999;
  expect(pending.lasting()).toBe(false);
  now = 30_000;
  expect(pending.lasting()).toBe(true);
  // After an outage one comes after the other.
  names = ['b'];
  expect(pending.lasting()).toBe(false);
  now = 59_999;
  expect([pending.look(), pending.lasting()]).toEqual([['b'], false]);
  now = 60_000;
  expect(pending.lasting()).toBe(true);
  // More are missing: that is no reason to wait longer.
  names = ['b', 'c'];
  expect(pending.lasting()).toBe(true);
  names = ['c'];
  expect(pending.lasting()).toBe(false);
  names = [];
  expect([pending.look(), pending.lasting()]).toEqual([[], false]);
});

it('an input that comes and goes keeps none that is missing for longer from being a failure', () => {
  let now = 0;
  let names = ['a'];
  const pending = new PendingInputs(
    createStateDB({ freeze: true }),
    () => names,
    () => now,
  );
  expect(pending.lasting()).toBe(false);
  for (now = 1_000; now < 29_000; now += 1_500) {
    names = ['a', 'b'];
    expect(pending.lasting()).toBe(false);
    now += 500;
    names = ['a'];
    expect(pending.lasting()).toBe(false);
  }
  now = 30_000;
  expect(pending.lasting()).toBe(true);
  names = ['a', 'b'];
  expect(pending.lasting()).toBe(true);
  names = ['a'];
  expect(pending.lasting()).toBe(true);
});
