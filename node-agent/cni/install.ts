import { chmod, copyFile, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
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

/** The network configuration list that makes runtimes call weir-cni. */
export function conflist(socket: string): object {
  return { cniVersion: '1.0.0', name: 'weir', plugins: [{ type: 'weir-cni', socket }] };
}

/**
 * Puts the plugin and its configuration in place. Each file is written beside its final name and renamed: a runtime never sees half a
 * file, and containerd notices a rename inside the folder. The binary comes first: a configuration never names a missing plugin.
 */
export async function installCni(options: CniInstallOptions): Promise<void> {
  await place(join(options.binDir, 'weir-cni'), options.binDir, async (temporary) => {
    await copyFile(options.binary, temporary);
    await chmod(temporary, 0o755);
  });
  await place(join(options.confDir, '10-weir.conflist'), options.confDir, (temporary) =>
    writeFile(temporary, `${JSON.stringify(conflist(options.socket), null, 2)}\n`, { mode: 0o644 }),
  );
}

async function place(path: string, folder: string, write: (temporary: string) => Promise<void>): Promise<void> {
  // The leading dot and the ending keep runtimes from reading it as a configuration.
  const temporary = join(folder, `.weir-${process.pid}.tmp`);
  try {
    await mkdir(folder, { recursive: true });
    await write(temporary);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw new CniInstallError(
      `cannot install ${path}: ${String(error)} (mount the host's folder writable into the agent, or choose another by --cni-install and --cni-conf-dir)`,
      {
        cause: error,
      },
    );
  }
}
