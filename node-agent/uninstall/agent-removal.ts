import { type RunCommand, runCommand } from '../cni/command.ts';
import type { CniInstallation, CniService, PodNetwork } from '../cni/index.ts';
import type { AgentConfig } from '../config/config.ts';
import type { Core } from '../core.ts';
import { type NodeRouting, removeRoutes } from '../routing/index.ts';
import { removeDatapath } from './cleanup.ts';
import type { Removal } from './types.ts';

/** The steps of a running agent that removes itself. */
export function agentRemoval(parts: {
  readonly core: Core;
  readonly cni: CniService;
  readonly network: PodNetwork;
  readonly routing: NodeRouting;
  readonly installation: CniInstallation | undefined;
  readonly config: Pick<AgentConfig, 'bpfRoot' | 'stateDir'>;
  readonly run?: RunCommand;
}): Removal {
  const { core, cni, network, routing, installation, config, run = runCommand } = parts;
  return {
    refuse: () => cni.close('Weir is being removed from this node'),
    cni: async () => (await installation?.remove()) ?? [],
    datapath: () => removeDatapath(core, config),
    podLinks: () => network.hostLinks(),
    routes: async () => {
      // Or it would make them again.
      await routing.stop();
      return await removeRoutes(run);
    },
  };
}
