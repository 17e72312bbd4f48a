import { chmodSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { attempt, ROOT } from '../run.ts';

describe('the programs of a real cluster', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'wr-assets-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  /** Asks for them with a `go` of ours first on the PATH, and nothing built. */
  async function withGo(script: string): Promise<string> {
    writeFileSync(join(folder, 'go'), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, 'go'), 0o755);
    const program = `
      import { assets } from '${ROOT}/test/cluster/real/index.ts';
      await assets((line) => console.log(line));
    `;
    const output = await attempt(process.execPath, ['--input-type=module', '-e', program], {
      env: { WEIR_ASSETS: join(folder, 'assets'), PATH: `${folder}:${process.env.PATH ?? ''}` },
    });
    expect(output.code).not.toBe(0);
    return output.stdout + output.stderr;
  }

  it('are not built by a Go that is too old: the message says which, and the fix', async () => {
    const said = await withGo('echo go version go1.20.3 linux/amd64');
    expect(said).toMatch(
      /go is go version go1\.20\.3 linux\/amd64, which is too old\n {2}fix: install Go 1\.24 or newer/,
    );
  });

  it('appear complete or not at all: a build that fails leaves nothing behind', async () => {
    const said = await withGo(
      '[ "$1" = version ] && echo go version go1.30.0 linux/amd64 && exit; echo no space >&2; exit 1',
    );
    expect(said).toContain('building etcd (1 of 6');
    expect(said).toContain('no space');
    expect(readdirSync(join(folder, 'assets'))).toEqual(['bin']);
    expect(readdirSync(join(folder, 'assets/bin'))).toEqual([]);
  });
});

describe('npm run start:real', () => {
  it.each([
    [['--nodes', 'two'], '--nodes is "two": give a whole number from 0 to 8'],
    [['--network', 'cilium'], '--network is "cilium": give weir, bridge or none'],
    [['--help'], 'usage: npm run start:real'],
  ])('refuses %j with code 2', async (args, message) => {
    const output = await attempt(process.execPath, [join(ROOT, 'test/cluster/real/start.ts'), ...args]);
    expect(output.code).toBe(2);
    expect(output.stderr).toContain(message);
  });
});
