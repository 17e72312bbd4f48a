import type { CoreOptions } from '../core.ts';
import { NetnsMark, nodeScope, RootLock, removePinned } from '../datapath/index.ts';
import { nodeInterfaces } from '../host/interfaces.ts';
import { VETH_PATTERN } from '../host/veth.ts';
import { removeStateFiles, stateFile } from '../state/state-files.ts';

export type RemoveDatapathOptions = Pick<CoreOptions, 'bpfRoot' | 'stateDir' | 'nodeName' | 'nodeNetns' | 'log'>;

/**
 * Removes what an agent has left in the kernel and in its state folder, from what is pinned alone; packets flow freely afterwards.
 * Interfaces of pods, their addresses and routes stay. Succeeds when there is nothing.
 * @throws AgentRunningError while an agent drives these maps; NetnsMismatchError in another network namespace; RemoveError naming what could not be removed
 */
export async function removeDatapath(options: RemoveDatapathOptions): Promise<void> {
  const { bpfRoot, stateDir, nodeNetns, log } = options;
  const lock = new RootLock(bpfRoot, stateDir, log);
  lock.acquireExisting();
  try {
    const inNode = nodeScope(options);
    new NetnsMark(bpfRoot, inNode).check();
    const named = rememberedNames(options);
    const interfaces = [...(await nodeInterfaces(nodeNetns)).values()];
    removePinned({
      root: bpfRoot,
      inNode,
      interfaces: interfaces
        .filter(({ name }) => VETH_PATTERN.test(name) || named.has(name))
        .map(({ ifindex }) => ifindex),
    });
    removeStateFiles(stateDir);
    log.info({ bpfRoot, stateDir }, 'programs, links, maps and state are gone; nothing is enforced on this node');
  } finally {
    lock.release();
  }
}

/** Names of the endpoints' interfaces, as far as the state folder tells. */
function rememberedNames({ stateDir, nodeName, log }: RemoveDatapathOptions): ReadonlySet<string> {
  try {
    const loaded = stateFile(stateDir, nodeName, 'endpoints').read();
    return new Set(loaded === 'absent' ? [] : loaded.content.map(({ interfaceName }) => interfaceName));
  } catch (error) {
    log.warn(
      { error: String(error) },
      'the file of endpoints cannot be read; finding their interfaces by what is pinned',
    );
    return new Set();
  }
}
