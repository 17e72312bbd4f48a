import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { eventually } from '../../test/eventually.ts';
import { recordingLogger } from '../testing/fake-core.ts';
import { StateFile } from './persist.ts';
import { removeStateFiles, StateFiles } from './state-files.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-state-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function files(log = recordingLogger(), node = 'here', at = folder, callMs = 30_000): StateFiles {
  const endpoint = { id: 1, ifindex: 2, interfaceName: 'v', addresses: ['10.0.0.1'], createdAt: '' };
  const subject = new StateFiles({
    folder: at,
    node,
    db: createStateDB({ freeze: true }),
    log,
    callMs,
  });
  subject.provide('endpoints', () => [endpoint]);
  subject.provide('rules', () => [{ a: 1 }]);
  subject.provide('numbers', () => ({ cidrs: { '10.0.0.0/8': 16777217 }, labels: {}, nodes: {}, revisions: 7 }));
  subject.provide('addresses', () => ({ rows: [{ address: '10.0.0.1', order: 1, endpoint: 1 }], restsUntil: 0 }));
  return subject;
}

const ALL = [
  ['endpoints', 'endpoints.json'],
  ['rules', 'rules.json'],
  ['numbers', 'identities.json'],
  ['addresses', 'addresses.json'],
] as const;

const TORN: readonly (readonly [string, (text: string) => string])[] = [
  ['empty', () => ''],
  ['cut', (text) => text.slice(0, text.length / 2)],
  ['zeroes', (text) => '\0'.repeat(text.length)],
  ['no object', () => '7'],
  ['of a version to come', (text) => text.replace('"version":1', '"version":99')],
  ['of another node', (text) => text.replace('"node":"here"', '"node":"there"')],
  ['of other content', () => '{"version":1,"node":"here","content":[7]}'],
];

describe('a state file', () => {
  it.each(ALL)('is read back as it was written: %s', async (name, _) => {
    expect(files().load(name)).toBe('absent');
    expect(await files().save(name)).toBe(true);
    expect(files().load(name)).toMatchObject({ content: expect.anything() });
    expect(files().check()).toEqual({
      name: 'state-folder',
      ok: true,
      message: 'all that outlives a restart is on disk',
    });
  });

  it.each([
    ['a pipe', (path: string) => execFileSync('mkfifo', [path])],
    ['a device', (path: string) => symlinkSync('/dev/zero', path)],
  ])('that is %s is set aside, and keeps no agent waiting', (_, make) => {
    make(join(folder, 'endpoints.json'));
    expect(files().load('endpoints')).toBe('unreadable');
    expect(files().load('endpoints')).toBe('absent');
    expect(readdirSync(folder).some((name) => name.startsWith('endpoints.json.unreadable-'))).toBe(true);
  });

  it('of an agent that did not write its node down is read', () => {
    writeFileSync(join(folder, 'rules.json'), '{"version":1,"content":[{"a":1}]}');
    expect(files().load('rules')).toEqual({ content: [{ a: 1 }] });
  });

  it.each(ALL.flatMap(([name, file]) => TORN.map(([how, tear]) => [file, how, name, tear] as const)))(
    '%s, %s, is kept under another name and said, and a new one is written',
    async (file, _, name, tear) => {
      const log = recordingLogger();
      await files().save(name);
      const bad = tear(readFileSync(join(folder, file), 'utf8'));
      writeFileSync(join(folder, file), bad);
      const found = files(log);
      expect(found.load(name)).toBe('unreadable');
      const [kept = ''] = readdirSync(folder);
      expect([kept.startsWith(`${file}.unreadable-`), readFileSync(join(folder, kept), 'utf8')]).toEqual([true, bad]);
      expect(log.lines.map(({ level }) => level)).toEqual(['error']);
      expect(found.check()).toMatchObject({ ok: true, message: expect.stringContaining(kept) });
      expect(await found.save(name)).toBe(true);
      expect(files().load(name)).toMatchObject({ content: expect.anything() });
      removeStateFiles(folder);
      expect(() => readdirSync(folder)).toThrow('ENOENT');
    },
  );
});

