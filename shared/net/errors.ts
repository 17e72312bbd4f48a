/** A text or number is not what it must be. The message names the value and the fix. */
export abstract class NetError extends Error {
  abstract readonly code: string;
  /** The offending text, as given. */
  readonly value: string;

  constructor(value: string, reason: string) {
    super(messageOf(value, reason));
    this.name = new.target.name;
    this.value = value;
  }
}

/**
 * A text is not an IP address.
 * @fix Write four decimal numbers such as 10.1.2.3, or an IPv6 address such as fd00::1.
 */
export class AddressError extends NetError {
  readonly code = 'ERR_WEIR_ADDRESS';
}

/**
 * A text is not a prefix.
 * @fix Write an address and a prefix length, such as 10.1.0.0/16, with zeros after the prefix.
 */
export class PrefixError extends NetError {
  readonly code = 'ERR_WEIR_PREFIX';
}

/**
 * Two numbers are not an interval of ports.
 * @fix Give 0 <= from <= to <= 65535.
 */
export class PortError extends NetError {
  readonly code = 'ERR_WEIR_PORT';
}

/** What a text is not, for who reads thousands of them: an error costs 5 to 10 us, for its stack. */
export class Unreadable {
  readonly #type: typeof AddressError | typeof PrefixError;
  readonly #value: string;
  readonly #reason: string;

  constructor(type: typeof AddressError | typeof PrefixError, value: string, reason: string) {
    this.#type = type;
    this.#value = value;
    this.#reason = reason;
  }

  /** That of the error. */
  get message(): string {
    return messageOf(this.#value, this.#reason);
  }

  get error(): NetError {
    return new this.#type(this.#value, this.#reason);
  }
}

function messageOf(value: string, reason: string): string {
  const text = JSON.stringify(value);
  return `${text.length > 80 ? `${text.slice(0, 77)}...` : text} ${reason}`;
}
