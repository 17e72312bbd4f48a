/**
 * Calls back when descriptors can be read: epoll(7), which Node has no face for. While messages come it waits on the main thread, for what Node itself waits
 * for, too; else on a thread of the pool, from where the way to a handler is longer than many a server's answer takes.
 */
import { closeSync } from 'node:fs';
import { arch, constants } from 'node:os';
import { errnoName } from 'libbpf-ts';
import { SocketError } from './errors.ts';
import { lastErrno, libcFunction, nodeFunction } from './libc.ts';

const CLOEXEC = 0o2000000;
const EPOLL_CTL = { add: 1, delete: 2 } as const;
const EPOLLIN = 1;
const EVENTS = 64;
/** After the last message it waits on the main thread for so long. */
const LINGER_MS = 20;
/** Timers, and what is to run at once, wait at most so long for the main thread. */
const TURN_MS = 5;
/** struct epoll_event is packed on x86-64 only. */
const [EVENT_BYTES, FD_AT] = arch() === 'x64' ? [12, 4] : [16, 8];

const epollCreate = libcFunction('int epoll_create1(int flags)');
const epollCtl = libcFunction('int epoll_ctl(int epoll, int operation, int fd, void *event)');
const epollWait = libcFunction('int epoll_wait(int epoll, void *events, int count, int timeout)');
const eventfd = libcFunction('int eventfd(unsigned int value, int flags)');
const uvDefaultLoop = nodeFunction('uintptr_t uv_default_loop()');
const uvBackendFd = nodeFunction('int uv_backend_fd(uintptr_t loop)');
const writeCall = libcFunction('long write(int fd, void *data, size_t length)');

function checked(result: number, operation: string): number {
  if (result < 0) throw new SocketError(operation, errnoName(lastErrno()));
  return result;
}

export class Poller {
  readonly #epoll: number;
  /** Can be read when Node has something to do. */
  readonly #node: number;
  readonly #wake: number;
  readonly #events = Buffer.alloc(EVENTS * EVENT_BYTES);
  readonly #event = Buffer.alloc(EVENT_BYTES);
  /** Written by the waiting thread, and asked for again. */
  readonly #first = Buffer.alloc(EVENT_BYTES);
  readonly #handlers = new Map<number, () => void>();
  readonly #onError: (error: unknown) => void;
  #stopping = false;
  #waiting: Promise<void> | undefined;

  /** @param onError told what a handler throws: polling goes on */
  constructor(onError: (error: unknown) => void) {
    this.#onError = onError;
    this.#epoll = checked(epollCreate()(CLOEXEC), 'make an epoll instance');
    this.#wake = checked(eventfd()(0, CLOEXEC), 'make an eventfd');
    this.#node = uvBackendFd()(uvDefaultLoop()());
    this.#control('add', this.#node);
    this.add(this.#wake, () => undefined);
  }

  /** Calls `handler` for as long as the descriptor can be read (level-triggered). */
  add(fd: number, handler: () => void): void {
    this.#control('add', fd);
    this.#handlers.set(fd, handler);
  }

  /** Closes the descriptor, which ends its watch. */
  close(fd: number): void {
    this.#handlers.delete(fd);
    closeSync(fd);
  }

  start(): void {
    this.#waiting ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    writeCall()(this.#wake, Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]), 8);
    await this.#waiting;
    for (const fd of [this.#wake, this.#epoll]) closeSync(fd);
  }

  #control(operation: keyof typeof EPOLL_CTL, fd: number): void {
    this.#event.fill(0);
    this.#event.writeUInt32LE(EPOLLIN, 0);
    this.#event.writeInt32LE(fd, FD_AT);
    checked(epollCtl()(this.#epoll, EPOLL_CTL[operation], fd, this.#event), 'watch a descriptor');
  }

  async #run(): Promise<void> {
    let last = Number.NEGATIVE_INFINITY;
    while (!this.#stopping) {
      if (performance.now() - last > LINGER_MS) await this.#idle();
      const count = epollWait()(this.#epoll, this.#events, EVENTS, TURN_MS);
      if (count < 0 && lastErrno() !== constants.errno.EINTR) checked(count, 'wait for events');
      if (this.#call(count)) last = performance.now();
      // Timers, files and the agent's socket have their turn.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Returns whether any was for a handler. */
  #call(count: number): boolean {
    let isAny = false;
    for (let at = 0; at < count; at += 1) {
      const fd = this.#events.readInt32LE(at * EVENT_BYTES + FD_AT);
      // Undefined: Node's, or closed by a handler of an event before it.
      const handler = this.#handlers.get(fd);
      if (handler === undefined) continue;
      isAny = true;
      try {
        handler();
      } catch (error) {
        this.#onError(error);
      }
    }
    return isAny;
  }

  /** Until a handler has something to read: Node waits for its own meanwhile. */
  async #idle(): Promise<void> {
    this.#control('delete', this.#node);
    await new Promise<void>((resolve, reject) => {
      epollWait().async(this.#epoll, this.#first, 1, -1, (error) => {
        if (error === null) resolve();
        else reject(error);
      });
    });
    this.#control('add', this.#node);
  }
}
