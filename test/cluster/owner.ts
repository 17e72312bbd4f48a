/** Who owns what a cluster made: a process, known by its id and start time, so that an id used again by another is not taken for it. */
import { readFileSync } from 'node:fs';

/** Start time of a process in clock ticks since boot (proc(5), field 22); undefined when it does not run. */
export function startTime(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    // A zombie runs no more: it only waits for its parent.
    return fields[0] === 'Z' ? undefined : fields[19];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT' || (error as NodeJS.ErrnoException).code === 'ESRCH')
      return undefined;
    throw error;
  }
}

export interface ProcessMark {
  readonly pid: number;
  readonly started: string | undefined;
}

export const mark = (pid: number): ProcessMark => ({ pid, started: startTime(pid) });

/** Whether that very process still runs. */
export const alive = (process: ProcessMark): boolean =>
  process.started !== undefined && startTime(process.pid) === process.started;

/** Sends a signal to that very process; nothing when it has ended. */
export function signal(process: ProcessMark, name: NodeJS.Signals): void {
  if (!alive(process)) return;
  try {
    globalThis.process.kill(process.pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
