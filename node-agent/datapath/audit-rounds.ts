import { delay } from '@weir/process/delay';

/** How soon it is noticed that others took programs or pins away, in milliseconds. */
const LOOK_MS = 5_000;
/** From the end of a pass over what maps hold to the next, in milliseconds. */
const COMPARE_MS = 30_000;

export interface AuditRoundsOptions {
  /** How often is looked at what is enforced, in milliseconds; what maps hold is compared a sixth as often. Default 5000. */
  readonly auditMs?: number | undefined;
  readonly look: () => Promise<void>;
  readonly compare: () => Promise<void>;
  readonly onError: (error: unknown) => void;
  readonly signal: AbortSignal;
}

/** Looks at what is enforced, and compares what maps hold beside it, until the signal. */
export async function auditRounds(options: AuditRoundsOptions): Promise<void> {
  const { auditMs = LOOK_MS, look, compare, onError, signal } = options;
  const repeat = async (body: () => Promise<void>, ms: number): Promise<void> => {
    for (;;) {
      await delay(ms, signal, { ref: false });
      if (signal.aborted) return;
      await body().catch(onError);
    }
  };
  await Promise.all([repeat(look, auditMs), repeat(compare, (auditMs * COMPARE_MS) / LOOK_MS)]);
}
