/**
 * What is in an image. One place for both ways of making them: the Dockerfiles' build stage and `npm run images`.
 *
 * Guarantees: no shell, compiler or package manager (the test pods' busybox apart); files belong to no one but root and are written by
 * no one else, only /tmp by all; nothing is setuid; the same inputs give the same bytes, modes and names.
 *
 * Two layers: `base` is Node with its libraries, the same in all images; the program's layer has only what base lacks.
 * Source maps stay out: they are larger than the programs, and Node would read them only with --enable-source-maps, at a cost in memory.
 * A stack trace names functions all the same, because bundles keep their names.
 */
import {
  chmodSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { buildCni } from '@weir/node-agent/cni/build.ts';
import { bundleAgent, bundleOperator, bundlePod } from '../bundle.ts';
import { type ImageName, imageSpec, ROOT } from './catalog.ts';
import {
  busyboxApplets,
  libraryClosure,
  libraryPath,
  type NativeFile,
  nodeBinary,
  program,
  sharedLibrary,
  staticBusybox,
  strip,
} from './native.ts';
import { placeObjects } from './objects.ts';

/**
 * An image is larger, unpacked, than it may be.
 * @fix Take out what it does not need: the message names its largest files.
 */
export class ImageSizeError extends Error {
  readonly code = 'ERR_WEIR_IMAGE_SIZE';
  constructor(name: ImageName, bytes: number, largest: readonly { readonly path: string; readonly bytes: number }[]) {
    super(
      `image ${name} is ${megabytes(bytes)} unpacked, at most ${megabytes(imageSpec(name).limit)} are allowed; its largest files: ${largest
        .map((file) => `${file.path} ${megabytes(file.bytes)}`)
        .join(', ')}. Take out what it does not need (scripts/images/rootfs.ts)`,
    );
    this.name = 'ImageSizeError';
  }
}

/** Assembles the whole root file system of an image in a folder, which is made or must be empty. Returns its size in bytes. */
export async function rootfs(name: ImageName, out: string): Promise<number> {
  mkdirSync(out, { recursive: true });
  if (readdirSync(out).length > 0) throw new Error(`${out} is not empty: give a new folder for the root file system`);
  baseLayer(out);
  await programLayer(name, out);
  return measure(name, out);
}

/** Everything outside the checkout that goes into an image. */
export function nativeFiles(name: ImageName | 'base'): readonly NativeFile[] {
  if (name === 'base') return libraryClosure([nodeBinary()]);
  if (name === 'operator') return [];
  if (name === 'pod') return [{ source: staticBusybox(), target: '/bin/busybox' }];
  const ip = program('ip', 'iproute2');
  const nsenter = program('nsenter', 'util-linux');
  const libbpf = sharedLibrary('libbpf.so.1', 'libbpf1');
  const inBase = new Set(nativeFiles('base').map(({ target }) => target));
  const files = [
    { source: ip, target: '/usr/bin/ip' },
    { source: nsenter, target: '/usr/bin/nsenter' },
    { source: libbpf, target: libraryPath('libbpf.so.1') },
    ...libraryClosure([ip, nsenter, libbpf, koffiNative()]),
  ];
  return [...new Map(files.map((file) => [file.target, file])).values()].filter(({ target }) => !inBase.has(target));
}

/** Node, its libraries, and the few files that libc asks for. */
export function baseLayer(out: string): void {
  for (const folder of ['etc', 'tmp', 'run', 'usr/bin', 'var']) mkdirSync(join(out, folder), { recursive: true });
  // As on nodes: runtimes name sockets and namespaces by either path.
  symlinkSync('../run', join(out, 'var/run'));
  strip(nodeBinary(), join(out, 'usr/bin/node'));
  place(out, nativeFiles('base'));
  write(out, 'etc/passwd', 'root:x:0:0::/:\nweir:x:65532:65532::/:\n');
  write(out, 'etc/group', 'root:x:0:\nweir:x:65532:\n');
  write(out, 'etc/nsswitch.conf', 'passwd: files\ngroup: files\nhosts: files dns\n');
  normalise(out);
}

/** Adds to a folder what the image has beside `baseLayer`. */
export async function programLayer(name: ImageName, out: string): Promise<void> {
  const app = join(out, 'app');
  mkdirSync(app, { recursive: true });
  place(out, nativeFiles(name));
  switch (name) {
    case 'operator':
      await bundleOperator(app);
      break;
    case 'node-agent':
      await bundleAgent(app);
      placeObjects(app);
      copyFileSync(await buildCni(), join(app, 'weir-cni'));
      for (const file of koffiFiles()) {
        mkdirSync(dirname(join(app, file)), { recursive: true });
        copyFileSync(join(ROOT, file), join(app, file));
      }
      // Node is the interpreter: no shell is needed to start it.
      write(out, 'usr/local/bin/weir', "#!/usr/bin/node\nimport('/app/weir.mjs');\n", 0o755);
      break;
    case 'pod':
      await bundlePod(app);
      for (const applet of busyboxApplets(staticBusybox())) symlinkSync('busybox', join(out, 'bin', applet));
      break;
  }
  for (const file of readdirSync(app)) if (file.endsWith('.map')) rmSync(join(app, file));
  normalise(out);
}

/** Throws `ImageSizeError` when the layers together are too large, else returns their size in bytes. */
export function measure(name: ImageName, ...layers: readonly string[]): number {
  const files = layers.flatMap((layer) =>
    [...walk(layer)]
      .filter(({ kind }) => kind === 'file')
      .map(({ path, bytes }) => ({ path: path.slice(layer.length), bytes })),
  );
  const total = files.reduce((sum, { bytes }) => sum + bytes, 0);
  if (total > imageSpec(name).limit)
    throw new ImageSizeError(name, total, files.sort((a, b) => b.bytes - a.bytes).slice(0, 5));
  return total;
}

/** As limits count: 10^6 bytes. */
export function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/** The parts of koffi that load its prebuilt glibc library; the rest are its sources, documentation and other systems. */
function koffiFiles(): readonly string[] {
  const native = `node_modules/@koromix/koffi-linux-${process.arch}`;
  return [
    'node_modules/koffi/package.json',
    'node_modules/koffi/index.cjs',
    'node_modules/koffi/src/koffi/index.cjs',
    'node_modules/koffi/src/koffi/src/static.cjs',
    `${native}/package.json`,
    `${native}/index.js`,
    `${native}/linux_${process.arch}/koffi.node`,
  ];
}

function koffiNative(): string {
  return join(ROOT, `node_modules/@koromix/koffi-linux-${process.arch}/linux_${process.arch}/koffi.node`);
}

function place(out: string, files: readonly NativeFile[]): void {
  for (const { source, target } of files) {
    mkdirSync(dirname(join(out, target)), { recursive: true });
    copyFileSync(source, join(out, target));
  }
}

function write(out: string, path: string, text: string, mode = 0o644): void {
  mkdirSync(dirname(join(out, path)), { recursive: true });
  writeFileSync(join(out, path), text, { mode });
}

/** Modes do not depend on the machine's umask or on what was copied. */
function normalise(out: string): void {
  chmodSync(out, 0o755);
  for (const { path, kind, mode } of walk(out)) {
    if (kind === 'folder') chmodSync(path, path === join(out, 'tmp') ? 0o1777 : 0o755);
    else if (kind === 'file') chmodSync(path, (mode & 0o111) === 0 || path.endsWith('.mjs') ? 0o644 : 0o755);
  }
}

export interface Entry {
  readonly path: string;
  readonly kind: 'file' | 'folder' | 'link';
  readonly mode: number;
  readonly bytes: number;
}

/** Everything below a folder, in order of names. */
export function* walk(folder: string): Generator<Entry> {
  for (const name of readdirSync(folder).sort()) {
    const path = join(folder, name);
    const stat = lstatSync(path);
    const kind = stat.isDirectory() ? 'folder' : stat.isSymbolicLink() ? 'link' : 'file';
    yield { path, kind, mode: stat.mode & 0o7777, bytes: stat.size };
    if (kind === 'folder') yield* walk(path);
  }
}

/** Whether a file is a program or library that the kernel's loader would read. */
export function isElf(path: string): boolean {
  return readFileSync(path)
    .subarray(0, 4)
    .equals(Buffer.from([0x7f, 0x45, 0x4c, 0x46]));
}
