import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { resources } from '@weir/kube';
import { namespace } from '../../operator/testing.ts';
import { createWorld, eventually } from './world.ts';

describe('main', () => {
  it('leads, stops cleanly on SIGTERM, and leaves the lease free', async () => {
    const world = await createWorld();
    const folder = await mkdtemp(join(tmpdir(), 'weir-main-'));
    try {
      await world.client.create(resources.Namespace, namespace('weir'));
      const kubeconfig = join(folder, 'config');
      await writeFile(kubeconfig, world.api.kubeconfig());
      const main = new URL('../../operator/main.ts', import.meta.url).pathname;
      const args = [main, '--kubeconfig', kubeconfig, '--leader-namespace', 'weir', '--health-address', '127.0.0.1:0'];
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
      let output = '';
      child.stdout.on('data', (chunk: Buffer) => {
        output += chunk.toString();
      });
      const exited = new Promise<number | null>((resolve) => child.on('exit', (code) => resolve(code)));
      const holder = async (): Promise<string | undefined> =>
        (await world.client.get(resources.Lease, 'weir-operator', 'weir')).spec?.holderIdentity;
      await eventually(async () => expect(await holder()).toMatch(/./));
      await eventually(async () => expect(output).toContain('"inputs complete"'));
      child.kill('SIGTERM');
      expect(await exited).toBe(0);
      expect(await holder()).toBe('');
      for (const line of output.trim().split('\n')) expect(JSON.parse(line)).toHaveProperty('msg');
    } finally {
      await world.stop();
      await rm(folder, { recursive: true });
    }
  });
});
