/** Files that a command judges. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type PolicyDocument, parseDocuments } from './documents.ts';
import { DocumentError, UnreadableError } from './errors.ts';

/** `-` on the command line. */
const STDIN_NAME = 'standard input';

export interface SourceFile {
  /** As it was given, or the path below a folder that was. */
  readonly name: string;
  readonly documents: readonly PolicyDocument[];
  /** It is no YAML; `documents` is empty then. */
  readonly error?: DocumentError;
}

export interface Sources {
  /** In the order of the command line; in a folder by name. */
  readonly files: readonly SourceFile[];
  readonly unreadable: readonly UnreadableError[];
}

/** Reads files, folders with all that is in them (`*.yaml`, `*.yml`, `*.json`; nothing hidden), and standard input. A file that is named twice is read once. */
export async function readSources(paths: readonly string[]): Promise<Sources> {
  const files = new Map<string, SourceFile>();
  const unreadable: UnreadableError[] = [];
  const attempt = async (path: string, work: () => Promise<void>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      unreadable.push(new UnreadableError(nameOf(path), error));
    }
  };
  const add = (path: string): Promise<void> =>
    attempt(path, async () => {
      if (path !== '-' && (await stat(path)).isDirectory()) return addFolder(path);
      const name = nameOf(path);
      if (!files.has(name)) files.set(name, parsed(name, await readText(path)));
    });
  const addFolder = async (folder: string): Promise<void> => {
    const entries = (await readdir(folder, { withFileTypes: true })).filter(({ name }) => !name.startsWith('.'));
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) await attempt(path, () => addFolder(path));
      else if (/\.(ya?ml|json)$/.test(entry.name)) await add(path);
    }
  };
  for (const path of paths) await add(path);
  return { files: [...files.values()], unreadable };
}

export function nameOf(path: string): string {
  return path === '-' ? STDIN_NAME : path;
}

export async function readText(path: string): Promise<string> {
  if (path !== '-') return readFile(path, 'utf8');
  let text = '';
  process.stdin.setEncoding('utf8');
  for await (const chunk of process.stdin) text += String(chunk);
  return text;
}

function parsed(name: string, text: string): SourceFile {
  try {
    return { name, documents: parseDocuments(text, name) };
  } catch (error) {
    if (error instanceof DocumentError) return { name, documents: [], error };
    throw error;
  }
}
