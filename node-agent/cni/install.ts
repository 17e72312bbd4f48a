import { chmod, copyFile, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf } from '@weir/process/errors';
import { makeFolder } from '@weir/process/folders';
import { CniInstallError } from './errors.ts';

export interface CniInstallOptions {
  /** The built shim. */
  readonly binary: string;
  /** Where runtimes look for plugins: /opt/cni/bin. */
  readonly binDir: string;
  /** Where runtimes look for configurations: /etc/cni/net.d. */
  readonly confDir: string;
  /** The agent's socket as seen from the host. */
  readonly socket: string;
}

export const CONFLIST = '10-weir.conflist';
const PLUGIN = 'weir-cni';
/** The CNI project's plugin for hostPort. */
export const PORTMAP = 'portmap';

/**
 * The network configuration list that makes runtimes call weir-cni. With `portmap`, that plugin maps host ports after it. weir-cni is told of
 * them in both cases, and whether somebody maps them: where nobody does, it says so of the pod that asks.
 */
export function conflist(socket: string, options: { readonly portmap?: boolean } = {}): object {
  const capabilities = { portMappings: true };
  const mapsHostPorts = options.portmap === true;
  const portmap = mapsHostPorts ? [{ type: PORTMAP, capabilities }] : [];
  return {
    cniVersion: '1.0.0',
    name: 'weir',
    plugins: [{ type: PLUGIN, socket, capabilities, mapsHostPorts }, ...portmap],
  };
}

/**
 * Puts the plugin and its configuration in place where they are not as they should be; what was written is returned. Each file is written
 * beside its final name and renamed: a runtime never sees half a file, one that runs the old plugin goes on with it, and containerd
 * notices a rename inside the folder. The binary comes first: a configuration never names a missing plugin.
 */
export async function installCni(options: CniInstallOptions): Promise<readonly string[]> {
  const { binDir, confDir } = options;
  const written: string[] = [];
  const plugin = join(binDir, PLUGIN);
  if (!(await sameContent(options.binary, plugin))) {
    await place(plugin, binDir, async (temporary) => {
      await copyFile(options.binary, temporary);
      await chmod(temporary, 0o755);
    });
    written.push(plugin);
  }
  const path = join(confDir, CONFLIST);
  const portmap = await hasPortmap(binDir);
  const text = `${JSON.stringify(conflist(options.socket, { portmap }), null, 2)}\n`;
  if ((await read(path, (file) => readFile(file, 'utf8'))) !== text) {
    await place(path, confDir, (temporary) => writeFile(temporary, text, { mode: 0o644 }));
    written.push(path);
  }
  return written;
}

/** Takes away what `installCni` made, the configuration first; files of that name that are not ours stay. Returns what is gone. */
export async function removeCni(options: {
  readonly binDir: string;
  readonly confDir: string;
}): Promise<readonly string[]> {
  const removed: string[] = [];
  const config = join(options.confDir, CONFLIST);
  const plugin = join(options.binDir, PLUGIN);
  const ours = [
    [config, (content: Buffer) => content.includes(`"${PLUGIN}"`)],
    // The shim's own messages begin so.
    [plugin, (content: Buffer) => content.includes(`${PLUGIN}: `)],
  ] as const;
  for (const [path, isOurs] of ours) {
    try {
      const content = await read(path, (file) => readFile(file));
      if (content === undefined || !isOurs(content)) continue;
      await rm(path);
      removed.push(path);
    } catch (error) {
      throw new CniInstallError(
        `cannot remove ${path}: ${String(error)}; remove it by hand: pods of this node cannot start while it is there and no agent runs`,
        { cause: error },
      );
    }
  }
  return removed;
}

/** Whether the runtime could run it: a list that names a plugin which cannot be run lets no pod start. */
export async function hasPortmap(binDir: string): Promise<boolean> {
  const there = await read(join(binDir, PORTMAP), (file) => stat(file));
  return there?.isFile() === true && (there.mode & 0o111) !== 0;
}

async function sameContent(wanted: string, path: string): Promise<boolean> {
  const there = await read(path, async (file) => ({ content: await readFile(file), mode: (await stat(file)).mode }));
  return there !== undefined && (there.mode & 0o111) === 0o111 && there.content.equals(await readFile(wanted));
}

/** Undefined when there is no such file, or none that can be looked at: writing it then says why. */
async function read<T>(path: string, from: (path: string) => Promise<T>): Promise<T | undefined> {
  try {
    return await from(path);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'EISDIR'].includes(codeOf(error) ?? '')) return undefined;
    throw error;
  }
}

async function place(path: string, folder: string, write: (temporary: string) => Promise<void>): Promise<void> {
  // The leading dot and the ending keep runtimes from reading it as a configuration.
  const temporary = join(folder, `.weir-${process.pid}.tmp`);
  try {
    await makeFolder(folder);
    await write(temporary);
    // On disk before it has its name: a node that loses power has the old file or the new one.
    const handle = await open(temporary, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined);
    throw new CniInstallError(
      `cannot install ${path}: ${String(error)} (mount the host's folder writable into the agent, or choose another by --cni-install and --cni-conf-dir)`,
      {
        cause: error,
      },
    );
  }
}
