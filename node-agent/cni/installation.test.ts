import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { recordingLogger } from '../testing/fake-core.ts';
import { conflist, installCni, removeCni } from './install.ts';
import { CniInstallation } from './installation.ts';

let folder = '';
let options: { binary: string; binDir: string; confDir: string; socket: string };
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-install-'));
  options = {
    binary: join(folder, 'built'),
    binDir: join(folder, 'bin'),
    confDir: join(folder, 'net.d'),
    socket: '/run/w.sock',
  };
  await writeFile(options.binary, 'weir-cni: one');
});
afterEach(() => rm(folder, { recursive: true }));

const plugin = (): string => join(options.binDir, 'weir-cni');
const config = (): string => join(options.confDir, '10-weir.conflist');

describe('installCni', () => {
  it('writes what is missing or different, and nothing else', async () => {
    expect(await installCni(options)).toEqual([plugin(), config()]);
    expect(await installCni(options)).toEqual([]);
    const before = await stat(plugin());
    expect(before.mode & 0o777).toBe(0o755);
    await writeFile(options.binary, 'weir-cni: two');
    expect(await installCni(options)).toEqual([plugin()]);
    // Another file under the name: who runs the old one goes on with it.
    expect((await stat(plugin())).ino).not.toBe(before.ino);
    expect(await readdir(options.binDir)).toEqual(['weir-cni']);
    expect(await readdir(options.confDir)).toEqual(['10-weir.conflist']);
    expect(JSON.parse(await readFile(config(), 'utf8'))).toEqual(conflist('/run/w.sock'));
  });

  it('says which folder cannot be made', async () => {
    for (const over of [{ binDir: '/proc/nope' }, { confDir: '/proc/nope/net.d' }])
      await expect(installCni({ ...options, ...over })).rejects.toThrow(
        /cannot install \/proc\/nope.*ENOENT.*--cni-install and --cni-conf-dir/,
      );
  });

  it('chains portmap for hostPort where the node has it', async () => {
    await installCni(options);
    const capabilities = { portMappings: true };
    const ours = { type: 'weir-cni', socket: '/run/w.sock', capabilities };
    const plugins = async (): Promise<unknown> =>
      (JSON.parse(await readFile(config(), 'utf8')) as { plugins: unknown }).plugins;
    expect(await plugins()).toEqual([{ ...ours, mapsHostPorts: false }]);
    const portmap = join(options.binDir, 'portmap');
    // Half of it: not yet a program.
    await writeFile(portmap, '', { mode: 0o644 });
    expect(await installCni(options)).toEqual([]);
    await chmod(portmap, 0o755);
    expect(await installCni(options)).toEqual([config()]);
    expect(await plugins()).toEqual([
      { ...ours, mapsHostPorts: true },
      { type: 'portmap', capabilities },
    ]);
    await rm(portmap);
    expect(await installCni(options)).toEqual([config()]);
    expect(await plugins()).toEqual([{ ...ours, mapsHostPorts: false }]);
  });

  it('says which folder cannot be written', async () => {
    await writeFile(options.confDir, 'a file');
    await expect(installCni(options)).rejects.toThrow(`cannot install ${config()}`);
  });
});

describe('removeCni', () => {
  it('removes the configuration and then the plugin, once', async () => {
    await installCni(options);
    await writeFile(join(options.confDir, '99-other.conflist'), '{}');
    expect(await removeCni(options)).toEqual([config(), plugin()]);
    expect(await readdir(options.confDir)).toEqual(['99-other.conflist']);
    expect(await removeCni(options)).toEqual([]);
  });

  it('leaves what others have put under our names', async () => {
    await installCni(options);
    await writeFile(plugin(), 'something else');
    await writeFile(config(), '{"plugins": [{"type": "bridge"}]}');
    expect(await removeCni(options)).toEqual([]);
    expect(await readFile(plugin(), 'utf8')).toBe('something else');
  });
});

