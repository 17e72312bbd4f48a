/** Kubelet's probe, by HTTP at a listener's own address, where no pod's packets go: an answer shows that the proxy's loop turns. */
import { Socket } from 'node:net';

const WITHIN_MS = 1000;
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n';

/** Takes over the connection `fd`. */
export function answerProbe(fd: number): void {
  const socket = new Socket({ fd, readable: true, writable: true });
  socket.setTimeout(WITHIN_MS, () => socket.destroy());
  socket.on('error', () => undefined);
  socket.once('data', () => socket.end(OK));
}
