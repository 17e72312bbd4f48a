import { spawn } from 'node:child_process';
import { CoreError } from '../errors.ts';

/**
 * A command of the system (`ip`, `nsenter`) failed.
 * @fix See the message of that command.
 */
export class CommandError extends CoreError {
  readonly stderr: string;
  /** What it was given on stdin. */
  readonly input: string;

  constructor(command: string, input: string, stderr: string, options?: ErrorOptions) {
    super('ERR_WEIR_COMMAND', `${command} failed: ${stderr.trim() || 'no message'}`, options?.cause);
    this.stderr = stderr;
    this.input = input.trim();
  }
}

/** Runs a command with input on stdin; resolves with stdout, rejects with `CommandError`. */
export type RunCommand = (command: string, args: readonly string[], input?: string) => Promise<string>;

const TIMEOUT_MS = 20_000;

/** The real one. No shell: arguments are passed as they are. */
export const runCommand: RunCommand = (command, args, input = '') =>
  new Promise((resolve, reject) => {
    const line = [command, ...args].join(' ');
    const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'], timeout: TIMEOUT_MS });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    child.on('error', (error) => {
      reject(
        new CommandError(line, input, `${error.message} (is ${command} installed and on the agent's PATH?)`, {
          cause: error,
        }),
      );
    });
    child.on('close', (code, signal) => {
      if (code === 0) resolve(stdout);
      else
        reject(new CommandError(line, input, stderr || (signal === null ? `exit code ${code}` : `ended by ${signal}`)));
    });
    // A command that ends before it has read its input closes the pipe; its exit code says why.
    child.stdin.on('error', () => undefined);
    child.stdin.end(input);
  });
