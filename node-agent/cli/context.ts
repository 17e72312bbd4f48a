import { printableLines } from '@weir/process/printable';
import type { Command } from 'commander';
import { AgentClient } from './client.ts';

export interface Output {
  write(text: string): void;
}

/** Nothing but text and ends of lines reaches it. What must not begin a line of its own goes through `line`, or a table's cell. */
export function terminal(stream: Output): Output {
  return { write: (text) => stream.write(printableLines(text)) };
}

/** What every command has. */
export interface CliContext {
  /** @param within ends its requests, beside the command's own signal */
  client(command: Command, within?: AbortSignal): AgentClient;
  readonly out: Output;
  readonly err: Output;
  /** `-o json` was given. */
  json(command: Command): boolean;
  setExitCode(code: number): void;
}

export const DEFAULT_SOCKET = '/var/run/weir/weir.sock';

export function createContext(streams: {
  readonly out: Output;
  readonly err: Output;
  readonly setExitCode: (code: number) => void;
  readonly signal: AbortSignal;
  /** How long the agent may take to answer, in milliseconds. */
  readonly answerMs?: number | undefined;
}): CliContext {
  const { signal, answerMs } = streams;
  return {
    ...streams,
    client: (command, within) =>
      new AgentClient(
        String(command.optsWithGlobals().socket),
        within === undefined ? signal : AbortSignal.any([signal, within]),
        answerMs,
      ),
    json: (command) => command.optsWithGlobals().output === 'json',
  };
}

export function printJson(context: Pick<CliContext, 'out'>, value: unknown): void {
  context.out.write(`${JSON.stringify(value, null, 2)}\n`);
}
