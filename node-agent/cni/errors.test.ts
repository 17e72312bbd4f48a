import { expect, test } from '@jest/globals';
import { CommandError } from '../host/command.ts';
import { failureAnswer } from './answers.ts';
import { CNI_CODE, CniError, cniErrorOf } from './errors.ts';

test('a runtime is told which command failed, why, and what it was given', () => {
  const failed = new CommandError('ip -json -batch -', 'link set veth0 up\n', 'Cannot find device "veth0"\n');

  const told = cniErrorOf(failed);

  expect(told && failureAnswer(told, '1.1.0')).toEqual({
    cniVersion: '1.1.0',
    code: CNI_CODE.network,
    msg: 'ip -json -batch - failed: Cannot find device "veth0"',
    details: 'link set veth0 up',
  });
});

test('errors of CNI calls stay what they are, others have no code of their own', () => {
  const error = new CniError(CNI_CODE.tryLater, 'not yet');

  expect(cniErrorOf(error)).toBe(error);
  expect(cniErrorOf(new Error('anything'))).toBeUndefined();
});
