import { flag, path } from '@weir/process/flags';
import { Gauge } from 'prom-client';
import { definePart } from '../parts/contract.ts';
import { buildCni } from './build.ts';
import { removeCni } from './install.ts';
import { CniInstallation } from './installation.ts';

/** Where a runtime looks for plugins, for who cleans up by hand. */
const BIN_DIR = '/opt/cni/bin';

/** The plugin and its configuration, where the container runtime looks for them. */
export const cniInstallationPart = definePart({
  name: 'cni-installation',
  flags: {
    cniInstall: flag<string | undefined>('--cni-install <dir>', 'install the CNI plugin into this folder').argParser(
      path,
    ),
    cniConfDir: flag<string>('--cni-conf-dir <dir>', 'where 10-weir.conflist is installed')
      .default('/etc/cni/net.d')
      .argParser(path),
    cniBinary: flag<string | undefined>(
      '--cni-binary <file>',
      'weir-cni to install; built from source when absent',
    ).argParser(path),
  },
  build: async (_given, { config, command, log }) => {
    const { cniInstall: binDir, cniConfDir: confDir, cniBinary, socket } = config;
    if (command === 'cleanup') return { removal: { runtime: () => removeCni({ binDir: binDir ?? BIN_DIR, confDir }) } };
    const name = 'cni';
    const title = 'CNI';
    if (binDir === undefined) {
      const message = 'this agent does not install the CNI plugin';
      return { conditions: [{ name, title, read: () => ({ ok: true, off: true, message }) }] };
    }
    const binary = cniBinary ?? (await buildCni());
    const installation = new CniInstallation({ binary, binDir, confDir, socket, log });
    return {
      start: () => installation.start(),
      stop: () => installation.stop(),
      conditions: [{ name, title, read: () => installation.status(), reason: 'PluginNotInUse' }],
      metrics: (registry) => {
        new Gauge({
          name: 'weir_agent_cni_installed',
          help: '1 while the container runtime of this node uses Weir.',
          registers: [registry],
          collect() {
            this.set(installation.status().ok ? 1 : 0);
          },
        });
      },
      removal: { runtime: () => installation.remove() },
    };
  },
});
