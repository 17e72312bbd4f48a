import { expect, it } from '@jest/globals';
import { ApiError } from './errors.ts';
import { Outage, UNREACHED_FIX } from './outage.ts';

const unreachable = new ApiError('GET https://10.96.0.1:443/api: no connection', { status: 0, reason: 'Unreachable' });
const broken = new ApiError('GET https://10.96.0.1:443/api: 500', { status: 500, reason: 'InternalError' });

it('tells the first failure and one a minute, and what to do while the API server has never answered', () => {
  let now = 1_000;
  const outage = new Outage(() => now);
  const at = (time: number, error: Error) => {
    now = time;
    return outage.failed(error);
  };
  expect(at(1_000, unreachable)).toEqual({ loud: true, fix: UNREACHED_FIX });
  expect(at(60_999, unreachable)).toEqual({ loud: false, fix: UNREACHED_FIX });
  expect(at(61_000, broken)).toEqual({ loud: true });
  outage.answered();
  expect(at(61_001, unreachable)).toEqual({ loud: false });
  expect(at(121_000, unreachable)).toEqual({ loud: true });
});
