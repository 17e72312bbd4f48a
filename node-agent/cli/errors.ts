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

/** The agent answered with an error, or did not answer. */
export class AgentError extends CliError {
  override readonly code = 'CLI_AGENT';
}
