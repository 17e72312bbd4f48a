/**
 * Compiles BPF objects with clang, once per content: the object's name holds a hash of the sources, the flags and the
 * compiler, and a finished object is never compiled again. The datapath is one; parts bring others, built with its headers.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { messageOf } from '@weir/process/errors';
import { kernelNames } from 'libbpf-ts';
import { DatapathBuildError } from './errors.ts';

const SOURCES = import.meta.dirname;

/** atomics with results (compare-and-swap) need v3, which every kernel since 5.12 takes. */
const FLAGS = [
  '-target',
  'bpfel',
  '-mcpu=v3',
  '-O2',
  '-g',
  '-Wall',
  '-Wextra',
  '-Werror',
  '-Wno-unused-parameter',
  '-fno-jump-tables',
];

const MULTIARCH: Readonly<Record<string, string>> = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' };

/** How programs read fields of the kernel's own packet (offload.h): `direct` from Linux 6.2 on; `calls` on any, each read by a call. */
export const SKB_ACCESS = ['direct', 'calls'] as const;
export type SkbAccess = (typeof SKB_ACCESS)[number];

export interface BuildOptions {
  /** The C file. Headers of its folder and of this one are found. Default: the datapath's, `weir.c`. */
  readonly source?: string;
  /** Where the object goes. Default: `.cache/bpf/NAME-HASH.o` beside the source tree, by the name of the source. */
  readonly out?: string;
  /** A ready object (as shipped in an image) with `direct` access, that with `calls` beside it: nothing is compiled. */
  readonly prebuilt?: string;
  /** Default: what the running kernel can. */
  readonly access?: SkbAccess;
  /** The compiler. Default `clang`. */
  readonly clang?: string;
}

export interface BuiltDatapath {
  readonly objectPath: string;
  /** Hex; of the sources, flags and compiler, or of the prebuilt object's bytes. */
  readonly hash: string;
}

/** Throws DatapathBuildError when clang or a header is missing, or the prebuilt object is. */
export function buildDatapath(options: BuildOptions = {}): BuiltDatapath {
  const access = options.access ?? (kernelNames('bpf_cast_to_kern_ctx') ? 'direct' : 'calls');
  if (options.prebuilt !== undefined) return prebuilt(objectFor(access, options.prebuilt));
  const clang = options.clang ?? 'clang';
  const source = options.source ?? join(SOURCES, 'weir.c');
  const version = compilerVersion(clang);
  const flags = [...FLAGS, ...(access === 'calls' ? ['-DWEIR_SKB_BY_CALLS'] : []), ...includes()];
  const hash = sourceHash(source, [version, ...flags]);
  const file = `${basename(source, '.c')}-${hash}.o`;
  const objectPath = options.out ?? objectFor(access, join(dirname(SOURCES), '.cache', 'bpf', file));
  if (options.out === undefined && existsSync(objectPath)) return { objectPath, hash };

  mkdirSync(dirname(objectPath), { recursive: true });
  const unfinished = `${objectPath}.${process.pid}.tmp`;
  try {
    execFileSync(clang, [...flags, `-I${SOURCES}`, ...anywhere(), '-c', source, '-o', unfinished], { stdio: 'pipe' });
    renameSync(unfinished, objectPath);
  } catch (error) {
    rmSync(unfinished, { force: true });
    throw compileError(error);
  }
  return { objectPath, hash };
}

/** The object of a part, beside the datapath's: `weir.o`, `services.o`. */
export function objectBeside(datapath: string, name: string): string {
  return join(dirname(datapath), `${name}.o`);
}

/** The object with an access, by the path of that with either: `weir.o`, `weir.calls.o`. */
export function objectFor(access: SkbAccess, path: string): string {
  return path.replace(/(\.calls)?\.o$/, access === 'calls' ? '.calls.o' : '.o');
}

function prebuilt(path: string): BuiltDatapath {
  if (!existsSync(path)) {
    throw new DatapathBuildError(
      `the prebuilt object ${path} does not exist`,
      'Give the path of a compiled weir.o, with the objects of all parts beside it',
    );
  }
  return { objectPath: path, hash: createHash('sha256').update(readFileSync(path)).digest('hex').slice(0, 20) };
}

function compilerVersion(clang: string): string {
  try {
    return execFileSync(clang, ['--version'], { encoding: 'utf8', stdio: 'pipe' });
  } catch (error) {
    throw new DatapathBuildError(
      `${clang} does not run (${messageOf(error)})`,
      'Install clang 14 or later, or pass the path of a prebuilt object',
    );
  }
}

/** linux/types.h includes asm/types.h, which Debian keeps in the host's multiarch directory. */
function includes(): string[] {
  const triple = MULTIARCH[process.arch];
  return triple === undefined ? [] : [`-I/usr/include/${triple}`];
}

/** Debugging information names no folder of this machine: the same sources give the same object anywhere. */
function anywhere(): string[] {
  return [`-ffile-prefix-map=${dirname(SOURCES)}/=/weir/`, '-fdebug-compilation-dir=/weir'];
}

function sourceHash(source: string, context: readonly string[]): string {
  const hash = createHash('sha256').update(context.join('\0'));
  for (const folder of new Set([SOURCES, dirname(source)])) {
    for (const name of readdirSync(folder).sort()) {
      const file = join(folder, name);
      if (name.endsWith('.h') || file === source) hash.update(`\0${name}\0`).update(readFileSync(file));
    }
  }
  return hash.digest('hex').slice(0, 20);
}

function compileError(error: unknown): DatapathBuildError {
  const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr) : messageOf(error);
  const missing = /fatal error: '([^']+)' file not found/.exec(stderr)?.[1];
  if (missing !== undefined) {
    const fix = missing.startsWith('bpf/')
      ? 'Install the headers of libbpf (Debian: libbpf-dev)'
      : 'Install the kernel headers for user space (Debian: linux-libc-dev)';
    return new DatapathBuildError(`the header ${missing} is missing`, fix);
  }
  return new DatapathBuildError(
    `clang failed:\n${stderr.slice(0, 2000)}`,
    'Use clang 14 or later, or pass the path of a prebuilt object',
  );
}
