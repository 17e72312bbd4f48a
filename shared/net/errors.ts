export type NetErrorCode = 'InvalidAddress' | 'InvalidPrefix' | 'InvalidPort';

/** A text is not an address, a prefix or a port interval. The message names the value and the fix. */
export class NetError extends Error {
  readonly code: NetErrorCode;
  /** The offending text, as given. */
  readonly value: string;

  constructor(code: NetErrorCode, value: string, reason: string) {
    const text = JSON.stringify(value);
    super(`${text.length > 80 ? `${text.slice(0, 77)}...` : text} ${reason}`);
    this.name = 'NetError';
    this.code = code;
    this.value = value;
  }
}
