/** An answer other than 2xx. The body is the message as a plain JSON string, as Cilium's agent does it (spec section 9). */
export class HttpError extends Error {
  readonly code: string = 'API';
  readonly statusCode: number;

  constructor(statusCode: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.statusCode = statusCode;
  }
}

export class BadRequestError extends HttpError {
  override readonly code = 'API_BAD_REQUEST';
  constructor(message: string) {
    super(400, message);
  }
}

export class NotFoundError extends HttpError {
  override readonly code = 'API_NOT_FOUND';
  constructor(message: string) {
    super(404, message);
  }
}

export class ConflictError extends HttpError {
  override readonly code = 'API_CONFLICT';
  constructor(message: string) {
    super(409, message);
  }
}

/** Nobody is left to be answered: no fault of anybody. */
export class ClientGoneError extends HttpError {
  override readonly code = 'API_CLIENT_GONE';
  constructor() {
    super(499, 'the client went away');
  }
}

/** Who follows a table takes too little of it. */
export class SlowReaderError extends Error {
  readonly code = 'API_SLOW_READER';
  /** @param patienceMs how long it has taken nothing, in milliseconds */
  constructor(patienceMs: number) {
    super(`the reader has taken nothing for ${patienceMs / 1000} s: follow the table again, and read faster`);
    this.name = 'SlowReaderError';
  }
}

/** The socket's path cannot be had. */
export class SocketError extends Error {
  readonly code = 'API_SOCKET';
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'SocketError';
  }
}
