import { socketOption } from './socket-option.ts';

const SO_PEERCRED = 17;
/** struct ucred: pid, uid, gid, of 32 bits each. */
const UCRED_BYTES = 12;
/** (uid_t)-1, which is nobody's. */
const NO_ID = 0xffffffff;

/** The process at the other end of a unix socket, as it was when it connected. */
export interface SocketPeer {
  readonly uid: number;
  readonly gid: number;
  /** Undefined: it is in a PID namespace that the caller of `socketPeer` does not see. */
  readonly pid: number | undefined;
}

/**
 * Who connected to a unix socket (SO_PEERCRED in unix(7)); undefined for a socket that knows no peer, as one of TCP. The kernel keeps this
 * from connect(2) on, so that the process may have ended, or have other credentials, since.
 * @throws BpfError when `fd` is no socket
 */
export function socketPeer(fd: number): SocketPeer | undefined {
  const credentials = socketOption(fd, SO_PEERCRED, UCRED_BYTES, 'read who is at the other end of a socket');
  const [pid, uid, gid] = [credentials.readInt32LE(0), credentials.readUInt32LE(4), credentials.readUInt32LE(8)];
  if (uid === NO_ID || gid === NO_ID) return undefined;
  return { uid, gid, pid: pid > 0 ? pid : undefined };
}