describe('a state file of no use in a folder that is read-only', () => {
  it('is said once, however often it is tried, and kept once the folder can be written', async () => {
    const at = join(folder, 'state');
    await files(undefined, 'here', at).save('rules');
    writeFileSync(join(at, 'rules.json'), 'torn');
    execFileSync('mount', ['--bind', at, at]);
    try {
      execFileSync('mount', ['-o', 'remount,ro,bind', at]);
      const log = recordingLogger();
      const subject = files(log, 'here', at);
      expect(subject.load('rules')).toBe('unreadable');
      expect(await subject.save('rules')).toBe(false);
      const { message } = subject.check();
      for (let tries = 0; tries < 3; tries += 1) {
        // A name by the time would be another one.
        await new Promise((resolve) => setTimeout(resolve, 2));
        expect(await subject.save('rules')).toBe(false);
      }
      expect(log.lines.filter(({ level }) => level === 'warn')).toHaveLength(1);
      expect(subject.check().message).toBe(message);
      execFileSync('umount', [at]);
      expect(await subject.save('rules')).toBe(true);
      const [kept = ''] = readdirSync(at).filter((name) => name.startsWith('rules.json.unreadable-'));
      expect(readFileSync(join(at, kept), 'utf8')).toBe('torn');
      expect(subject.check()).toMatchObject({ ok: true, message: expect.stringContaining(kept) });
      await subject.stop();
    } finally {
      spawnSync('umount', [at], { stdio: 'ignore' });
    }
  });
});

describe('a state file that cannot be brought up to date', () => {
  it.each(ALL)('is none for the next agent: %s', async (name, file) => {
    const mine = files();
    await mine.save(name);
    mkdirSync(join(folder, `${file}.next`, 'x'), { recursive: true });
    expect(await mine.save(name)).toBe(false);
    expect(files().load(name)).toBe('absent');
    await mine.look();
    expect(mine.check().message).not.toContain('removed by somebody');
    rmSync(join(folder, `${file}.next`), { recursive: true });
    expect(await mine.save(name)).toBe(true);
    expect(files().load(name)).toMatchObject({ content: expect.anything() });
  });
});

describe('a state file that somebody removes', () => {
  it.each([
    ['one file', () => rmSync(join(folder, 'identities.json'))],
    ['the folder', () => rmSync(folder, { recursive: true })],
  ])('is noticed at the next look, written again and said: %s', async (_, remove) => {
    const log = recordingLogger();
    const subject = files(log);
    await subject.save('numbers');
    await subject.look();
    expect(log.lines).toEqual([]);
    remove();
    await subject.look();
    await subject.saved();
    expect(JSON.parse(readFileSync(join(folder, 'identities.json'), 'utf8')).content.revisions).toBe(7);
    expect(log.lines.map(({ level, message }) => [level, message])).toEqual([
      ['warn', 'somebody removed a state file; writing it again'],
    ]);
    expect(subject.check()).toMatchObject({
      ok: true,
      message: expect.stringContaining(`${join(folder, 'identities.json')} was removed by somebody`),
    });
    // What was never written is not missing.
    expect(readdirSync(folder)).toEqual(['identities.json']);
  });

  it('and that cannot be written again is not called on disk', async () => {
    const subject = files();
    await subject.save('numbers');
    await subject.save('addresses');
    rmSync(folder, { recursive: true });
    writeFileSync(folder, 'in its place');
    await subject.look();
    await subject.saved();
    expect(subject.check()).toEqual({
      name: 'state-folder',
      ok: false,
      message:
        `${join(folder, 'addresses.json')}, ${join(folder, 'identities.json')} cannot be written (EEXIST: file already exists); ` +
        'retrying, and enforcement goes on without it',
    });
    await subject.stop();
  });
});

