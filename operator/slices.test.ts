import { describe, expect, it } from '@jest/globals';
import type { SliceEndpoint } from '@weir/kube';
import { CookieBook } from './cookies.ts';
import { IdentityBook } from './identity-book.ts';
import { peerSetName, resolvedName } from './names.ts';
import { SlicePacker } from './slices.ts';

const endpoint = (name: string): SliceEndpoint => ({
  name,
  id: 0,
  identity: 300,
  networking: { addressing: [{ ipv4: '10.0.0.1' }], node: '' },
});

describe('SlicePacker', () => {
  it('keeps the place of a pod over a restart, and gives up the places of pods that are gone', () => {
    const packer = new SlicePacker();
    packer.adopt('ces-a-0', 'a', ['gone']);
    packer.adopt('ces-a-1', 'a', ['p', 'also-gone']);
    packer.set('a', endpoint('p'));
    packer.adoptionDone();
    const rows = packer.drainChanged();
    expect(rows.find((r) => r.name === 'ces-a-0')?.row).toBeUndefined();
    expect(rows.find((r) => r.name === 'ces-a-1')?.row?.endpoints.map((e) => e.name)).toEqual(['p']);
  });

  it('a pod that two slices claim is in one only', () => {
    const packer = new SlicePacker();
    packer.adopt('ces-a-0', 'a', ['p']);
    packer.adopt('ces-a-1', 'a', ['p', 'q']);
    packer.set('a', endpoint('p'));
    packer.set('a', endpoint('q'));
    packer.adoptionDone();
    const shown = packer.drainChanged().flatMap((r) => r.row?.endpoints.map((e) => `${r.name} ${e.name}`) ?? []);
    expect(shown.sort()).toEqual(['ces-a-0 p', 'ces-a-1 q']);
  });
});

describe('CookieBook', () => {
  it('gives the same number for the same element, another for another, and steps over a taken one', () => {
    const first = new CookieBook();
    const cookie = first.give('u spec.ingress[0]');
    expect(new CookieBook().give('u spec.ingress[0]')).toBe(cookie);
    const crowded = new CookieBook();
    expect(crowded.keep(cookie, 'another')).toBe(true);
    const next = crowded.give('u spec.ingress[0]');
    expect(next).toBe(cookie === 0x7fffffff ? 1 : cookie + 1);
    expect(crowded.keep(cookie, 'u spec.ingress[0]')).toBe(false);
    crowded.release(cookie, 'another');
    expect(crowded.keep(cookie, 'u spec.ingress[0]')).toBe(true);
  });
});

describe('IdentityBook', () => {
  it('of two numbers for one label set the lowest wins, and the other is collected when unused', () => {
    const book = new IdentityBook();
    for (const id of [400, 300, 500]) expect(book.adopt(id, { 'k8s:app': 'x' }, 0)).toBe(true);
    expect(book.use({ 'k8s:app': 'x' })).toEqual({ id: 300, allocated: false });
    expect(book.collect(999, 1000)).toEqual([]);
    expect(new Set(book.collect(1000, 1000))).toEqual(new Set([400, 500]));
    expect(book.use({ 'k8s:app': 'y' }).id).toBe(501);
    expect(book.adopt(70000, {}, 0)).toBe(false);
  });

  it('does not reuse a number before the range is used up', () => {
    const book = new IdentityBook();
    const { id } = book.use({ 'k8s:app': 'a' });
    book.release(id, 0);
    expect(book.collect(10, 10)).toEqual([id]);
    expect(book.use({ 'k8s:app': 'b' }).id).toBe(id + 1);
  });
});

describe('names', () => {
  it('are distinct and never too long', () => {
    const long = 'x'.repeat(253);
    const name = resolvedName('CiliumNetworkPolicy', 'a'.repeat(63), long);
    expect(name.length).toBeLessThanOrEqual(253);
    expect(name).not.toBe(resolvedName('CiliumNetworkPolicy', 'a'.repeat(63), `${long.slice(1)}y`));
    expect(resolvedName('CiliumNetworkPolicy', 'ns', 'p')).toBe('cnp-ns.p');
    expect(resolvedName('CiliumClusterwideNetworkPolicy', undefined, 'p')).toBe('ccnp-p');
    expect([peerSetName('h', 0), peerSetName('h', 2)]).toEqual(['h', 'h-2']);
  });
});
