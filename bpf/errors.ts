/**
 * A value does not fit a key or value of a BPF map, or its bytes are not of that layout.
 * @fix Give the field what the message expects. From a pinned map: an agent of another version wrote it; see docs/upgrade.md.
 */
export class LayoutError extends Error {
  readonly code = 'ERR_WEIR_BPF_LAYOUT';

  constructor(what: string, field: string, value: string, expected: string) {
    super(`${what}.${field}: ${value} does not fit; expected ${expected}`);
    this.name = 'LayoutError';
  }
}

/**
 * The datapath could not be compiled, or the prebuilt object is missing.
 * @fix Do what the message ends with: install a compiler or a header, or name a prebuilt object.
 */
export class DatapathBuildError extends Error {
  readonly code = 'ERR_WEIR_BPF_BUILD';
  readonly fix: string;

  constructor(cause: string, fix: string) {
    super(`cannot build the datapath: ${cause}. ${fix}`);
    this.name = 'DatapathBuildError';
    this.fix = fix;
  }
}
