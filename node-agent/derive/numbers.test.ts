import { describe, expect, it } from '@jest/globals';
import { CIDR_BASE, LOCAL_ENDPOINT_BASE } from '@weir/identity';
import { createStateDB } from '@weir/statedb';
import { decodeNumbers, LocalNumbers } from './numbers.ts';

function create(): LocalNumbers {
  return new LocalNumbers(createStateDB({ freeze: true }));
}

describe('numbers of a node', () => {
  it("are one a name, and as late as possible another name's", () => {
    const numbers = create();
    const ten = numbers.cidr('10.0.0.0/8');
    expect([ten, numbers.cidr('10.0.0.0/8'), numbers.prefixOf(ten)]).toEqual([CIDR_BASE + 1, ten, '10.0.0.0/8']);
    numbers.releaseCidr('10.0.0.0/8');
    expect([numbers.prefixOf(ten), numbers.cidr('10.1.0.0/16')]).toEqual([undefined, ten + 1]);
    expect([...numbers.cidrs()]).toEqual([['10.1.0.0/16', ten + 1]]);
  });

  it('of a prefix and of labels with the same text are two', () => {
    const numbers = create();
    expect(numbers.labels('x')).toBe(LOCAL_ENDPOINT_BASE + 1);
    expect(numbers.cidr('x')).toBe(CIDR_BASE + 1);
    expect(numbers.prefixOf(LOCAL_ENDPOINT_BASE + 1)).toBeUndefined();
  });

  it('survive a restart, and are to be saved when one is given out or back', () => {
    const numbers = create();
    const [cidr, labels, revision] = [numbers.cidr('10.0.0.0/8'), numbers.labels('k8s:app=a;'), numbers.revision()];
    expect(numbers.dirty).toBe(true);
    const next = create();
    next.adopt(decodeNumbers(JSON.parse(JSON.stringify(numbers.state()))));
    expect([next.cidr('10.0.0.0/8'), next.labels('k8s:app=a;'), next.dirty]).toEqual([cidr, labels, false]);
    expect(next.revision()).toBeGreaterThan(revision);
    next.dirty = false;
    next.releaseCidr('10.0.0.0/8');
    expect(next.dirty).toBe(true);
    next.dirty = false;
    next.releaseCidr('10.0.0.0/8');
    expect(next.dirty).toBe(false);
  });

  it('are adopted but for those that contradict what is known, or that are none', () => {
    const numbers = create();
    numbers.adoptCidr('10.0.0.0/8', CIDR_BASE + 5);
    numbers.adoptCidr('10.0.0.0/8', CIDR_BASE + 6);
    numbers.adoptCidr('10.1.0.0/16', CIDR_BASE + 5);
    numbers.adoptCidr('10.2.0.0/16', 7);
    expect([...numbers.cidrs()]).toEqual([['10.0.0.0/8', CIDR_BASE + 5]]);
    expect(numbers.cidr('10.3.0.0/16')).toBe(CIDR_BASE + 6);
  });

  it('of listeners are given back after a start, and after many more, where nothing names them', () => {
    const numbers = create();
    const [kept, gone] = [numbers.listeners.ofNames(['a.io']), numbers.listeners.ofNames(['b.io'])];
    numbers.sweepListeners(() => [kept]);
    expect([...numbers.eachListener()].map(([id]) => id)).toEqual([kept, gone]);
    const next = create();
    next.adopt(decodeNumbers(JSON.parse(JSON.stringify(numbers.state()))));
    next.sweepListeners(() => [kept]);
    expect([[...next.eachListener()], next.dirty]).toEqual([[[kept, ['a.io']]], true]);
    // The number of a list that is gone is another's as late as possible.
    expect(next.listeners.ofNames(['c.io'])).toBe(gone + 1);
    for (let at = 0; at < 5000; at += 1) {
      expect(next.listeners.ofNames([`n${at}.io`])).not.toBe(kept);
      next.sweepListeners(() => [kept]);
    }
    expect([...next.eachListener()].length).toBeLessThan(1000);
  });

  it('of names and listeners are not given again after a restart: a proxy may still have what they stood for', () => {
    const numbers = create();
    const [name, listener] = [numbers.names(['a.io']), numbers.listeners.ofNames(['a.io'])];
    numbers.releaseNames(['a.io']);
    const next = create();
    next.adopt(decodeNumbers(JSON.parse(JSON.stringify(numbers.state()))));
    next.sweepListeners(() => []);
    const last = create();
    last.adopt(decodeNumbers(JSON.parse(JSON.stringify(next.state()))));
    expect([last.names(['b.io']), last.listeners.ofNames(['b.io'])]).toEqual([name + 1, listener + 1]);
  });
});
