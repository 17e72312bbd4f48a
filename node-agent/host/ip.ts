import { CommandError, type RunCommand } from './command.ts';

/** The lines of a batch as `ip -batch -` reads them. */
export function batchLines(batch: readonly string[]): string {
  return `${batch.join('\n')}\n`;
}

/**
 * Runs lines as one `ip -json -batch`; `show` lines print one JSON list each, of which `count` are expected and returned in order.
 * Throws `CommandError`.
 */
export async function ipBatch<T extends unknown[]>(
  run: RunCommand,
  batch: readonly string[],
  count: number,
  netns?: string,
): Promise<T> {
  const args = ['-json', '-batch', '-'];
  const input = batchLines(batch);
  const output =
    netns === undefined ? await run('ip', args, input) : await run('nsenter', [`--net=${netns}`, 'ip', ...args], input);
  const documents = output
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line): unknown => JSON.parse(line));
  if (documents.length !== count || !documents.every(Array.isArray)) {
    throw new CommandError('ip -json -batch', input, `expected ${count} JSON lists, got: ${output.slice(0, 200)}`);
  }
  return documents as T;
}
