/**
 * Images without a registry: a folder becomes a tar file that containerd imports. Two are on every node: localhost/pause:1, which holds
 * a pod's namespaces, and localhost/busybox:1.
 */
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from '../run.ts';

export interface ImageSpec {
  /** With a host part, or containerd gives it one: `localhost/tool:1`. */
  readonly name: string;
  /** Folder that becomes its root. */
  readonly root: string;
  readonly command: readonly string[];
  readonly env?: readonly string[];
}

const PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const ARCHITECTURE = process.arch === 'x64' ? 'amd64' : process.arch;

/** Writes images into one tar file. The same folders give the same image ids. */
export async function writeImages(images: readonly ImageSpec[], tarFile: string): Promise<void> {
  const work = mkdtempSync(join(tmpdir(), 'wr-image-'));
  try {
    const manifest: object[] = [];
    for (const [index, image] of images.entries()) {
      const layer = `layer-${index}.tar`;
      const same = ['--numeric-owner', '--owner=0', '--group=0', '--sort=name', '--mtime=@0'];
      await run('tar', ['-C', image.root, ...same, '-cf', join(work, layer), '.']);
      const digest = createHash('sha256')
        .update(readFileSync(join(work, layer)))
        .digest('hex');
      const config = {
        architecture: ARCHITECTURE,
        os: 'linux',
        created: '1970-01-01T00:00:00Z',
        config: { Env: [PATH, ...(image.env ?? [])], Cmd: image.command, WorkingDir: '/' },
        rootfs: { type: 'layers', diff_ids: [`sha256:${digest}`] },
        history: [{ created: '1970-01-01T00:00:00Z' }],
      };
      writeFileSync(join(work, `config-${index}.json`), JSON.stringify(config));
      manifest.push({ Config: `config-${index}.json`, RepoTags: [image.name], Layers: [layer] });
    }
    writeFileSync(join(work, 'manifest.json'), JSON.stringify(manifest));
    const parts = images.flatMap((_, index) => [`config-${index}.json`, `layer-${index}.tar`]);
    await run('tar', ['-C', work, '-cf', tarFile, 'manifest.json', ...parts]);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** The images that every node has. */
export async function writeBaseImages(tarFile: string): Promise<void> {
  const work = mkdtempSync(join(tmpdir(), 'wr-base-'));
  try {
    const [pause, busybox] = [join(work, 'pause'), join(work, 'busybox')];
    for (const root of [pause, busybox])
      for (const folder of ['bin', 'etc', 'tmp', 'root', 'proc', 'sys', 'dev'])
        mkdirSync(join(root, folder), { recursive: true });
    for (const root of [pause, busybox]) copyFileSync('/usr/bin/busybox', join(root, 'bin/busybox'));
    const { stdout } = await run('/usr/bin/busybox', ['--list']);
    for (const applet of stdout.split('\n').filter((name) => name !== '' && name !== 'busybox'))
      symlinkSync('busybox', join(busybox, 'bin', applet));
    writeFileSync(join(busybox, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
    writeFileSync(join(busybox, 'etc/group'), 'root:x:0:\n');
    await writeImages(
      [
        { name: 'localhost/pause:1', root: pause, command: ['/bin/busybox', 'sleep', '2147483647'] },
        { name: 'localhost/busybox:1', root: busybox, command: ['sh'] },
      ],
      tarFile,
    );
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
