/** A flag or environment variable that cannot be used. The message names the flag, its value and the fix. Exit code 2. */
export class ConfigError extends Error {
  readonly code = 'AGENT_CONFIG';
  constructor(message: string) {
    super(message);
    this.name = 'ConfigError';
  }
}

/** The machine cannot run the agent. Exit code 1. */
export class PreflightError extends Error {
  readonly code = 'AGENT_PREFLIGHT';
  constructor(message: string) {
    super(message);
    this.name = 'PreflightError';
  }
}
