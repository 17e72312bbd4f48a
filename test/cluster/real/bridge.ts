/** A plain pod network to compare with: Debian's bridge and host-local plugins. Routes between nodes are the cluster's (nodeRoutes). */
import { chmodSync, copyFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const CONFIGURATION = 'etc/cni/net.d/10-bridge.conflist';

/** Puts the plugins and their configuration on a node's disk. @param cidr the node's pod network. */
export function bridgeOn(folder: string, cidr: string): void {
  for (const plugin of ['bridge', 'host-local', 'portmap']) {
    copyFileSync(join('/usr/lib/cni', plugin), join(folder, 'opt/cni/bin', plugin));
    chmodSync(join(folder, 'opt/cni/bin', plugin), 0o755);
  }
  const configuration = {
    cniVersion: '1.0.0',
    name: 'bridge',
    plugins: [
      {
        type: 'bridge',
        bridge: 'cni0',
        isGateway: true,
        hairpinMode: true,
        ipam: { type: 'host-local', ranges: [[{ subnet: cidr }]], routes: [{ dst: '0.0.0.0/0' }] },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
    ],
  };
  const path = join(folder, CONFIGURATION);
  writeFileSync(`${path}.tmp`, JSON.stringify(configuration, undefined, 1));
  // containerd 1.6 sees a rename within the folder, and not one into it.
  renameSync(`${path}.tmp`, path);
}

/** Pods that have it keep it until they are deleted. */
export function bridgeOff(folder: string): void {
  rmSync(join(folder, CONFIGURATION), { force: true });
}
