import { mkdirSync, mkdtempSync, rmdirSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { attachTc } from './attach.ts';
import { attachClsact, detachClsact, queryClsact } from './clsact.ts';
import { listClsact } from './filters.ts';
import { lockFolder } from './folder-lock.ts';
import { u32 } from './map-conformance.ts';
import { inNetns, interfaceName, netnsCookie } from './netns.ts';
import { loadObject } from './object.ts';
import { percpu } from './percpu.ts';
import { programName } from './program.ts';
import { attachTcx, hasTcx, listTcx, openLinkById, openPinnedLink, queryTcx } from './tcx.ts';
import { buildProgram, currentNamespace, makeNamespace, removePins, type TestNamespace } from './test-kit.ts';
import type { BpfObject } from './types.ts';

const pins = `/sys/fs/bpf/wt${process.pid}-tc`;
let built: ReturnType<typeof buildProgram>;
let object: BpfObject;
let net: TestNamespace;
beforeAll(() => {
  built = buildProgram('basic');
  object = loadObject(built.path);
  net = makeNamespace('tc');
});
afterAll(() => {
  removePins(pins);
  net?.[Symbol.dispose]();
  object?.close();
  built?.[Symbol.dispose]();
});

const withErrno = (errnoName: string): Error => expect.objectContaining({ errnoName }) as unknown as Error;
const packets = (): bigint => percpu.sumU64(object.map('totals').lookup(u32(0)) ?? new Uint8Array(), 16)[0] ?? 0n;
const ids = () => ({ a: object.program('give_answer').info().id, b: object.program('match').info().id });

describe('tcx', () => {
  it('attaches, runs on packets, replaces, pins, reopens and detaches', () => {
    const { a, b } = ids();
    const where = { ifindex: net.ifindex, direction: 'ingress' } as const;
    const link = inNetns(net.path, () => attachTc(object.program('give_answer'), where));
    expect(hasTcx()).toBe(true);
    expect(link).toMatchObject({ kind: 'tcx', ...where });
    expect(link.programId()).toBe(a);
    const before = packets();
    net.ping(3);
    expect(packets()).toBeGreaterThanOrEqual(before + 3n);

    link.replace(object.program('match'));
    expect(link.programId()).toBe(b);
    const replaced = packets();
    net.ping(3);
    expect(packets()).toBe(replaced);

    link.pin(`${pins}/deep/link`);
    link.close();
    expect(() => link.programId()).toThrow(withErrno('EBADF'));
    const query = (): number[] => inNetns(net.path, () => queryTcx(net.ifindex, 'ingress'));
    expect(query()).toEqual([b]);
    {
      using again = openPinnedLink(`${pins}/deep/link`);
      expect(again).toMatchObject({ kind: 'tcx', ...where });
      again.replace(object.program('give_answer'));
      expect(query()).toEqual([a]);
      expect(() => again.pin(`${pins}/deep/link`)).toThrow(withErrno('EEXIST'));
    }
    expect(query()).toEqual([a]);
    openPinnedLink(`${pins}/deep/link`).detach();
    expect(query()).toEqual([]);
    unlinkSync(`${pins}/deep/link`);
  });

  it('closing an unpinned link detaches it; links run in order', () => {
    inNetns(net.path, () => {
      const { a, b } = ids();
      const first = attachTcx(object.program('match'), { ifindex: net.ifindex, direction: 'egress' });
      {
        using _second = attachTcx(object.program('give_answer'), { ifindex: net.ifindex, direction: 'egress' });
        expect(queryTcx(net.ifindex, 'egress')).toEqual([b, a]);
        expect(queryTcx(net.ifindex, 'ingress')).toEqual([]);
      }
      expect(queryTcx(net.ifindex, 'egress')).toEqual([b]);
      first.close();
      first.close();
      expect(queryTcx(net.ifindex, 'egress')).toEqual([]);
    });
  });

  it('attaches before all others where asked; a link is found again by the chain it is in', () => {
    inNetns(net.path, () => {
      const { a, b } = ids();
      const where = { ifindex: net.ifindex, direction: 'egress' } as const;
      using last = attachTcx(object.program('match'), where);
      {
        using first = attachTcx(object.program('give_answer'), { ...where, place: 'first' });
        expect(listTcx(net.ifindex, 'egress')).toEqual([
          { program: a, link: first.id() },
          { program: b, link: last.id() },
        ]);
        expect(() => attachTcx(object.program('give_answer'), where)).toThrow(withErrno('EEXIST'));
        using again = openLinkById(first.id() ?? 0);
        expect(again).toMatchObject(where);
        expect(again.programId()).toBe(a);
      }
      expect(queryTcx(net.ifindex, 'egress')).toEqual([b]);
      expect(() => openLinkById(0x7fffffff)).toThrow(withErrno('ENOENT'));
    });
    expect([programName(ids().a), programName(0x7fffffff)]).toEqual(['give_answer', undefined]);
  });

  it('looks for the interface in the namespace of the thread, and checks the index', () => {
    const where = { ifindex: 99_999, direction: 'ingress' } as const;
    expect(() => attachTc(object.program('match'), where)).toThrow(withErrno('ENODEV'));
    expect(() => queryTcx(99_999, 'ingress')).toThrow(withErrno('ENODEV'));
    for (const ifindex of [0, -1, 1.5]) {
      expect(() => attachTc(object.program('match'), { ifindex, direction: 'ingress' })).toThrow('ifindex');
    }
  });

  it('detaching is possible after the interface is gone', () => {
    const gone = makeNamespace('gone');
    const where = { ifindex: gone.ifindex, direction: 'ingress' } as const;
    const link = inNetns(gone.path, () => {
      const made = attachTcx(object.program('match'), where);
      return made;
    });
    inNetns(gone.path, () => expect(queryTcx(gone.ifindex, 'ingress')).toHaveLength(1));
    gone[Symbol.dispose]();
    link.detach();
    expect(() => link.programId()).toThrow(withErrno('EBADF'));
  });
});

describe('clsact', () => {
  it('attaches in its slot, replaces, and stays until detached', () => {
    inNetns(net.path, () => {
      const { a, b } = ids();
      const where = { ifindex: net.ifindex, direction: 'ingress' } as const;
      expect(queryClsact(net.ifindex, 'ingress')).toBeUndefined();
      const link = attachClsact(object.program('give_answer'), where);
      expect(link).toMatchObject({ kind: 'clsact', ...where });
      expect(link.programId()).toBe(a);
      link.replace(object.program('match'));
      expect(link.programId()).toBe(b);
      expect(() => link.pin(`${pins}/clsact`)).toThrow(withErrno('EOPNOTSUPP'));
      link.close();
      expect(queryClsact(net.ifindex, 'ingress')).toBe(b);
      expect(queryClsact(net.ifindex, 'egress')).toBeUndefined();
      const other = attachClsact(object.program('give_answer'), where, { priority: 2, handle: 7 });
      expect([queryClsact(net.ifindex, 'ingress'), other.programId()]).toEqual([b, a]);
      detachClsact(where);
      detachClsact(where);
      expect(queryClsact(net.ifindex, 'ingress')).toBeUndefined();
      expect(() => link.programId()).toThrow(withErrno('ENOENT'));
      expect(other.programId()).toBe(a);
      other.detach();
      expect(() => attachClsact(object.program('match'), where, { priority: 0 })).toThrow('priority');
    });
  });

  it('lists filters in the order in which they run: by priority, and of one priority the youngest first', () => {
    inNetns(net.path, () => {
      const { a, b } = ids();
      const where = { ifindex: net.ifindex, direction: 'egress' } as const;
      expect(listClsact(net.ifindex, 'egress')).toEqual([]);
      attachClsact(object.program('give_answer'), where, { priority: 2, handle: 1 });
      attachClsact(object.program('give_answer'), where, { priority: 1, handle: 7 });
      attachClsact(object.program('match'), where, { priority: 1, handle: 9 });
      expect(listClsact(net.ifindex, 'egress')).toEqual([
        { priority: 1, handle: 9, kind: 'bpf', program: b },
        { priority: 1, handle: 7, kind: 'bpf', program: a },
        { priority: 2, handle: 1, kind: 'bpf', program: a },
      ]);
      expect(listClsact(net.ifindex, 'ingress')).toEqual([]);
      for (const slot of [{ priority: 2 }, { handle: 7 }, { handle: 9 }]) detachClsact(where, slot);
      expect(listClsact(99_999, 'egress')).toEqual([]);
    });
  });

  it('runs on packets', () => {
    const where = { ifindex: net.ifindex, direction: 'ingress' } as const;
    const link = inNetns(net.path, () => attachClsact(object.program('give_answer'), where));
    const before = packets();
    net.ping(2);
    expect(packets()).toBeGreaterThanOrEqual(before + 2n);
    inNetns(net.path, () => link.detach());
    expect(() => attachClsact(object.program('match'), { ...where, ifindex: 99_999 })).toThrow(withErrno('ENODEV'));
  });
});

describe('a locked folder', () => {
  it.each(['/sys/fs/bpf', tmpdir()])('is locked once, until it is released, in %s', (parent) => {
    const folder = mkdtempSync(join(parent, 'lbts-lock-'));
    const lock = lockFolder(folder);
    expect([lock?.current, lockFolder(folder)]).toEqual([true, undefined]);
    rmdirSync(folder);
    mkdirSync(folder);
    expect(lock?.current).toBe(false);
    lockFolder(folder)?.release();
    lock?.release();
    lock?.release();
    rmdirSync(folder);
  });
});

describe('inNetns', () => {
  it('comes back, also after an error', () => {
    const home = currentNamespace();
    expect(inNetns(net.path, currentNamespace)).toBe('lo va vb');
    expect(currentNamespace()).toBe(home);
    expect(() =>
      inNetns(net.path, () => {
        throw new Error('inside');
      }),
    ).toThrow('inside');
    expect(currentNamespace()).toBe(home);
  });

  it('tells namespaces apart, and names interfaces of the one it is in', () => {
    const home = netnsCookie();
    const there = inNetns(net.path, netnsCookie);
    expect([there === home, inNetns(net.path, netnsCookie) === there, netnsCookie() === home]).toEqual([
      false,
      true,
      true,
    ]);
    expect(inNetns(net.path, () => [interfaceName(net.ifindex), interfaceName(99_999)])).toEqual(['va', undefined]);
  });

  it('refuses asynchronous work and what is no namespace', () => {
    const home = currentNamespace();
    expect(() => inNetns(net.path, async () => 1)).toThrow('returned a promise');
    expect(() => inNetns('/run/netns/lbts-none', () => 1)).toThrow(withErrno('ENOENT'));
    expect(() => inNetns('/etc/passwd', () => 1)).toThrow(withErrno('EINVAL'));
    expect(currentNamespace()).toBe(home);
  });
});
