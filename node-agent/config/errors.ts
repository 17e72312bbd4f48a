/**
 * A flag or environment variable cannot be used. Exit code 2.
 * @fix Correct the flag that the message names; see docs/flags.md.
 */
export class ConfigError extends Error {
  readonly code = 'ERR_WEIR_AGENT_CONFIG';
  constructor(message: string) {
    super(message);
    this.name = 'ConfigError';
  }
}

/**
 * The machine cannot run the agent. Exit code 1.
 * @fix Do what the message says; `npm run doctor` checks a machine.
 */
export class PreflightError extends Error {
  readonly code = 'ERR_WEIR_AGENT_PREFLIGHT';
  constructor(message: string) {
    super(message);
    this.name = 'PreflightError';
  }
}
