/** Functions of libc and libuv that sockets need and Node has no face for. koffi and libraries are looked up at the first call, never at import. */
import { createRequire } from 'node:module';
import type koffiTypes from 'koffi';

type Koffi = typeof koffiTypes;
type Arg = number | bigint | Uint8Array | null;
export interface Native {
  (...args: Arg[]): number;
  /** The same on a thread of the pool; the last argument is called back. */
  readonly async: (...args: [...Arg[], (error: Error | null, result: number) => void]) => void;
}

let koffiModule: Koffi | undefined;
const libraries = new Map<string | null, ReturnType<Koffi['load']>>();

function koffi(): Koffi {
  koffiModule ??= createRequire(import.meta.url)('koffi') as Koffi;
  return koffiModule;
}

function functionOf(file: string | null, definition: string): () => Native {
  let found: Native | undefined;
  return () => {
    if (found !== undefined) return found;
    const library = libraries.get(file) ?? koffi().load(file);
    libraries.set(file, library);
    found = library.func(definition) as unknown as Native;
    return found;
  };
}

/** Binds a function by its C declaration when it is first called. */
export function libcFunction(definition: string): () => Native {
  return functionOf('libc.so.6', definition);
}

/** The same of what Node itself has: libuv's, which it exports for addons. */
export function nodeFunction(definition: string): () => Native {
  return functionOf(null, definition);
}

/** The errno that the last call on this thread left. */
export function lastErrno(): number {
  return koffi().errno();
}

/** Where a buffer's bytes are. The caller keeps the buffer for as long as the kernel may use the address. */
export function addressOf(buffer: Uint8Array): bigint {
  return koffi().address(buffer);
}
