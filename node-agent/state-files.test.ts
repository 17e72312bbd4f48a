import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { removeStateFiles, StateFiles } from './state-files.ts';
import { recordingLogger } from './testing/fake-core.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-state-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function files(log = recordingLogger(), node = 'here'): StateFiles {
  const endpoint = { id: 1, ifindex: 2, interfaceName: 'v', ipv4: '10.0.0.1', createdAt: '' };
  return new StateFiles({
    folder,
    node,
    db: createStateDB({ freeze: true }),
    log,
    contents: {
      endpoints: () => [endpoint],
      rules: () => [{ a: 1 }],
      numbers: () => ({ cidrs: { '10.0.0.0/8': 16777217 }, labels: {}, revisions: 7 }),
    },
  });
}

const ALL = [
  ['endpoints', 'endpoints.json'],
  ['rules', 'rules.json'],
  ['numbers', 'identities.json'],
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
  it.each(ALL)('is read back as it was written: %s', (name, _) => {
    expect(files().load(name)).toBe('absent');
    expect(files().save(name)).toBe(true);
    expect(files().load(name)).toMatchObject({ content: expect.anything() });
    expect(files().check()).toEqual({ name: 'state-folder', ok: true, message: 'what outlives a restart is on disk' });
  });

  it('of an agent that did not write its node down is read', () => {
    writeFileSync(join(folder, 'rules.json'), '{"version":1,"content":[{"a":1}]}');
    expect(files().load('rules')).toEqual({ content: [{ a: 1 }] });
  });

  it.each(ALL.flatMap(([name, file]) => TORN.map(([how, tear]) => [file, how, name, tear] as const)))(
    '%s, %s, is kept under another name and said, and a new one is written',
    (file, _, name, tear) => {
      const log = recordingLogger();
      files().save(name);
      const bad = tear(readFileSync(join(folder, file), 'utf8'));
      writeFileSync(join(folder, file), bad);
      const found = files(log);
      expect(found.load(name)).toBe('unreadable');
      const [kept = ''] = readdirSync(folder);
      expect([kept.startsWith(`${file}.unreadable-`), readFileSync(join(folder, kept), 'utf8')]).toEqual([true, bad]);
      expect(log.lines.map(({ level }) => level)).toEqual(['error']);
      expect(found.check()).toMatchObject({ ok: true, message: expect.stringContaining(kept) });
      expect(found.save(name)).toBe(true);
      expect(files().load(name)).toMatchObject({ content: expect.anything() });
      removeStateFiles(folder);
      expect(() => readdirSync(folder)).toThrow('ENOENT');
    },
  );
});
