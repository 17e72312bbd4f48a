/**
 * The API of the agent could not do what was asked. The body of the answer is the message, a JSON string.
 * @fix 503: try again later. 500: see the message and the log of the agent.
 */
export class HttpError extends Error {
  readonly code: string = 'ERR_WEIR_API';
  readonly statusCode: number;

  constructor(statusCode: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.statusCode = statusCode;
  }
}

/**
 * A request to the API of the agent is not valid (status 400).
 * @fix Correct what the message names.
 */
export class BadRequestError extends HttpError {
  override readonly code = 'ERR_WEIR_API_BAD_REQUEST';
  constructor(message: string) {
    super(400, message);
  }
}

/**
 * A request names something that does not exist (status 404).
 * @fix List what there is: `weir endpoint list`, `weir map list`, `weir table list`.
 */
export class NotFoundError extends HttpError {
  override readonly code = 'ERR_WEIR_API_NOT_FOUND';
  constructor(message: string) {
    super(404, message);
  }
}

/**
 * A request contradicts what there is (status 409).
 * @fix Do what the message says.
 */
export class ConflictError extends HttpError {
  override readonly code = 'ERR_WEIR_API_CONFLICT';
  constructor(message: string) {
    super(409, message);
  }
}

/**
 * The client closed its connection before it was answered.
 * @fix None is needed.
 */
export class ClientGoneError extends HttpError {
  override readonly code = 'ERR_WEIR_API_CLIENT_GONE';
  constructor() {
    super(499, 'the client went away');
  }
}

/**
 * A client that follows a table did not read for too long, and was cut off.
 * @fix Follow the table again, and read faster.
 */
export class SlowReaderError extends Error {
  readonly code = 'ERR_WEIR_API_SLOW_READER';
  /** @param patienceMs how long it has taken nothing, in milliseconds */
  constructor(patienceMs: number) {
    super(`the reader has read nothing for ${patienceMs / 1000} s: follow the table again, and read faster`);
    this.name = 'SlowReaderError';
  }
}

/**
 * The agent cannot listen on the path of `--socket`.
 * @fix Do what the message says: stop the other agent, remove the file, or choose another path.
 */
export class SocketError extends Error {
  readonly code = 'ERR_WEIR_API_SOCKET';
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'SocketError';
  }
}
