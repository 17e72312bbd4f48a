export * from './errors.ts';
export { HealthServer, type HealthServerOptions } from './health-server.ts';
export { createMetrics } from './metrics.ts';
export type * from './models.ts';
export { ApiServer } from './server.ts';
export { claimSocketPath } from './socket.ts';
export { agentStatus } from './status-routes.ts';
export type { ApiOptions } from './types.ts';
