/**
 * The agent's API: Cilium's agent API v1 over a unix socket (spec section 9), with a few additions of our own.
 *
 * Guarantees: errors are plain JSON strings; a PUT of an endpoint answers 201 only once the kernel enforces it; a rejected policy
 * import changes nothing and names each problem's path. The socket is for root and its group only (mode 0660).
 */
import type { CniAnswer } from '../cni/types.ts';
import type { Core, Logger } from '../core.ts';
import type { EndpointRow } from '../tables.ts';

export interface Condition {
  readonly ok: boolean;
  readonly message: string;
}

export interface ApiOptions {
  readonly core: Core;
  readonly log: Logger;
  readonly version: string;
  readonly nodeName: string;
  readonly clusterName: string;
  readonly policyEnforcement: string;
  /** What `GET /v1/config` shows. */
  readonly settings: Readonly<Record<string, string>>;
  readonly cni: {
    handle(request: unknown): Promise<CniAnswer>;
    /** Removes an endpoint that CNI made, with its interface; false when it is not one. */
    detach(endpoint: EndpointRow): Promise<boolean>;
  };
  readonly interfaceIndex: (name: string) => Promise<number>;
  readonly podCidrs: () => readonly string[];
  /** State of the connection to Kubernetes; undefined without Kubernetes. */
  readonly kubernetes?: () => Condition;
  /** Whether the container runtime uses the plugin; undefined when the agent does not install it. */
  readonly cniStatus?: () => Condition;
  /** The routes to other nodes. */
  readonly routing?: () => Condition;
  /** Whether clients find the agent's socket. */
  readonly listening?: () => Condition;
  /** Whether each address of a pod is that pod's alone. */
  readonly addresses?: () => Condition;
  /** Why addresses that no pod has are not given at the moment, and for how long; undefined: they are. */
  readonly resting?: () => string | undefined;
  /** Why this agent does nothing any more; undefined while it works. */
  readonly idle?: () => string | undefined;
  /** How long somebody who follows a table may take nothing of it, in milliseconds. Default 30,000. */
  readonly followPatienceMs?: number;
}
