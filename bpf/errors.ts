/** A value does not fit the datapath's layout. */
export class LayoutError extends Error {
  readonly code = 'WEIR_BPF_LAYOUT';

  constructor(what: string, field: string, value: string, expected: string) {
    super(`${what}.${field}: ${value} does not fit; expected ${expected}`);
    this.name = 'LayoutError';
  }
}

/** The datapath could not be compiled. `fix` says what to install or to set. */
export class DatapathBuildError extends Error {
  readonly code = 'WEIR_BPF_BUILD';
  readonly fix: string;

  constructor(cause: string, fix: string) {
    super(`cannot build the datapath: ${cause}. ${fix}`);
    this.name = 'DatapathBuildError';
    this.fix = fix;
  }
}
