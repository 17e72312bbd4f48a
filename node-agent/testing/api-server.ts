/** The API on a core that is not the kernel's, for tests. */
import { ApiServer } from '../api/server.ts';
import { cniRoute } from '../cni/part.ts';
import type { Core, Logger } from '../core.ts';
import type { Flows } from '../flows/flows.ts';
import type { AgentPart } from '../parts/contract.ts';
import { agentView } from './agent-view.ts';

/** Looks every 20 ms whether its socket is there. */
export function apiServer(of: {
  readonly socket: string;
  readonly core: Core & Pick<Flows, 'events'>;
  readonly agent?: AgentPart;
  readonly log: Logger;
  readonly followPatienceMs?: number;
}): ApiServer {
  const { agent = {}, ...given } = of;
  return new ApiServer({
    ...given,
    flows: of.core,
    socketLookMs: 20,
    version: '0.0.1',
    nodeName: 'n1',
    clusterName: 'default',
    kubernetes: false,
    agent: agentView(agent, {
      routes: (app) => cniRoute(app, async () => ({ ok: true, body: { cniVersion: '1.0.0' } })),
    }),
    detach: () => Promise.resolve(false),
    interfaceIndex: () => Promise.resolve(42),
    podCidrs: () => ['10.1.0.0/24'],
  });
}
