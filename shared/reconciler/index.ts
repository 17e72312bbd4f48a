export type { Clock } from './clock.ts';
export {
  InvalidOptionError,
  LateFailureError,
  NotInitialisedError,
  ReconcilerError,
  ReconcilerStoppedError,
} from './errors.ts';
export { createReconciler } from './reconciler.ts';
export * from './types.ts';
