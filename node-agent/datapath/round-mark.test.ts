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
  expect([mark.set, mark.hasRules([]), map.value()]).toEqual([false, undefined, 0]);
  mark.noteRules([]);
  mark.begin();
  mark.change(1);
  expect([mark.set, mark.hasRules([]), mark.hasRules([{ a: 1 }]), map.value() & 0xff]).toEqual([true, true, false, 1]);
  mark.noteRules([{ a: 1 }]);
  mark.end();
  expect([mark.set, mark.hasRules([]), mark.hasRules([{ a: 1 }]), map.value() & 0xff]).toEqual([false, false, true, 1]);
  mark.change(0);
  expect([mark.hasRules([{ a: 1 }]), map.value() & 0xff]).toEqual([true, 0]);
});
