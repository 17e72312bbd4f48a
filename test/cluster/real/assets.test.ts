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
  async function withGo(script: string, built = false): Promise<string> {
    writeFileSync(join(folder, 'go'), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, 'go'), 0o755);
    const program = `
      import { assets } from '${ROOT}/test/cluster/real/index.ts';
      await assets((line) => console.log(line));
    `;
    const output = await attempt(process.execPath, ['--input-type=module', '-e', program], {
      env: { WEIR_ASSETS: join(folder, 'assets'), PATH: `${folder}:${process.env.PATH ?? ''}` },
    });
    expect([output.stderr, output.code === 0]).toEqual([expect.anything(), built]);
    return output.stdout + output.stderr;
  }

  it('are not built by a Go that is too old: the message says which, and the fix', async () => {
    const said = await withGo('echo go version go1.20.3 linux/amd64');
    expect(said).toMatch(
      /go is go version go1\.20\.3 linux\/amd64, which is too old\n {2}fix: install Go 1\.25 or newer/,
    );
  });

  it('are files of their names, put where the go command writes them', async () => {
    // As go does: into a folder when -o names one that exists.
    const said = await withGo(
      `[ "$1" = version ] && echo go version go1.30.0 linux/amd64 && exit
while [ "$1" != -o ]; do shift; done
[ -d "$2" ] && out=$2/main || out=$2
printf '#!/bin/sh\necho v1.34.4 3.6.4\n' > "$out" && chmod +x "$out"`,
      true,
    );
    expect(said).toContain('built kube-proxy');
    const bin = readdirSync(join(folder, 'assets/bin'), { withFileTypes: true });
    expect(
      bin
        .filter((entry) => entry.isFile())
        .map(({ name }) => name)
        .sort(),
    ).toEqual([
      ...['coredns', 'etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-proxy', 'kube-scheduler', 'kubelet'],
    ]);
  });

  it('appear complete or not at all: a build that fails leaves nothing behind', async () => {
    const said = await withGo(
      '[ "$1" = version ] && echo go version go1.30.0 linux/amd64 && exit; echo no space >&2; exit 1',
    );
    expect(said).toContain('building etcd (1 of 7');
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
