/** Errors of the DNS proxy. */

/**
 * The kernel refused a call about a socket.
 * @fix Give the proxy CAP_NET_ADMIN and CAP_NET_RAW, a port that nobody else has, and as many open files as the node's pods ask questions at a time.
 */
export class SocketError extends Error {
  readonly code = 'ERR_WEIR_DNS_SOCKET';
  readonly errnoName: string;

  constructor(operation: string, errnoName: string) {
    super(`${operation}: ${errnoName}`);
    this.name = 'SocketError';
    this.errnoName = errnoName;
  }
}
