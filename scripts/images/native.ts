/** Programs and shared libraries of this machine that go into images: where they are, and what they need to run. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ROOT } from './catalog.ts';

const MULTIARCH: Readonly<Record<string, string>> = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' };
const FOLDERS = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/**
 * A program or library of this machine that goes into an image is missing.
 * @fix Install the Debian package that the message names.
 */
export class NativeMissingError extends Error {
  readonly code = 'ERR_WEIR_IMAGE_NATIVE_MISSING';
  constructor(message: string) {
    super(message);
    this.name = 'NativeMissingError';
  }
}

/** One file of an image that comes from this machine. */
export interface NativeFile {
  readonly source: string;
  /** Absolute path in the image. */
  readonly target: string;
}

/** Node 24 as npm gives it: the same binary for the tests and for the images. */
export function nodeBinary(): string {
  const path = join(ROOT, `node_modules/node-linux-${process.arch}/bin/node`);
  if (!existsSync(path)) throw new NativeMissingError(`${path} is not there: run npm ci`);
  return path;
}

export function program(name: string, debianPackage: string): string {
  const found = FOLDERS.map((folder) => join(folder, name)).find((path) => existsSync(path));
  if (found === undefined)
    throw new NativeMissingError(
      `the program ${name} is not on this machine: apt-get install ${debianPackage} (looked in ${FOLDERS.join(', ')})`,
    );
  return realpathSync(found);
}

export function sharedLibrary(soname: string, debianPackage: string): string {
  const folders = ['/usr/lib', '/lib'].flatMap((base) => [join(base, multiarch()), base, `${base}64`]);
  const found = folders.map((folder) => join(folder, soname)).find((path) => existsSync(path));
  if (found === undefined)
    throw new NativeMissingError(
      `the library ${soname} is not on this machine: apt-get install ${debianPackage} (looked in ${folders.join(', ')})`,
    );
  return found;
}

/** A library that programs are linked with when they are built: it is in them, and in no image as a file. */
export function staticLibrary(name: string, debianPackage: string): string {
  const path = [`/usr/lib/${multiarch()}/${name}`, `/usr/lib/${name}`].find((candidate) => existsSync(candidate));
  if (path === undefined)
    throw new NativeMissingError(`the library ${name} is not on this machine: apt-get install ${debianPackage}`);
  return path;
}

/** Debian's static busybox, which only the test pods hold. */
export function staticBusybox(): string {
  const path = ['/usr/bin/busybox', '/bin/busybox'].find((candidate) => existsSync(candidate));
  if (path === undefined)
    throw new NativeMissingError('the test pods need a static busybox: apt-get install busybox-static');
  if (/^\s*INTERP\s/m.test(execFileSync('readelf', ['-lW', path], { encoding: 'utf8' })))
    throw new NativeMissingError(
      `${path} is linked dynamically and would not run in a pod: apt-get install busybox-static`,
    );
  return path;
}

/**
 * The loader and every library that these programs and libraries need, as the loader of this machine finds them. The loader keeps its
 * path, which is written in each program; libraries go where Debian's loader looks without a configuration.
 */
export function libraryClosure(files: readonly string[]): readonly NativeFile[] {
  const found = new Map<string, NativeFile>();
  for (const file of files) {
    const { status, stdout, stderr, error } = spawnSync('ldd', [file], { encoding: 'utf8' });
    if (status !== 0)
      throw new NativeMissingError(
        `ldd ${file} failed: ${(error?.message ?? stderr).trim()} (images are made on Debian or Ubuntu)`,
      );
    for (const line of stdout.split('\n')) {
      const library = /^\s(\S+) => (\S+) \(0x/.exec(line);
      const loader = /^\s(\/\S+) \(0x/.exec(line)?.[1];
      if (/=> not found/.test(line))
        throw new NativeMissingError(`${file} needs a library that this machine has not: ${line.trim()}`);
      if (library?.[1] !== undefined && library[2] !== undefined) add(library[2], libraryPath(library[1]));
      else if (loader !== undefined) add(loader, loader);
    }
  }
  return [...found.values()].sort((a, b) => (a.target < b.target ? -1 : 1));

  function add(source: string, target: string): void {
    found.set(target, { source: realpathSync(source), target });
  }
}

/** Where a shared library is in an image. */
export function libraryPath(soname: string): string {
  return `/lib/${multiarch()}/${basename(soname)}`;
}

function multiarch(): string {
  return MULTIARCH[process.arch] ?? `${process.arch}-linux-gnu`;
}

/** The names busybox can be called by. */
export function busyboxApplets(busybox: string): readonly string[] {
  return execFileSync(busybox, ['--list'], { encoding: 'utf8' })
    .split('\n')
    .filter((name) => name !== '' && name !== 'busybox');
}

/** A copy without symbols and debug sections, which nothing reads at run time. */
export function strip(source: string, target: string): void {
  try {
    execFileSync('strip', ['-s', '-o', target, source], { stdio: 'pipe' });
  } catch (error) {
    throw new NativeMissingError(
      `strip ${source} failed: ${error instanceof Error ? error.message : String(error)} (needs binutils: apt-get install binutils)`,
    );
  }
}