describe('CniInstallation', () => {
  it('puts back what somebody took away, until it is stopped or removed', async () => {
    const log = recordingLogger();
    const installation = new CniInstallation({ ...options, log, checkMs: 10 });
    expect(installation.status()).toEqual({ ok: false, message: 'not installed yet' });
    await installation.start();
    expect(installation.status()).toEqual({ ok: true, message: `installed (${config()})` });
    await rm(config());
    while (!log.lines.some((line) => line.level === 'warn')) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(JSON.parse(await readFile(config(), 'utf8'))).toEqual(conflist('/run/w.sock'));
    await installation.stop();
    expect(await readdir(options.confDir)).toEqual(['10-weir.conflist']);
    expect(await installation.remove()).toEqual([config(), plugin()]);
    expect(installation.status().ok).toBe(false);
  });

  it('follows portmap, which comes and goes, without taking that for a fault', async () => {
    const log = recordingLogger();
    const installation = new CniInstallation({ ...options, log, checkMs: 3_600_000 });
    await installation.start();
    const portmap = join(options.binDir, 'portmap');
    const chained = async (): Promise<boolean> => (await readFile(config(), 'utf8')).includes('"portmap"');
    await writeFile(portmap, '', { mode: 0o755 });
    await eventually(chained, (there) => there);
    await rm(portmap);
    await eventually(chained, (there) => !there);
    await installation.stop();
    expect(log.lines.map(({ level, message }) => `${level} ${message}`)).toEqual([
      'info cni plugin installed',
      'info host ports: the node has portmap now; new pods get them',
      'info host ports: portmap is gone from the node; new pods get none',
    ]);
    expect(await installation.remove()).toEqual([config(), plugin()]);
  });

  it('looks at the plugin folder now and then where the node has no inotify instance left, and says so', async () => {
    const script = `
      const { CniInstallation } = await import(${JSON.stringify(join(import.meta.dirname, 'installation.ts'))});
      const say = (level) => (fields, message) => console.log(level + ' ' + message + ' ' + (fields.error ?? ''));
      const log = { info: say('info'), warn: say('warn'), error: say('error'), debug: say('debug') };
      const installation = new CniInstallation({ ...JSON.parse(process.argv[1]), checkMs: 20, log });
      await installation.start();
      process.stdin.on('end', () => installation.stop()).resume();
    `;
    // The limit of a user namespace of its own.
    const limited = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"';
    const node = [process.execPath, '--input-type=module', '-e', script, JSON.stringify(options)];
    const child = spawn('unshare', ['--user', '--map-root-user', 'sh', '-c', limited, 'sh', ...node], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const next = async (): Promise<unknown> => (await lines.next()).value;
    try {
      expect(await next()).toContain('info cni plugin installed');
      expect(await next()).toMatch(/^info cannot watch the plugin folder; checking it now and then .*EMFILE/);
      await writeFile(join(options.binDir, 'portmap'), '', { mode: 0o755 });
      expect(await next()).toContain('info host ports: the node has portmap now');
    } finally {
      child.stdin.end();
      if (child.exitCode === null) await once(child, 'exit');
    }
  });

  it('names a configuration that the runtime takes instead of ours', async () => {
    const log = recordingLogger();
    const installation = new CniInstallation({ ...options, log });
    await installCni(options);
    await writeFile(join(options.confDir, '10-flannel.conflist'), '{}');
    await writeFile(join(options.confDir, '00-notes.txt'), '');
    await writeFile(join(options.confDir, '20-later.conf'), '');
    await installation.start();
    const { ok, message } = installation.status();
    expect(ok).toBe(false);
    expect(message).toContain(`remove or rename ${join(options.confDir, '10-flannel.conflist')}`);
    expect(log.lines.filter((line) => line.level === 'warn')).toHaveLength(1);
    await rm(join(options.confDir, '10-flannel.conflist'));
    expect(installation.status().ok).toBe(true);
    await installation.stop();
  });

  it('says once that a configuration came before ours later, and that it has gone', async () => {
    const log = recordingLogger();
    const installation = new CniInstallation({ ...options, log, checkMs: 5 });
    await installation.start();
    const said = (text: string) =>
      eventually(
        async () => log.lines.filter(({ message }) => message.includes(text)),
        (lines) => lines.length > 0,
      );
    await writeFile(join(options.confDir, '05-other.conflist'), '{}');
    expect(await said('reads 05-other.conflist before 10-weir.conflist')).toMatchObject([{ level: 'warn' }]);
    await rm(join(options.confDir, '05-other.conflist'));
    await said('reads 10-weir.conflist first again');
    await installation.stop();
    expect(log.lines.filter(({ message }) => message.includes('05-other'))).toHaveLength(1);
  });
});
