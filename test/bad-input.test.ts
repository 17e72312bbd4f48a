import { existsSync, readdirSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from '@jest/globals';
import { CLUSTERS, sweep } from './cluster/index.ts';
import { attempt, ROOT } from './cluster/run.ts';

const node = (file: string, ...args: readonly string[]) =>
  attempt(process.execPath, [join(ROOT, file), ...args], { timeoutMs: 120_000 });

describe('what cannot be done says why, how to mend it, and ends with a code other than 0', () => {
  let taken: Server | undefined;
  afterEach(() => {
    taken?.close();
  });

  it('a taken port: nothing is left behind', async () => {
    taken = createServer();
    const port = await new Promise<number>((resolve) => {
      taken?.listen(0, '127.0.0.1', () => {
        const address = taken?.address();
        resolve(typeof address === 'object' && address !== null ? address.port : 0);
      });
    });
    const { code, stderr } = await node('test/cluster/start.ts', '--port', String(port));
    expect(code).toBe(1);
    expect(stderr).toContain(`127.0.0.1:${port}`);
    expect(stderr).toMatch(/another port/);
    await sweep();
    const clusters = existsSync(CLUSTERS) ? readdirSync(CLUSTERS) : [];
    for (const id of clusters) expect(existsSync(join(CLUSTERS, id, 'owner.json'))).toBe(true);
  });

  it.each([
    ['test/cluster/start.ts', ['--nodes', '0'], '--nodes is "0": give a whole number from 1 to 8'],
    ['test/cluster/start.ts', ['--families', '4,5'], '--families is "4,5": give 4, 6 or 4,6'],
    ['test/cluster/start.ts', ['--bogus'], 'usage: npm start'],
    ['test/bench/main.ts', ['no-such-suite'], 'suites: path'],
    ['node-agent/main.ts', ['--node-name', 'n', '--no-kubernetes', '--pod-cidr', '10.1.0.0/99'], '10.1.0.0/99'],
    ['operator/main.ts', ['--bogus'], '--bogus'],
  ])('%s %j', async (file, args, says) => {
    const { code, stderr } = await node(file, ...args);
    expect(code).toBeGreaterThan(0);
    expect(stderr).toContain(says);
  });

  it('bootstrap as another user than root', async () => {
    // A user namespace without a mapping: the id is nobody's, and the files of this checkout are still readable.
    const { code, stderr } = await attempt('unshare', [
      '--user',
      process.execPath,
      join(ROOT, 'scripts/bootstrap.mjs'),
      'demo',
    ]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/user id 65534\n {2}fix: run it as root/);
  });

  it('doctor on a machine without compilers', async () => {
    const { code, stdout } = await attempt(process.execPath, [join(ROOT, 'scripts/doctor.mjs')], {
      env: { PATH: '/nonexistent' },
    });
    expect(code).toBe(1);
    expect(stdout).toMatch(/MISSING {2}package clang .*\n.*fix: apt-get install clang/);
  });
});