it('a state file that cannot be written is removed, or what it says is told to stay', async () => {
  const subject = files();
  await subject.save('rules');
  const path = join(folder, 'rules.json');
  // A folder in the place of the temporary file: the next writing fails.
  mkdirSync(`${path}.next/x`, { recursive: true });
  expect(await subject.save('rules')).toBe(false);
  expect([existsSync(path), subject.check().message]).toEqual([false, expect.not.stringContaining('old one')]);
  mkdirSync(join(path, 'x'), { recursive: true });
  expect(await subject.save('rules')).toBe(false);
  expect(subject.check().message).toContain('; the old one cannot be removed (ERR_FS_EISDIR)');
  await subject.stop();
});

it('a state folder that cannot be made is told with the error, as any other', async () => {
  const subject = files(recordingLogger(), 'here', '/proc/nope');
  expect(await subject.save('rules')).toBe(false);
  expect(subject.check().message).toContain(
    '/proc/nope/rules.json cannot be written (ENOENT: no such file or directory); retrying',
  );
  await subject.stop();
});

describe('the writing of a state file', () => {
  const FILE = 'rules.json';
  const onDisk = (): unknown => JSON.parse(readFileSync(join(folder, FILE), 'utf8')).content;

  it('takes changes of one moment together, and those that come meanwhile are the next', async () => {
    const subject = files();
    let now = 1;
    let writings = 0;
    subject.provide('rules', () => {
      writings += 1;
      return [{ now }];
    });
    const first = [subject.save('rules'), subject.save('rules')];
    now = 2;
    // Its content is taken before this turn ends.
    await Promise.resolve();
    await Promise.resolve();
    now = 3;
    const second = [subject.save('rules'), subject.save('rules')];
    await Promise.all(first);
    expect([writings > 0, onDisk()]).toEqual([true, [{ now: 2 }]]);
    expect(await Promise.all(second)).toEqual([true, true]);
    expect([writings, onDisk()]).toEqual([2, [{ now: 3 }]]);
  });

  it('goes on without the event loop: what else there is to do is done meanwhile', async () => {
    const subject = files();
    const order: string[] = [];
    const writing = subject.save('rules').then(() => order.push('written'));
    setImmediate(() => order.push('something else'));
    await writing;
    expect(order).toEqual(['something else', 'written']);
  });

  it('is over once it is stopped', async () => {
    const subject = files();
    void subject.save('rules');
    await subject.stop();
    expect(onDisk()).toEqual([{ a: 1 }]);
    rmSync(join(folder, FILE));
    expect(await subject.save('rules')).toBe(false);
    expect(readdirSync(folder)).toEqual([]);
  });

  it.each([
    ['ENOSPC', '/dev/full'],
    // Nothing is at its address 0.
    ['EIO', '/proc/self/mem'],
  ])('that the disk refuses with %s leaves nothing, says why, and is tried again', async (code, device) => {
    const log = recordingLogger();
    const subject = files(log);
    await subject.save('rules');
    subject.provide('rules', () => [{ a: 2 }]);
    symlinkSync(device, join(folder, `${FILE}.next`));
    expect(await subject.save('rules')).toBe(false);
    expect(readdirSync(folder)).toEqual([]);
    expect(subject.check()).toMatchObject({
      ok: false,
      message: expect.stringMatching(new RegExp(`${FILE}.*${code}`)),
    });
    expect(log.lines.map(({ level }) => level)).toEqual(['warn']);
    // The link went with the writing that failed.
    const mended = await eventually(
      async () => subject.check(),
      ({ ok }) => ok,
    );
    expect([mended.ok, onDisk()]).toEqual([true, [{ a: 2 }]]);
    await subject.stop();
  });

  it('that the disk takes a part of leaves no part', async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=32k', 'tmpfs', folder]);
    try {
      const subject = files();
      await subject.save('rules');
      subject.provide('rules', () => [{ text: 'x'.repeat(60_000) }]);
      expect(await subject.save('rules')).toBe(false);
      expect(subject.check().message).toContain('ENOSPC');
      expect(readdirSync(folder)).toEqual([]);
      subject.provide('rules', () => [{ a: 2 }]);
      await subject.stop();
      expect(onDisk()).toEqual([{ a: 2 }]);
    } finally {
      execFileSync('umount', ['-l', folder]);
    }
  });
});

