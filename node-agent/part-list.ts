import { healthPart } from './api/health-part.ts';
import { apiPart, socketPart } from './api/part.ts';
import { cniInstallationPart } from './cni/installation-part.ts';
import { podNetworkPart } from './cni/network-part.ts';
import { cniPart } from './cni/part.ts';
import { datapathPart } from './core/datapath-part.ts';
import { corePart } from './core/part.ts';
import { dnsPart } from './dns/part.ts';
import { explainPart } from './explain/part.ts';
import { flowsPart } from './flows/part.ts';
import { heartbeatPart } from './heartbeat/part.ts';
import { kubernetesPart } from './kubernetes/part.ts';
import { masqueradePart } from './masquerade/part.ts';
import { nodeAddressesPart } from './node-addresses/part.ts';
import type { AnyAgentPart } from './parts/contract.ts';
import { routingPart } from './routing/part.ts';
import { servicesOutsidePart } from './services/outside-part.ts';
import { servicesPart } from './services/part.ts';
import { uninstallPart } from './uninstall/part.ts';
import { uplinksPart } from './uplinks/part.ts';

/**
 * The agent. The order counts where needs do not decide: the API listens only once the kernel side runs, and the CNI plugin is installed after the
 * API. The kernel goes on enforcing while parts stop.
 */
export const AGENT_PARTS: readonly AnyAgentPart[] = [
  socketPart,
  datapathPart,
  corePart,
  nodeAddressesPart,
  uplinksPart,
  servicesPart,
  servicesOutsidePart,
  masqueradePart,
  flowsPart,
  explainPart,
  heartbeatPart,
  kubernetesPart,
  podNetworkPart,
  dnsPart,
  cniPart,
  routingPart,
  apiPart,
  healthPart,
  cniInstallationPart,
  uninstallPart,
];
