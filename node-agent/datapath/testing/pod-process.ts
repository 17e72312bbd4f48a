/** A process in a pod of a test: answers UDP on port 7777, and asks other pods when told so over IPC. */
import { createSocket } from 'node:dgram';

const PORT = 7777;

type Command =
  | { readonly id: number; readonly kind: 'ask'; readonly address: string; readonly waitMs: number }
  | { readonly id: number; readonly kind: 'stream'; readonly address: string; readonly everyMs: number }
  | { readonly id: number; readonly kind: 'end' };

const echo = createSocket('udp4');
echo.on('message', (message, from) => echo.send(message, from.port, from.address));
echo.bind(PORT, '0.0.0.0', () => process.send?.({ id: 0, answer: 'ready' }));

/** One datagram from a new port; whether an answer came. */
function ask(address: string, waitMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4');
    const timer = setTimeout(() => finish(false), waitMs);
    const finish = (answer: boolean): void => {
      clearTimeout(timer);
      socket.close();
      resolve(answer);
    };
    socket.on('message', () => finish(true));
    socket.on('error', () => finish(false));
    socket.send('ask', PORT, address);
  });
}

/** Datagrams of one flow until it is ended; the numbers of those that were not answered. */
class Stream {
  readonly #socket = createSocket('udp4');
  readonly #open = new Set<number>();
  readonly #timer: NodeJS.Timeout;
  #sent = 0;

  constructor(address: string, everyMs: number) {
    this.#socket.on('message', (message) => this.#open.delete(Number(message.toString())));
    this.#timer = setInterval(() => {
      this.#sent += 1;
      this.#open.add(this.#sent);
      this.#socket.send(String(this.#sent), PORT, address);
    }, everyMs);
  }

  async end(): Promise<{ sent: number; lost: number }> {
    clearInterval(this.#timer);
    await new Promise((resolve) => setTimeout(resolve, 300));
    this.#socket.close();
    return { sent: this.#sent, lost: this.#open.size };
  }
}

let stream: Stream | undefined;
process.on('message', (command: Command) => {
  const answer = (value: unknown): void => {
    process.send?.({ id: command.id, answer: value });
  };
  switch (command.kind) {
    case 'ask':
      void ask(command.address, command.waitMs).then(answer);
      break;
    case 'stream':
      stream = new Stream(command.address, command.everyMs);
      answer(true);
      break;
    case 'end':
      void stream?.end().then(answer);
      break;
  }
});
process.on('disconnect', () => process.exit(0));
