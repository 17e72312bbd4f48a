export { registerMetrics } from './metrics.ts';
