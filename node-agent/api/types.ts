/**
 * The agent's API: Cilium's agent API v1 over a unix socket (spec section 9), with a few additions of our own.
 *
 * Guarantees: errors are plain JSON strings; a PUT of an endpoint answers 201 only once the kernel enforces it; a rejected policy
 * import changes nothing and names each problem's path. The socket is for root and its group only (mode 0660).
 */
import type { Core, Logger } from '../core.ts';
import type { Flows } from '../flows/flows.ts';
import type { AgentView } from '../parts/contract.ts';
import type { EndpointRow } from '../tables.ts';

export interface ApiOptions {
  readonly core: Core;
  readonly flows: Pick<Flows, 'events'>;
  readonly log: Logger;
  readonly version: string;
  readonly nodeName: string;
  readonly clusterName: string;
  readonly kubernetes: boolean;
  /** What the parts of the agent say of themselves, and the routes that they bring. */
  readonly agent: Pick<AgentView, 'conditions' | 'events' | 'eventSources' | 'idle' | 'parts' | 'routes' | 'settings'>;
  /** Removes an endpoint that CNI made, with its interface; false when it is not one. */
  readonly detach: (endpoint: EndpointRow) => Promise<boolean>;
  readonly interfaceIndex: (name: string) => Promise<number>;
  readonly podCidrs: () => readonly string[];
  /** Why addresses that no pod has are not given at the moment, and for how long; undefined: they are. */
  readonly resting?: () => string | undefined;
  /** How long somebody who follows a table may take nothing of it, in milliseconds. Default 30,000. */
  readonly followPatienceMs?: number;
}
