import { flag, path } from '@weir/process/flags';
import { nodeAddresses } from '../core/own-node.ts';
import { corePart } from '../core/part.ts';
import { definePart } from '../parts/contract.ts';
import { PodNetwork } from './network.ts';

/** The node's side of pods' interfaces. */
export const podNetworkPart = definePart({
  name: 'pod-network',
  needs: { core: corePart },
  flags: {
    procSys: flag<string>('--proc-sys <dir>', "the node's /proc/sys, writable (only net is needed)")
      .default('/proc/sys')
      .argParser(path),
  },
  build: ({ core }, { config }) => {
    const { procSys, nodeName } = config;
    const network = new PodNetwork({ procSys, nodeAddresses: () => nodeAddresses(core, nodeName) });
    return { provides: network, removal: { inUse: () => network.hostLinks() } };
  },
});
