export { Cluster, type ClusterOptions, type Host, type PodSpec, type ProbeOptions } from './cluster.ts';
export { CLUSTERS, remains, sweep } from './leftovers.ts';
export type { ClusterNode } from './node.ts';
export type { OpenStream, PodProcess } from './pod/process.ts';
export type { ProbeProtocol, ProbeResult, StreamReport } from './pod/protocol.ts';
export { attempt, CommandError, type Output, ROOT, run, TOOL_PATH } from './run.ts';
