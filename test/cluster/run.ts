/** Runs one command to its end. */
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The checkout's root. */
export const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
/** The project's own Node 24 and tools first. */
export const TOOL_PATH = [
  join(ROOT, 'node_modules/.bin'),
  join(ROOT, '.cache/bin'),
  process.env.PATH ?? '',
  '/usr/sbin',
  '/sbin',
].join(delimiter);

export interface Output {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export class CommandError extends Error {
  readonly output: Output;
  constructor(command: string, output: Output) {
    super(`"${command}" ended with code ${output.code}: ${(output.stderr || output.stdout).trim().slice(-2000)}`);
    this.name = 'CommandError';
    this.output = output;
  }
}

export interface RunOptions {
  readonly stdin?: string;
  /** A file as standard input, in place of `stdin`. */
  readonly stdinFile?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

/** Resolves with the output whatever the exit code; rejects only when the command cannot be started. */
export function attempt(command: string, args: readonly string[], options: RunOptions = {}): Promise<Output> {
  const file = options.stdinFile === undefined ? undefined : openSync(options.stdinFile, 'r');
  return new Promise<Output>((resolve, reject) => {
    const child = spawn(command, [...args], {
      env: { ...process.env, PATH: TOOL_PATH, ...options.env },
      timeout: options.timeoutMs ?? 60_000,
      stdio: [file ?? 'pipe', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    child.on('error', reject);
    child.on('close', (code, signal) =>
      resolve({ code: code ?? 128, stdout, stderr: signal === null ? stderr : `${stderr}\nended by ${signal}` }),
    );
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(options.stdin ?? '');
  }).finally(() => {
    if (file !== undefined) closeSync(file);
  });
}

/** As `attempt`, but any exit code other than 0 throws `CommandError`. */
export async function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<Output> {
  const output = await attempt(command, args, options);
  if (output.code !== 0) throw new CommandError([command, ...args].join(' '), output);
  return output;
}

/** Runs lines as one `ip -batch`, in a network namespace when one is given. Stops at the first failing line. */
export async function ipBatch(lines: readonly string[], netns?: string): Promise<void> {
  const batch = ['ip', '-batch', '-'];
  const [command = '', ...args] = netns === undefined ? batch : ['nsenter', `--net=${netns}`, ...batch];
  await run(command, args, { stdin: `${lines.join('\n')}\n` });
}
