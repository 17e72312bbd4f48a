/**
 * A process in a pod of a test: answers UDP and accepts TCP on port 7777, keeps letters that come to port 7778, and asks other pods when told
 * so over IPC; by IPv4 and IPv6.
 */
import { createSocket, type Socket, type SocketOptions } from 'node:dgram';
import { EventEmitter, once } from 'node:events';
import { createServer, isIPv6, connect as openTcp, type Socket as TcpSocket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';

const PORT = 7777;
/** How long a connection is waited for that is to come, in milliseconds: only ends a wait for what never comes. */
const COMES_MS = 60_000;
/** So many datagrams a socket's buffer holds while its process does not run. */
const HELD = 200;

type Command =
  | { readonly id: number; readonly kind: 'ask' | 'dial' | 'write'; readonly address: string }
  | {
      readonly id: number;
      readonly kind: 'talk';
      readonly address: string;
      readonly port: number;
      readonly bytes: number;
      readonly patienceMs: number;
    }
  | { readonly id: number; readonly kind: 'say'; readonly to: string }
  | { readonly id: number; readonly kind: 'answered' | 'forget'; readonly question: number }
  | { readonly id: number; readonly kind: 'stream'; readonly address: string; readonly everyMs: number }
  | { readonly id: number; readonly kind: 'sync' | 'report' | 'end' | 'heard' | 'letters' | 'answer' };

/** Sockets of each family take only packets of their own. */
const FAMILIES: readonly (SocketOptions & { readonly any: string })[] = [
  { type: 'udp4', any: '0.0.0.0' },
  { type: 'udp6', any: '::', ipv6Only: true },
];

function socketTo(address: string): Socket {
  return createSocket(isIPv6(address) ? 'udp6' : 'udp4');
}

/** The TCP connection to or from each address, the newest. */
const connections = new Map<string, TcpSocket>();
/** Says that a `letter` or a `connection` has come: who sent it knows when it was sent, not when it was read here. */
const arrivals = new EventEmitter();
let heard = 0;

function keep(socket: TcpSocket): void {
  if (socket.remoteAddress !== undefined) connections.set(socket.remoteAddress, socket);
  arrivals.emit('connection');
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

/** Datagrams of one conversation, to port 7778; answered only when told so. */
const LETTERS = 7778;
/** Answers the last letter. */
let reply: ((sent: () => void) => void) | undefined;
let letters = 0;
const pens = new Map<boolean, Socket>();

function write(address: string, sent: () => void): void {
  let pen = pens.get(isIPv6(address));
  if (pen === undefined) {
    pen = socketTo(address);
    pens.set(isIPv6(address), pen);
    pen.on('message', () => {
      letters += 1;
    });
  }
  pen.send('letter', LETTERS, address, sent);
}

/** Writes to the other's connection, and waits for it where it has not come. False where it does not come. */
async function say(to: string): Promise<boolean> {
  const signal = AbortSignal.timeout(COMES_MS);
  try {
    while (!connections.has(to)) await once(arrivals, 'connection', { signal });
  } catch {
    return false;
  }
  return connections.get(to)?.write('.') === true;
}

/** Answers the last letter, and waits for one where none has come. */
async function answerLetter(): Promise<void> {
  if (reply === undefined) await once(arrivals, 'letter');
  await new Promise<void>((resolve) => reply?.(resolve));
}

async function listen({ any, ...options }: (typeof FAMILIES)[number]): Promise<void> {
  const echo = createSocket(options);
  echo.on('message', (message, from) => echo.send(message, from.port, from.address));
  const letterBox = createSocket(options);
  letterBox.on('message', (_, { port, address }) => {
    reply = (sent) => letterBox.send('answer', port, address, sent);
    letters += 1;
    arrivals.emit('letter');
  });
  const listener = createServer(keep);
  echo.bind(PORT, any);
  letterBox.bind(LETTERS, any);
  listener.listen({ port: PORT, host: any, ipv6Only: true });
  await Promise.all([once(echo, 'listening'), once(letterBox, 'listening'), once(listener, 'listening')]);
}

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
  const question: Question = { socket: socketTo(address), answered: false };
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
function talk({
  address,
  port,
  bytes,
  patienceMs,
}: Extract<Command, { kind: 'talk' }>): Promise<'answered' | 'refused' | 'silent'> {
  return new Promise((resolve) => {
    const socket = socketTo(address);
    const done = (outcome: 'answered' | 'refused' | 'silent'): void => {
      clearTimeout(patience);
      socket.close();
      resolve(outcome);
    };
    const patience = setTimeout(() => done('silent'), patienceMs);
    socket.on('message', ({ length }) => done(length === bytes ? 'answered' : 'silent'));
    socket.on('error', () => done('refused'));
    socket.connect(port, address, () => socket.send(Buffer.alloc(bytes, 'x')));
  });
}

/**
 * Datagrams of one flow until it is ended, the first at once; the numbers of those that were not answered. Of a flow that was answered no
 * more are under way than the other's socket holds: none is lost because the other's process waits for its turn.
 */
class Stream {
  readonly #socket: Socket;
  readonly #open = new Set<number>();
  readonly #timer: NodeJS.Timeout;
  #sent = 0;
  #answered = false;

  constructor(address: string, everyMs: number) {
    this.#socket = socketTo(address);
    this.#socket.on('message', (message) => {
      this.#answered = true;
      this.#open.delete(Number(message.toString()));
    });
    this.#send(address);
    this.#timer = setInterval(() => this.#send(address), everyMs);
  }

  #send(address: string): void {
    if (this.#answered && this.#open.size >= HELD) return;
    this.#sent += 1;
    this.#open.add(this.#sent);
    this.#socket.send(String(this.#sent), PORT, address);
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
      void talk(command).then(answer);
      break;
    case 'dial':
      void dial(command.address).then(answer);
      break;
    case 'write':
      write(command.address, () => answer(true));
      break;
    case 'answer':
      void answerLetter().then(() => answer(true));
      break;
    case 'letters':
      void sync().then(() => answer(letters));
      break;
    case 'say':
      void say(command.to).then(answer);
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
void Promise.all(FAMILIES.map(listen)).then(() => process.send?.({ id: 0, answer: 'ready' }));
