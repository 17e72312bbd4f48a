/** Pins of maps and programs in the bpf file system. */
import { mkdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { MapShape, MapSpec } from '@weir/bpf';
import { makeFolderSync } from '@weir/process/folders';
import {
  BpfError,
  type BpfMap,
  type BpfProgram,
  createMap,
  ensureBpffs,
  openPinnedMap,
  openPinnedProgram,
} from 'libbpf-ts';
import { PinRootError } from '../errors.ts';
import type { LayoutMarks } from './layouts.ts';

/** Folders beside the pinned maps. */
export const FOLDERS = ['hooks', 'layouts', 'links', 'netns', 'programs'] as const;
/** What the names of maps begin with that are about to take another's place; a bpf file system takes no dots in names. */
export const NEXT = 'next_';
/** A pin of this agent, and the map or program that it is to hold, by its id. */
export interface Pin {
  readonly path: string;
  readonly id: number;
  /** Id of what it holds. @throws where it holds nothing of the kind */
  readonly current: () => number;
  readonly pin: (path: string) => void;
}

/** A map beside those of the object. */
export interface MoreMap {
  readonly spec: MapSpec;
  readonly map: BpfMap;
  /** It was made by this start, and has no pin before `pinMore`. */
  readonly isNew: boolean;
}

/** Opens a pin, or undefined when nothing is pinned there. */
export function whenPinned<T>(open: () => T): T | undefined {
  try {
    return open();
  } catch (error) {
    if (error instanceof BpfError && error.errnoName === 'ENOENT') return undefined;
    throw error;
  }
}

/** What is pinned, where that is the program of the name: a pin that holds anything else is made again. */
export function pinnedProgram(path: string, name: string): BpfProgram | undefined {
  let program: BpfProgram | undefined;
  try {
    program = openPinnedProgram(path);
  } catch {
    return undefined;
  }
  if (program.name === name) return program;
  program.close();
  return undefined;
}

/** The folder of the pins, on a bpf file system that is mounted where there is none. @throws PinRootError */
export function makeRoot(root: string): void {
  try {
    ensureBpffs(bpffsOf(root), { mount: true });
    makeFolderSync(root, 0o700);
  } catch (error) {
    throw new PinRootError(root, error);
  }
}

export function makeFolders(root: string): void {
  for (const folder of ['links', 'programs', 'layouts'])
    mkdirSync(join(root, folder), { recursive: true, mode: 0o700 });
}

/** The mount point to look for: the pins' root lies somewhere under it. */
function bpffsOf(root: string): string {
  return `${root}/`.startsWith('/sys/fs/bpf/') ? '/sys/fs/bpf' : root;
}

/** What is pinned, where it fits; else a new one, without a pin. */
export function openMore(root: string, spec: MapSpec, marks: LayoutMarks): MoreMap {
  const { name, type, keySize, valueSize, maxEntries, flags, version } = spec;
  const found = pinnedMap(join(root, name));
  if (found !== undefined && fits(found, spec) && marks.versionOf(found) === version)
    return { spec, map: found, isNew: false };
  found?.close();
  return { spec, map: createMap({ name, type, keySize, valueSize, maxEntries, flags }), isNew: true };
}

/** Undefined where nothing is pinned, or something else than a map is there. */
function pinnedMap(path: string): BpfMap | undefined {
  try {
    return openPinnedMap(path);
  } catch {
    return undefined;
  }
}

/** Whatever has the name now, the new pin takes it at once. */
export function replacePin(root: string, path: string, pin: (path: string) => void): void {
  const next = join(root, `${NEXT}${basename(path)}`);
  rmSync(next, { recursive: true, force: true });
  pin(next);
  // Where somebody made a folder, no file can be renamed to.
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) rmSync(path, { recursive: true });
  renameSync(next, path);
}

export function fits({ info }: BpfMap, wanted: MapShape): boolean {
  return (
    info.type === wanted.type &&
    info.keySize === wanted.keySize &&
    info.valueSize === wanted.valueSize &&
    info.maxEntries === wanted.maxEntries &&
    info.flags === wanted.flags
  );
}
