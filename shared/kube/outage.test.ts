import { beforeEach, expect, it } from '@jest/globals';
import { ApiError } from './errors.ts';
import { Outage, UNREACHED_FIX } from './outage.ts';

const unreachable = new ApiError('GET https://10.96.0.1:443/api: no connection', { status: 0, reason: 'Unreachable' });
const broken = new ApiError('GET https://10.96.0.1:443/api: 500', { status: 500, reason: 'InternalError' });
const refused = new ApiError('GET https://10.96.0.1:443/api/v1/pods: 403', { status: 403, reason: 'Forbidden' });

let now: number;
let outage: Outage;
const at = (time: number, error: Error, what = 'pods') => {
  now = time;
  return outage.failed(what, error);
};
beforeEach(() => {
  outage = new Outage(() => now);
});

it('tells the first failure and one a minute, and what to do while the API server has never answered', () => {
  expect(at(1_000, unreachable)).toEqual({ loud: true, fix: UNREACHED_FIX });
  for (const time of [20_000, 40_000, 60_999])
    expect(at(time, unreachable)).toEqual({ loud: false, fix: UNREACHED_FIX });
  expect(at(61_000, broken)).toEqual({ loud: true });
  outage.answered();
  expect(at(61_001, unreachable)).toEqual({ loud: false });
  for (const time of [81_000, 101_000]) expect(at(time, broken)).toEqual({ loud: false });
  expect(at(121_000, unreachable)).toEqual({ loud: true });
});

it('tells a server that does not answer once for all kinds, and what it refuses for each kind', () => {
  expect(at(1_000, broken, 'pods')).toEqual({ loud: true });
  expect(at(1_001, unreachable, 'nodes').loud).toBe(false);
  expect(at(1_002, refused, 'pods')).toEqual({ loud: true });
  expect(at(1_003, refused, 'nodes')).toEqual({ loud: true });
  expect(at(1_004, refused, 'nodes')).toEqual({ loud: false });
});

it('tells the first failure after a recovery, whether that was said or is known from silence', () => {
  expect(at(1_000, broken)).toEqual({ loud: true });
  outage.recovered();
  expect(at(1_001, broken)).toEqual({ loud: true });
  for (const time of [21_000, 41_000]) expect(at(time, broken)).toEqual({ loud: false });
  expect(at(61_001, broken)).toEqual({ loud: true });
  expect(at(91_001, broken)).toEqual({ loud: true });
});
