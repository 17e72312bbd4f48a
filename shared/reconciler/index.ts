export { type Clock, systemClock } from './clock.ts';
export * from './errors.ts';
export { createReconciler } from './reconciler.ts';
export { failureKey, reportTables } from './report.ts';
export * from './types.ts';
