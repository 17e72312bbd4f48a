/**
 * Builds images as files, and never twice from the same inputs: an archive's name in the store holds the hash of everything that goes
 * into it (sources, lock file, this recipe, the machine's programs and libraries).
 */
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  globSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { buildCni } from '@weir/node-agent/cni/build.ts';
import { tarFolder, writeImage } from './archive.ts';
import { type ImageName, imageSpec, ROOT } from './catalog.ts';
import { nodeBinary } from './native.ts';
import { compiledObjects } from './objects.ts';
import { baseLayer, measure, nativeFiles, programLayer } from './rootfs.ts';

export interface BuildOptions {
  /** Where `<name>.tar` is put. */
  readonly out?: string;
  /** Where finished archives are kept; by default `.cache/images/store` of the checkout. */
  readonly store?: string;
}

export interface BuiltImage {
  readonly name: ImageName;
  readonly reference: string;
  /** The archive: an OCI layout as tar. */
  readonly path: string;
  /** Of all its files, unpacked. */
  readonly bytes: number;
  /** False: it was in the store. */
  readonly built: boolean;
}

/** The folder of `npm run images`. */
export const DEFAULT_OUT = join(ROOT, '.cache/images');

/** Builds these images, or finds them built. Throws `ImageSizeError`, `NativeMissingError`, and what the compilers say. */
export async function buildImages(
  names: readonly ImageName[],
  options: BuildOptions = {},
): Promise<readonly BuiltImage[]> {
  const out = options.out ?? DEFAULT_OUT;
  const store = options.store ?? join(DEFAULT_OUT, 'store');
  mkdirSync(out, { recursive: true });
  mkdirSync(store, { recursive: true });
  removeAbandoned(store);
  const built: BuiltImage[] = [];
  for (const name of names) {
    const key = `${name}-${await imageKey(name)}`;
    const kept = readdirSync(store).find((file) => file.startsWith(`${key}.`));
    const file = kept ?? (await buildImage(name, store, key));
    const path = join(out, `${name}.tar`);
    publish(join(store, file), path);
    const bytes = Number(file.split('.')[1]);
    built.push({ name, reference: imageSpec(name).reference, path, bytes, built: kept === undefined });
  }
  return built;
}

/** Returns the file's name in the store: key and unpacked size. */
async function buildImage(name: ImageName, store: string, key: string): Promise<string> {
  const draft = join(store, `draft-${process.pid}-${name}`);
  mkdirSync(draft, { recursive: true });
  try {
    const base = storedBase(store, draft);
    const added = join(draft, 'added');
    await programLayer(name, added);
    const file = `${key}.${measure(name, base.folder, added)}.tar`;
    const layer = join(draft, 'added.tar');
    tarFolder(added, layer);
    const archive = join(draft, 'image.tar');
    await writeImage(imageSpec(name), [base.layer, layer], join(draft, 'layout'), archive);
    renameSync(archive, join(store, file));
    for (const older of readdirSync(store))
      if (older.startsWith(`${name}-`) && older !== file) rmSync(join(store, older), { force: true });
    return file;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}

/** The layer that all images share, as a folder and as a tar file; made once. */
function storedBase(store: string, draft: string): { readonly folder: string; readonly layer: string } {
  const hash = createHash('sha256').update(nodeVersion()).update(process.arch);
  addContents(hash, RECIPE);
  addNative(hash, 'base');
  const home = join(store, `base-${short(hash)}`);
  if (!existsSync(home)) {
    const unfinished = join(draft, 'base');
    mkdirSync(unfinished);
    baseLayer(join(unfinished, 'root'));
    tarFolder(join(unfinished, 'root'), join(unfinished, 'layer.tar'));
    for (const older of readdirSync(store))
      if (older.startsWith('base-')) rmSync(join(store, older), { recursive: true, force: true });
    renameSync(unfinished, home);
  }
  return { folder: join(home, 'root'), layer: join(home, 'layer.tar') };
}

/** Files that say how images are made. */
const RECIPE = ['scripts/bundle.ts', 'scripts/images/*.ts', 'package.json', 'package-lock.json'];
/** Sources of each program. */
const SOURCES: Readonly<Record<ImageName, readonly string[]>> = {
  operator: ['{operator,shared}/**/*.ts'],
  'node-agent': ['{node-agent,bpf,shared}/**/*.ts'],
  pod: ['test/cluster/pod/*.ts'],
};

/** The hash of everything that an image is made of. */
async function imageKey(name: ImageName): Promise<string> {
  const hash = createHash('sha256').update(nodeVersion()).update(process.arch);
  addContents(hash, [...RECIPE, ...SOURCES[name]]);
  addNative(hash, 'base');
  addNative(hash, name);
  if (name === 'node-agent')
    for (const compiled of [...compiledObjects(), await buildCni()]) hash.update(readFileSync(compiled));
  return short(hash);
}

type Hash = ReturnType<typeof createHash>;

function short(hash: Hash): string {
  return hash.digest('hex').slice(0, 20);
}

function addContents(hash: Hash, patterns: readonly string[]): void {
  const files = globSync([...patterns], {
    cwd: ROOT,
    exclude: (path) => path.includes('node_modules') || path.endsWith('.test.ts'),
  });
  for (const file of files.sort()) hash.update(`\n${file}\n`).update(readFileSync(join(ROOT, file)));
}

function addNative(hash: Hash, name: ImageName | 'base'): void {
  for (const { source, target } of nativeFiles(name)) hash.update(`\n${target}\n`).update(readFileSync(source));
}

/** Instead of the content of 120 MB: npm checked it against the lock file. */
function nodeVersion(): string {
  return readFileSync(join(dirname(nodeBinary()), '../package.json'), 'utf8');
}

/** Under its final name at once; a hard link where the file system is the same. */
function publish(stored: string, path: string): void {
  const draft = `${path}.${process.pid}`;
  try {
    linkSync(stored, draft);
  } catch (error) {
    if (codeOf(error) !== 'EXDEV') throw error;
    copyFileSync(stored, draft);
  }
  renameSync(draft, path);
  // Renaming one hard link over another of the same file leaves both.
  rmSync(draft, { force: true });
}

/** Drafts of runs that were killed. */
function removeAbandoned(store: string): void {
  for (const name of readdirSync(store)) {
    const pid = Number(/^draft-(\d+)-/.exec(name)?.[1] ?? Number.NaN);
    if (Number.isNaN(pid) || existsSync(`/proc/${pid}`)) continue;
    rmSync(join(store, name), { recursive: true, force: true });
  }
}

function codeOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
}
