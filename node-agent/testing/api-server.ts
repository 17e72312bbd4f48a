/** The API on a core that is not the kernel's, for tests. */
import { ApiServer } from '../api/server.ts';
import { cniRoute } from '../cni/part.ts';
import type { Core, Logger } from '../core.ts';
import { agentView } from './agent-view.ts';

/** Looks every 20 ms whether its socket is there. */
export function apiServer(of: {
  readonly socket: string;
  readonly core: Core;
  readonly log: Logger;
  readonly followPatienceMs?: number;
}): ApiServer {
  return new ApiServer({
    ...of,
    socketLookMs: 20,
    version: '0.0.1',
    nodeName: 'n1',
    clusterName: 'default',
    kubernetes: false,
    agent: agentView({ routes: (app) => cniRoute(app, async () => ({ ok: true, body: { cniVersion: '1.0.0' } })) }),
    detach: () => Promise.resolve(false),
    interfaceIndex: () => Promise.resolve(42),
    podCidrs: () => ['10.1.0.0/24'],
  });
}
