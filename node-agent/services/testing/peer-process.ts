/** A process of a test: serves at addresses, and asks others, as it is told over IPC. Who serves answers with its address and port. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { createServer, connect as openTcp, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Answer, Ask, Command } from './peer.ts';

const PATIENCE_MS = 30_000;

const held = new Map<string, Socket | UdpSocket>();

function serve({ address, port, protocol }: Extract<Command, { kind: 'serve' }>): Promise<Answer> {
  const name = `${address} ${port}`;
  return new Promise((resolve) => {
    if (protocol === 'TCP') {
      const server = createServer((socket) => {
        socket.on('error', () => undefined);
        socket.on('data', () => socket.write(name));
      });
      server.on('error', (error) => resolve({ error: String(error) }));
      server.listen(port, address, () => resolve({ text: name }));
    } else {
      const server = createSocket(address.includes(':') ? 'udp6' : 'udp4');
      server.on('message', (_, from) => server.send(name, from.port, from.address));
      server.on('error', (error) => resolve({ error: String(error) }));
      server.bind(port, address, () => resolve({ text: name }));
    }
  });
}

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? String(error);

/** One question by a connection, which is kept if it has a name: the next question of this name uses it. */
function askTcp({ address, port, keep }: Ask): Promise<Answer> {
  const old = keep === undefined ? undefined : held.get(keep);
  // It ended when nobody asked.
  if (old !== undefined && (old as Socket).destroyed) return Promise.resolve({ error: 'closed' });
  return new Promise((resolve) => {
    const socket = old === undefined ? openTcp(port, address) : (old as Socket);
    socket.removeAllListeners('error').removeAllListeners('data');
    socket.on('error', (error) => resolve({ error: codeOf(error) }));
    const closed = (): void => resolve({ error: 'closed' });
    socket.once('close', closed);
    socket.once('data', (data) => {
      socket.off('close', closed);
      const { remoteAddress, remotePort } = socket;
      resolve({ text: data.toString(), peer: `${remoteAddress} ${remotePort}` });
      if (keep === undefined) socket.destroy();
      else held.set(keep, socket);
    });
    socket.write('who?');
  });
}

/** One datagram: by a socket that is connected, or by one that sends to the address. */
function askUdp({ address, port, keep, connected, family }: Ask): Promise<Answer> {
  const old = keep === undefined ? undefined : held.get(keep);
  return new Promise((resolve) => {
    const six = family === 6 || address.includes(':');
    const socket = old === undefined ? createSocket(six ? 'udp6' : 'udp4') : (old as UdpSocket);
    const done = (answer: Answer): void => {
      if (keep === undefined && answer.error === undefined) socket.close();
      else if (keep !== undefined) held.set(keep, socket);
      resolve(answer);
    };
    socket.removeAllListeners('error').removeAllListeners('message');
    socket.on('error', (error) => done({ error: codeOf(error) }));
    socket.once('message', (message, from) => {
      const answer = { text: message.toString(), from: `${from.address} ${from.port}` };
      if (connected !== true) return done(answer);
      try {
        const peer = socket.remoteAddress();
        done({ ...answer, peer: `${peer.address} ${peer.port}` });
      } catch (error) {
        // The kernel has closed it after the answer came.
        done({ error: codeOf(error) });
      }
    });
    const sent = (error: Error | null | undefined): void => {
      if (error) done({ error: codeOf(error) });
    };
    if (connected !== true) socket.send('who?', port, address, sent);
    else if (old !== undefined) socket.send('who?', sent);
    else
      socket.connect(port, address, (...[error]: unknown[]) => {
        if (error) done({ error: codeOf(error) });
        else socket.send('who?', sent);
      });
  });
}

/** No answer and no error after this long is a fault. */
async function patience(): Promise<Answer> {
  await sleep(PATIENCE_MS, undefined, { ref: false });
  return { error: 'silence' };
}

process.on('message', ({ id, command }: { id: number; command: Command }) => {
  const answered = (answer: Answer): void => void process.send?.({ id, answer });
  if (command.kind === 'serve') void serve(command).then(answered);
  else void Promise.race([command.protocol === 'TCP' ? askTcp(command) : askUdp(command), patience()]).then(answered);
});
process.on('disconnect', () => process.exit(0));
process.send?.({ id: 0, answer: {} });
