import { messageOf } from '@weir/process/errors';
import { type Place, START } from './places.ts';

/**
 * A command of `weir` failed. Exit code 1.
 * @fix Do what the message says.
 */
export class CliError extends Error {
  readonly code: string = 'ERR_WEIR_CLI';
  readonly exitCode: number;
  constructor(message: string, exitCode = 1, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.exitCode = exitCode;
  }
}

/**
 * The arguments of a command of `weir` are wrong. Exit code 2; of commands that judge files 64, as of sysexits(3).
 * @fix See `--help` of that command.
 */
export class UsageError extends CliError {
  override readonly code = 'ERR_WEIR_CLI_USAGE';
  constructor(message: string, exitCode = 2) {
    super(message, exitCode);
  }
}

/**
 * A file of policies is no YAML or JSON, or has aliases that stand for too much. Exit code 1.
 * @fix Correct the file at the line that the message names.
 */
export class DocumentError extends CliError {
  override readonly code = 'ERR_WEIR_CLI_DOCUMENT';
  readonly reason: string;
  readonly place: Place;
  constructor(file: string, reason: string, place: Place = START, options?: ErrorOptions) {
    super(`${file} ${reason}`, 1, options);
    this.reason = reason;
    this.place = place;
  }
}

/**
 * A file or folder cannot be read. Exit code 66, as of sysexits(3).
 * @fix See the message: the path, or its permissions.
 */
export class UnreadableError extends CliError {
  override readonly code = 'ERR_WEIR_CLI_UNREADABLE';
  constructor(path: string, cause: unknown) {
    super(`cannot read ${path}: ${messageOf(cause)}`, 66, { cause });
  }
}

/**
 * What the command waited for did not happen in time. Exit code 124, as of timeout(1).
 * @fix See `weir status` for what the agent waits for, or give the command more time.
 */
export class TimeoutError extends CliError {
  override readonly code = 'ERR_WEIR_CLI_TIMEOUT';
  constructor(message: string) {
    super(message, 124);
  }
}

/**
 * A signal ended the command. Exit code 130 for SIGINT, 143 for SIGTERM, as shells have it.
 * @fix None is needed.
 */
export class InterruptedError extends CliError {
  override readonly code = 'ERR_WEIR_CLI_INTERRUPTED';
  constructor(signal: 'SIGINT' | 'SIGTERM') {
    super(`interrupted by ${signal}`, signal === 'SIGINT' ? 130 : 143);
  }
}

/**
 * The agent answered with an error, or did not answer.
 * @fix Do what the message says. No answer: see whether the agent runs, and whether `--socket` names its socket.
 */
export class AgentError extends CliError {
  override readonly code = 'ERR_WEIR_CLI_AGENT';
  /** Of its answer. */
  readonly status: number | undefined;
  constructor(message: string, exitCode = 1, options: ErrorOptions & { readonly status?: number } = {}) {
    super(message, exitCode, options);
    this.status = options.status;
  }
}
