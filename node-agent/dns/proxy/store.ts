/**
 * What the proxy knows, in files, so that it goes on after any end: a snapshot, and journals of what has changed since, both of JSON lines of the protocol.
 *
 * Guarantees: what `append` was given is with the kernel when it returns, and so survives the process, whatever ends it. A snapshot has its name once it is
 * complete. A line that cannot be read ends its journal: what follows it is not trusted. Files stay below about twice what the proxy knows.
 */
import { closeSync, existsSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFolderSync } from '@weir/process/folders';
import type { Logger } from 'pino';
import { type Kept, readKept } from './read-message.ts';

export interface StoreOptions {
  readonly folder: string;
  readonly log: Logger;
  /** All that is known, at the instant of the call. */
  readonly all: () => Iterable<Kept>;
  /** Bytes of a journal from which on a snapshot is due, when it is also longer than the snapshot. Default 1 MiB. */
  readonly leastBytes?: number;
}

const FILE = /^(snapshot|journal)\.(\d{1,12})$/;
const TRY_EVERY_MS = 10_000;
const DRAFT = 'draft.';
const CHUNK_CHARACTERS = 1 << 16;

export class Store {
  readonly #options: StoreOptions;
  readonly #leastBytes: number;
  #number = 0;
  #journal: number | undefined;
  #bytes = 0;
  #snapshotBytes = 0;
  #compacting: Promise<void> | undefined;
  #nextTry = 0;
  #restored = false;

  constructor(options: StoreOptions) {
    this.#options = options;
    this.#leastBytes = options.leastBytes ?? 1 << 20;
  }

  /** Gives all lines of the last complete snapshot and of the journals from there on; then `append` may be called. */
  open(take: (kept: Kept) => void): void {
    const { folder } = this.#options;
    makeFolderSync(folder, 0o700);
    const numbers = { snapshot: [] as number[], journal: [] as number[] };
    for (const file of readdirSync(folder)) {
      if (file.startsWith(DRAFT)) rmSync(join(folder, file), { force: true });
      const [, kind, number] = FILE.exec(file) ?? [];
      if (kind !== undefined) numbers[kind as keyof typeof numbers].push(Number(number));
    }
    const start = Math.max(0, ...numbers.snapshot);
    if (numbers.snapshot.length > 0) this.#read(this.#path('snapshot', start), take);
    const journals = numbers.journal.filter((number) => number >= start).sort((one, other) => one - other);
    // Who wrote the next journal had read as much of the one before as is read now.
    for (const number of journals) this.#read(this.#path('journal', number), take);
    this.#number = Math.max(start, ...journals);
    this.#restored = true;
    this.compact();
  }

  /** Before `open` has given all it does nothing: what follows from lines follows from them again. */
  append(lines: readonly Kept[]): void {
    if (!this.#restored) return;
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    try {
      // Whole, or it throws: a disk that is nearly full takes a part of what one write gives it.
      if (this.#journal !== undefined) writeFileSync(this.#journal, text);
      this.#bytes += Buffer.byteLength(text);
    } catch (error) {
      this.#options.log.warn(
        { err: error },
        'the DNS proxy cannot write its journal: what it learns now does not survive its end',
      );
      // A part of a line may be there: nothing may follow it.
      closeSync(this.#journal ?? -1);
      this.#journal = undefined;
    }
    const due = this.#journal === undefined ? performance.now() >= this.#nextTry : this.#bytes > this.#limit;
    if (due) this.compact();
  }

  async close(): Promise<void> {
    await this.#compacting;
    if (this.#journal !== undefined) closeSync(this.#journal);
    this.#journal = undefined;
  }

  get #limit(): number {
    return Math.max(this.#leastBytes, this.#snapshotBytes);
  }

  /** Writes a snapshot, beside which a new journal begins. */
  compact(): void {
    if (this.#compacting !== undefined) return;
    this.#nextTry = performance.now() + TRY_EVERY_MS;
    this.#number += 1;
    const number = this.#number;
    this.#begin();
    const all = this.#options.all();
    this.#compacting = this.#snapshot(number, all)
      .catch((error: unknown) => {
        this.#options.log.warn(
          { err: error },
          'the names and rules of the DNS proxy cannot be saved whole; its journal grows',
        );
      })
      .finally(() => {
        this.#compacting = undefined;
      });
  }

  #begin(): void {
    if (this.#journal !== undefined) closeSync(this.#journal);
    this.#journal = undefined;
    this.#bytes = 0;
    try {
      this.#journal = openSync(this.#path('journal', this.#number), 'a', 0o600);
    } catch (error) {
      this.#options.log.warn(
        { err: error },
        'the DNS proxy cannot make a journal: what it learns now does not survive its end',
      );
    }
  }

  async #snapshot(number: number, all: Iterable<Kept>): Promise<void> {
    const { folder } = this.#options;
    const draft = join(folder, `${DRAFT}${number}`);
    let bytes: number;
    try {
      bytes = await writeAll(draft, all);
      await rename(draft, this.#path('snapshot', number));
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
    this.#snapshotBytes = bytes;
    for (const name of readdirSync(folder)) {
      const [, , of] = FILE.exec(name) ?? [];
      if (of !== undefined && Number(of) < number) await rm(join(folder, name), { force: true });
    }
  }

  #read(path: string, take: (kept: Kept) => void): void {
    if (!existsSync(path)) return;
    const lines = readFileSync(path, 'utf8').split('\n');
    for (const [at, line] of lines.entries()) {
      const last = at === lines.length - 1;
      const kept = last ? undefined : readKept(line);
      if (kept !== undefined) take(kept);
      else if (!last || line !== '') {
        this.#options.log.warn(
          { file: path, line: at + 1 },
          'a file of the DNS proxy is torn; it goes on with what comes before',
        );
        return;
      }
    }
  }

  #path(kind: 'snapshot' | 'journal', number: number): string {
    return join(this.#options.folder, `${kind}.${number}`);
  }
}

/** Writes the lines to a file, all of them or it throws; returns how many bytes. */
async function writeAll(path: string, all: Iterable<Kept>): Promise<number> {
  const file = await open(path, 'w', 0o600);
  let bytes = 0;
  let text = '';
  const write = async (): Promise<void> => {
    await file.writeFile(text);
    bytes += Buffer.byteLength(text);
    text = '';
  };
  try {
    for (const kept of all) {
      text += `${JSON.stringify(kept)}\n`;
      if (text.length >= CHUNK_CHARACTERS) await write();
    }
    await write();
    await file.sync();
  } finally {
    await file.close();
  }
  return bytes;
}
