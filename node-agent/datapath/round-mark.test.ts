import { expect, it } from '@jest/globals';
import { settingsKey, settingsValue } from '@weir/bpf';
import type { BpfMap } from 'libbpf-ts';
import { RoundMark } from './round-mark.ts';

function settings(): Pick<BpfMap, 'lookup' | 'update'> & { value(): number } {
  const bytes = new Map<string, Uint8Array>();
  const name = (key: Uint8Array): string => Buffer.from(key).toString('hex');
  return {
    lookup: (key) => bytes.get(name(key)),
    update: (key, value) => void bytes.set(name(key), value),
    value: () => settingsValue.decode(bytes.get(name(settingsKey.encode(0))) ?? new Uint8Array(4)),
  };
}

it('what a successor is told of rounds, of rules and of events to send does not touch the others', () => {
  const map = settings();
  const mark = new RoundMark(map);
  const one = [{ a: 1 }];
  expect([mark.set, map.value()]).toEqual([false, 0]);
  mark.noteRules(one);
  mark.begin();
  mark.change(1);
  expect([mark.set, mark.mayHaveRules(one, 'file'), map.value() & 0xff]).toEqual([true, true, 1]);
  mark.changeRules();
  mark.end();
  expect([mark.set, mark.mayHaveRules(one, 'file'), map.value() & 0xff]).toEqual([false, true, 1]);
  mark.change(0);
  expect([mark.mayHaveRules(one, 'file'), map.value() & 0xff]).toEqual([true, 0]);
});

it('rules may be those of a file that is not older than what was noted last, and none where none were noted', () => {
  const mark = new RoundMark(settings());
  const one = [{ a: 1 }];
  const may = (): readonly boolean[] => [
    mark.mayHaveRules(one, 'file'),
    mark.mayHaveRules([{ b: 1 }], 'file'),
    mark.mayHaveRules([], 'absent'),
    mark.mayHaveRules([], 'unreadable'),
  ];
  expect(may()).toEqual([true, true, true, false]);
  mark.noteRules([]);
  expect(may()).toEqual([false, false, true, true]);
  mark.changeRules();
  expect(may()).toEqual([true, true, true, true]);
  mark.noteRules(one);
  expect(may()).toEqual([true, false, false, false]);
  mark.changeRules();
  expect(may()).toEqual([true, true, false, false]);
});
