/** A process in a pod of a test: answers UDP and accepts TCP on port 7777, keeps letters that come to port 7778, and asks other pods when told so over IPC. */
import { createSocket, type Socket } from 'node:dgram';
import { createServer, connect as openTcp, type Socket as TcpSocket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';

const PORT = 7777;
/** Of one question and its answer, in milliseconds. */
const TALK_MS = 1500;

type Command =
  | { readonly id: number; readonly kind: 'ask' | 'dial' | 'write'; readonly address: string }
  | {
      readonly id: number;
      readonly kind: 'talk';
      readonly address: string;
      readonly port: number;
      readonly bytes: number;
    }
  | { readonly id: number; readonly kind: 'say'; readonly to: string }
  | { readonly id: number; readonly kind: 'answered' | 'forget'; readonly question: number }
  | { readonly id: number; readonly kind: 'stream'; readonly address: string; readonly everyMs: number }
  | { readonly id: number; readonly kind: 'sync' | 'report' | 'end' | 'heard' | 'letters' | 'answer' };

const echo = createSocket('udp4');
echo.on('message', (message, from) => echo.send(message, from.port, from.address));

/** The TCP connection to or from each address, the newest. */
const connections = new Map<string, TcpSocket>();
let heard = 0;

function keep(socket: TcpSocket): void {
  if (socket.remoteAddress !== undefined) connections.set(socket.remoteAddress, socket);
  socket.setNoDelay(true);
  socket.on('data', (bytes) => {
    heard += bytes.length;
  });
  socket.on('error', () => undefined);
}

function dial(address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = openTcp(PORT, address, () => {
      keep(socket);
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

const listener = createServer(keep);
echo.bind(PORT, '0.0.0.0', () => listener.listen(PORT, '0.0.0.0', () => process.send?.({ id: 0, answer: 'ready' })));

/** Datagrams of one conversation, to port 7778; answered only when told so. */
const LETTERS = 7778;
let correspondent: { readonly port: number; readonly address: string } | undefined;
let letters = 0;
const letterBox = createSocket('udp4');
letterBox.on('message', (_, from) => {
  correspondent = from;
  letters += 1;
});
letterBox.bind(LETTERS, '0.0.0.0');
const pen = createSocket('udp4');
pen.on('message', () => {
  letters += 1;
});

/** Resolves once what the sockets hold by now has been read and answered: a turn for the poll under way, and a whole one. */
async function sync(): Promise<void> {
  await turn();
  await turn();
}

interface Question {
  readonly socket: Socket;
  answered: boolean;
}
const questions = new Map<number, Question>();
let asked = 0;

/** One datagram from a new port. Resolves with the question's number once it is sent. */
function ask(address: string): Promise<number> {
  const question: Question = { socket: createSocket('udp4'), answered: false };
  asked += 1;
  const number = asked;
  questions.set(number, question);
  question.socket.on('message', () => {
    question.answered = true;
  });
  // Nobody listens there: as good as no answer.
  question.socket.on('error', () => undefined);
  return new Promise((resolve) => question.socket.send('ask', PORT, address, () => resolve(number)));
}

async function answered(number: number): Promise<boolean> {
  await sync();
  return questions.get(number)?.answered === true;
}

function forget(number: number): void {
  questions.get(number)?.socket.close();
  questions.delete(number);
}

/** One datagram from a connected socket, and what comes of it: the kernel gives it nothing but what comes from the address that it sends to. */
function talk(address: string, port: number, bytes: number): Promise<'answered' | 'refused' | 'silent'> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4');
    const done = (outcome: 'answered' | 'refused' | 'silent'): void => {
      clearTimeout(patience);
      socket.close();
      resolve(outcome);
    };
    const patience = setTimeout(() => done('silent'), TALK_MS);
    socket.on('message', ({ length }) => done(length === bytes ? 'answered' : 'silent'));
    socket.on('error', () => done('refused'));
    socket.connect(port, address, () => socket.send(Buffer.alloc(bytes, 'x')));
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

  /** Sends no more from now on. */
  stop(): void {
    clearInterval(this.#timer);
  }

  /** What was sent, and how much of it is not answered by now. */
  async report(): Promise<{ sent: number; lost: number }> {
    await sync();
    return { sent: this.#sent, lost: this.#open.size };
  }

  close(): void {
    this.#socket.close();
  }
}

let stream: Stream | undefined;
process.on('message', (command: Command) => {
  const answer = (value: unknown): void => {
    process.send?.({ id: command.id, answer: value });
  };
  switch (command.kind) {
    case 'ask':
      void ask(command.address).then(answer);
      break;
    case 'talk':
      void talk(command.address, command.port, command.bytes).then(answer);
      break;
    case 'dial':
      void dial(command.address).then(answer);
      break;
    case 'write':
      pen.send('letter', LETTERS, command.address, () => answer(true));
      break;
    case 'answer':
      letterBox.send('answer', correspondent?.port ?? 0, correspondent?.address, () => answer(true));
      break;
    case 'letters':
      void sync().then(() => answer(letters));
      break;
    case 'say':
      answer(connections.get(command.to)?.write('.') === true);
      break;
    case 'heard':
      void sync().then(() => answer(heard));
      break;
    case 'answered':
      void answered(command.question).then(answer);
      break;
    case 'forget':
      forget(command.question);
      answer(true);
      break;
    case 'stream':
      stream = new Stream(command.address, command.everyMs);
      answer(true);
      break;
    case 'sync':
      void sync().then(answer);
      break;
    case 'report':
      stream?.stop();
      void stream?.report().then(answer);
      break;
    case 'end':
      stream?.close();
      stream = undefined;
      answer(true);
      break;
  }
});
process.on('disconnect', () => process.exit(0));
