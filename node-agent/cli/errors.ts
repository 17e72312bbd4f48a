/** A failure that the user can understand and mend; the message is all that is printed. */
export class CliError extends Error {
  readonly code: string = 'CLI';
  readonly exitCode: number;
  constructor(message: string, exitCode = 1, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.exitCode = exitCode;
  }
}

/** Wrong arguments: exit code 2. */
export class UsageError extends CliError {
  override readonly code = 'CLI_USAGE';
  constructor(message: string) {
    super(message, 2);
  }
}

/** What was waited for did not come in time: exit code 124, as of timeout(1). */
export class TimeoutError extends CliError {
  override readonly code = 'CLI_TIMEOUT';
  constructor(message: string) {
    super(message, 124);
  }
}

/** A signal ended the command: exit code 130 for SIGINT, 143 for SIGTERM, as shells have it. */
export class InterruptedError extends CliError {
  override readonly code = 'CLI_INTERRUPTED';
  constructor(signal: 'SIGINT' | 'SIGTERM') {
    super(`interrupted by ${signal}`, signal === 'SIGINT' ? 130 : 143);
  }
}

/** The agent answered with an error, or did not answer. */
export class AgentError extends CliError {
  override readonly code = 'CLI_AGENT';
  /** Of its answer. */
  readonly status: number | undefined;
  constructor(message: string, exitCode = 1, options: ErrorOptions & { readonly status?: number } = {}) {
    super(message, exitCode, options);
    this.status = options.status;
  }
}
