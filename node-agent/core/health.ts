import type { Core, HealthCheck } from '../core.ts';
import { InterfaceGoneError } from '../errors.ts';
import type { KernelSide } from './kernel-side.ts';

/** What holds everything back, and what to do about it. */
export const RULES_UNKNOWN =
  'the rules that were imported on this node are not known, as their file is lost or does not match the rules in force: what was enforced ' +
  'stays enforced, and nothing new is, until you import them with `weir policy import`, or say with `weir policy delete --all` that there are none';

/** What is not put in force while these are missing, and what becomes of pods that change. */
export function incompleteText(pending: readonly string[]): string {
  return (
    'what was enforced when the agent started stays enforced, nothing new is, and pods that change are not let through, as for more than half a ' +
    `minute it has waited for ${pending.join(', ')}; see that the operator and the API server answer, and the agent's log`
  );
}

export interface HealthSources {
  readonly side: Pick<KernelSide, 'writer' | 'sync' | 'audit'> | undefined;
  readonly removed: boolean;
  /** Inputs that are not complete, as text. */
  readonly pending: readonly string[];
  /** Nobody knows which rules were imported. */
  readonly rulesAwaited: boolean;
  /** What other parts say of themselves. */
  readonly more: readonly HealthCheck[];
}

/** Each part of the core, and whether it does its work. */
export function healthOf(sources: HealthSources): ReturnType<Core['health']> {
  const { side } = sources;
  const checks = [
    running(sources),
    inputs(sources),
    kernel(side),
    ...(side === undefined ? [] : [side.audit.check()]),
    ...sources.more,
  ];
  return { ok: checks.every(({ ok }) => ok), checks };
}

function running({ side, removed }: HealthSources): HealthCheck {
  const message = removed
    ? 'the datapath was removed: nothing is enforced on this node'
    : side
      ? 'the core runs'
      : 'the core is not started';
  return { name: 'running', ok: side !== undefined, message };
}

function inputs({ pending, rulesAwaited }: HealthSources): HealthCheck {
  if (!rulesAwaited && pending.length === 0) return { name: 'inputs', ok: true, message: 'all inputs are complete' };
  const why = rulesAwaited
    ? RULES_UNKNOWN
    : `not complete yet: ${pending.join(', ')}; what was enforced stays enforced`;
  return { name: 'inputs', ok: false, message: why };
}

function kernel(side: HealthSources['side']): HealthCheck {
  const name = 'kernel';
  const broken = side?.sync.broken;
  if (broken !== undefined) {
    const why = broken instanceof Error ? broken.message : 'for an unknown reason';
    return { name, ok: false, message: `the last round failed: ${why}` };
  }
  const failing = side
    ? [...side.writer.slots.failing(), ...side.writer.ipcache.failing(), ...side.writer.endpoints.failing()].filter(
        // Nothing is to be enforced there; the next look takes the endpoint out.
        ({ error }) => !(error instanceof InterfaceGoneError),
      )
    : [];
  const [first] = failing;
  if (first !== undefined)
    return { name, ok: false, message: `the kernel refuses ${failing.length} changes: ${first.error.message}` };
  // What others took away since, the audit names.
  return side?.audit.check().ok === false
    ? { name, ok: false, message: 'the kernel has lost part of what it acknowledged' }
    : { name, ok: true, message: 'the kernel has what is wanted' };
}
