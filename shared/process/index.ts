export { type Heap, MemoryReturn } from './memory.ts';
export { registerMetrics } from './metrics.ts';
