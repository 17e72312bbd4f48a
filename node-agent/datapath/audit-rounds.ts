import { delay } from '@weir/process/delay';
import { type Content, restAfter, type StepResult } from './audit.ts';

/** How soon it is noticed that others took programs or pins away, in milliseconds. */
const AUDIT_MS = 5000;

export interface AuditRoundsOptions {
  /** How often is looked at what is enforced, in milliseconds. Default 5000. */
  readonly auditMs?: number | undefined;
  readonly look: () => Promise<void>;
  readonly step: (part: Content) => Promise<StepResult>;
  /** Runs it beside no round. */
  readonly exclusively: (job: () => Promise<void>) => Promise<void>;
  readonly onError: (error: unknown) => void;
  readonly signal: AbortSignal;
}

/** Looks at what is enforced, and compares what maps hold in steps, until the signal. */
export async function auditRounds(options: AuditRoundsOptions): Promise<void> {
  const { auditMs: often = AUDIT_MS, signal } = options;
  const look = async (): Promise<number> => {
    await options.look();
    return often;
  };
  const step = async (part: Content): Promise<number> => {
    const before = process.threadCpuUsage();
    const result = await options.step(part);
    const { user, system } = process.threadCpuUsage(before);
    return restAfter(result, (user + system) / 1000, often);
  };
  /** Each returns how long it rests. */
  const jobs = [look, () => step('slot'), () => step('address')];
  const due = jobs.map((run) => ({ run, at: performance.now() + often }));
  for (;;) {
    const next = due.reduce((a, b) => (a.at <= b.at ? a : b));
    await delay(Math.max(0, next.at - performance.now()), signal, { ref: false });
    if (signal.aborted) return;
    let rest = often;
    try {
      await options.exclusively(async () => {
        rest = await next.run();
      });
    } catch (error) {
      options.onError(error);
    }
    next.at = performance.now() + rest;
  }
}
