export { Cluster, type ClusterOptions } from './cluster.ts';
export { CLUSTERS, remains, sweep } from './leftovers.ts';
export type { ClusterNode } from './node.ts';
export type { OpenStream, PodControl } from './pod/conversation.ts';
export type { PodProcess } from './pod/process.ts';
export type { ProbeProtocol, ProbeResult, StreamReport } from './pod/protocol.ts';
export { attempt, CommandError, type Output, ROOT, run, TOOL_PATH } from './run.ts';
export {
  type Host,
  OUTSIDE,
  OUTSIDE_PORTS,
  OUTSIDE6,
  type PodSpec,
  type PortText,
  type ProbeOptions,
  type TestCluster,
  type TestNode,
} from './types.ts';