describe('a disk that does not answer', () => {
  let answer: () => void;
  let save: jest.SpiedFunction<StateFile<unknown>['save']>;

  beforeEach(() => {
    const answers = new Promise<void>((resolve) => {
      answer = resolve;
    });
    save = jest.spyOn(StateFile.prototype as StateFile<unknown>, 'save');
    const real = save.getMockImplementation();
    save.mockImplementation(async function (this: StateFile<unknown>, saved) {
      await answers;
      await real?.call(this, saved);
    });
  });
  afterEach(() => {
    answer();
    jest.restoreAllMocks();
  });

  it('for a moment needs no person', async () => {
    const log = recordingLogger();
    const subject = files(log);
    expect(await subject.save('numbers')).toBe(false);
    answer();
    await eventually(
      async () => subject.check(),
      ({ ok }) => ok,
    );
    expect(log.lines.map(({ level }) => level)).toEqual(['info']);
  });

  it('holds one thread of the process, however many files are to be written: all are said not to be on disk', async () => {
    const subject = files();
    subject.provide('rules', () => [{ a: 1 }]);
    expect(await Promise.all([subject.save('numbers'), subject.save('rules')])).toEqual([false, false]);
    expect(save).toHaveBeenCalledTimes(1);
    expect(subject.check().message).toMatch(/identities\.json: .* for \d+ s.*rules\.json: .* for \d+ s/);
    answer();
    const { ok } = await eventually(
      async () => subject.check(),
      (check) => check.ok,
    );
    expect([ok, files().load('rules')]).toEqual([true, { content: [{ a: 1 }] }]);
  });

  it('keeps nobody waiting, is said while it lasts, and all is well once it answers', async () => {
    const log = recordingLogger();
    const subject = files(log, 'here', folder, 1_100);
    const path = join(folder, 'identities.json');
    expect(await subject.save('numbers')).toBe(false);
    const said = new RegExp(`${path}: .* for \\d+ s`);
    expect(subject.check()).toMatchObject({ ok: false, message: expect.stringMatching(said) });
    expect(subject.unsaved('numbers')).toMatch(said);
    expect(await subject.save('numbers')).toBe(false);
    await subject.saved();
    await eventually(
      async () => log.lines,
      ({ length }) => length > 0,
    );
    expect(log.lines.map(({ level }) => level)).toEqual(['warn']);
    answer();
    const { ok } = await eventually(
      async () => subject.check(),
      (check) => check.ok,
    );
    expect([ok, subject.unsaved('numbers')]).toEqual([true, undefined]);
    await subject.saved();
    expect(files().load('numbers')).toMatchObject({ content: { revisions: 7 } });
    expect(log.lines.map(({ level }) => level)).toEqual(['warn', 'info']);
  });

  it('does not keep the agent from ending, and what waited is not written afterwards', async () => {
    const subject = files();
    const first = subject.save('numbers');
    await Promise.resolve();
    subject.provide('numbers', () => ({ cidrs: {}, labels: {}, nodes: {}, revisions: 8 }));
    void subject.save('numbers');
    const end = subject.stop();
    expect(await subject.save('endpoints')).toBe(false);
    await end;
    expect(await first).toBe(false);
    answer();
    // The writing that was under way ends; its content is the one of before.
    await eventually(
      async () => readdirSync(folder),
      (names) => names.includes('identities.json'),
    );
    await subject.stop();
    expect(save.mock.calls).toHaveLength(1);
    expect(readdirSync(folder)).not.toContain('endpoints.json');
  });
});
