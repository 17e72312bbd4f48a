export { type Clock, systemClock } from './clock.ts';
export * from './errors.ts';
export { createReconciler } from './reconciler.ts';
export { type FailureRow, failureKey, type HealthRow, type ReportTables, reportTables } from './report.ts';
export * from './types.ts';
