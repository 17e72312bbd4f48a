import { createRequire } from 'node:module';
import { endianness } from 'node:os';
import type koffiTypes from 'koffi';
import { LibraryMissingError, PlatformError } from './errors.ts';

/**
 * The only file that calls foreign functions. koffi, libc and libbpf are looked up on first use, never at import, so that
 * a program which only reads types, or uses the in-memory map, runs where they are absent.
 */

type Koffi = typeof koffiTypes;
/** An address in this process, or null. */
export type Pointer = bigint | null;
type Arg = number | bigint | string | Uint8Array | null;
/** A bound C function: numbers, booleans and addresses as its declaration says. */
export interface Native {
  (...args: Arg[]): number | bigint | boolean | null;
  /** The same on a thread of the pool; the last argument is called back. */
  readonly async: (...args: [...Arg[], (error: Error | null, result: ReturnType<Native>) => void]) => void;
}

const SYSCALL_BPF: Readonly<Record<string, number>> = { x64: 321, arm64: 280 };

let koffiModule: Koffi | undefined;
let libcHandle: ReturnType<Koffi['load']> | undefined;
let libbpfHandle: ReturnType<Koffi['load']> | undefined;
const functions = new Map<string, Native>();

function koffi(): Koffi {
  if (koffiModule !== undefined) return koffiModule;
  try {
    koffiModule = createRequire(import.meta.url)('koffi') as Koffi;
  } catch (cause) {
    throw new LibraryMissingError('koffi', cause);
  }
  return koffiModule;
}

function bind(library: () => ReturnType<Koffi['load']>, definition: string): Native {
  let found = functions.get(definition);
  if (found === undefined) {
    found = library().func(definition) as Native;
    functions.set(definition, found);
  }
  return found;
}

function libc(): ReturnType<Koffi['load']> {
  if (libcHandle === undefined) {
    try {
      libcHandle = koffi().load('libc.so.6');
    } catch (cause) {
      if (cause instanceof LibraryMissingError) throw cause;
      throw new LibraryMissingError('libc.so.6 (the binding needs glibc)', cause);
    }
  }
  return libcHandle;
}

function libbpf(): ReturnType<Koffi['load']> {
  if (libbpfHandle === undefined) {
    try {
      libbpfHandle = koffi().load('libbpf.so.1');
    } catch (cause) {
      if (cause instanceof LibraryMissingError) throw cause;
      throw new LibraryMissingError('libbpf.so.1', cause);
    }
  }
  return libbpfHandle;
}

/** A libc function by its C declaration; looked up once. */
export function libcFunction(definition: string): Native {
  return bind(libc, definition);
}

/** A libbpf function by its C declaration; looked up once. */
export function libbpfFunction(definition: string): Native {
  return bind(libbpf, definition);
}

/** The errno that the last foreign call left. */
export function lastErrno(): number {
  return koffi().errno();
}

/** Where a buffer's bytes are. The caller keeps the buffer referenced for as long as the address is used. */
export function addressOf(buffer: Uint8Array): bigint {
  return koffi().address(buffer);
}

/** The memory at an address, without a copy. The caller unmaps it only after the last use of the view. */
export function memoryView(address: bigint, length: number): ArrayBuffer {
  return koffi().view(address, length);
}

/** A copy of the zero-terminated string at an address. */
export function stringAt(address: bigint): string {
  return String(koffi().decode.string(address));
}

let bpfCall: Native | undefined;
let bpfNumber = 0;

function bpf(): Native {
  if (bpfCall === undefined) {
    const number = SYSCALL_BPF[process.arch];
    if (process.platform !== 'linux' || number === undefined || endianness() !== 'LE') {
      throw new PlatformError(
        `bpf(2) is bound for Linux on x64 and arm64 (little endian); this is ${process.platform} on ${process.arch}`,
      );
    }
    bpfNumber = number;
    bpfCall = libcFunction('long syscall(long number, long command, void *attr, unsigned long size)');
  }
  return bpfCall;
}

/** bpf(2). Returns the call's result, or the negative errno. */
export function bpfSyscall(command: number, attr: Uint8Array): number {
  const call = bpf();
  const result = Number(call(bpfNumber, command, attr, attr.length));
  return result < 0 ? -lastErrno() : result;
}

/**
 * bpf(2) on a thread of the pool, for calls in which the kernel waits. Resolves to whether it succeeded: the errno is that thread's and
 * cannot be read. The caller keeps `attr`, what it points to and the descriptors in it until then.
 */
export function bpfOnThread(command: number, attr: Uint8Array): Promise<boolean> {
  const call = bpf();
  return new Promise((resolve, reject) => {
    call.async(bpfNumber, command, attr, attr.length, (error: Error | null, result: ReturnType<Native>) => {
      if (error === null) resolve(Number(result) >= 0);
      else reject(error);
    });
  });
}

/** Runs `body` while libbpf's messages are collected; returns both. Not reentrant, as libbpf's hook is one a process. */
export function withLibbpfMessages<T>(body: (messages: string[]) => T): T {
  const k = koffi();
  const messages: string[] = [];
  const format = libcFunction('int vsnprintf(void *buffer, size_t size, void *format, void *arguments)');
  const setPrint = libbpfFunction('void *libbpf_set_print(void *hook)');
  const line = Buffer.alloc(4096);
  const DEBUG = 2;
  const hook = k.register(
    (level: number, pattern: bigint, args: bigint): number => {
      if (level >= DEBUG) return 0;
      const written = Number(format(line, line.length, pattern, args));
      messages.push(line.toString('utf8', 0, Math.max(0, Math.min(written, line.length - 1))).trimEnd());
      return 0;
    },
    k.pointer(k.proto('int', ['int', 'void *', 'void *'])),
  );
  try {
    setPrint(hook);
    return body(messages);
  } finally {
    setPrint(null);
    k.unregister(hook);
  }
}
