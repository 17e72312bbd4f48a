/**
 * Replaces what differs from run to run by placeholders, over all steps of a case at once, so that what was equal stays
 * equal and what was ordered stays ordered:
 * - uids: UID1, UID2, ... in order of appearance; cluster addresses IP1, ...; node ports NODEPORT1, ...
 * - resourceVersions of objects: RV1 < RV2 < ...; those of lists and bookmarks, which other writers move on, `>=RVn`
 *   with the newest of the case's own objects that they include;
 * - times of now: TIME; ages: AGE; the run's word: RUN; the case's namespace: NS; and the session's aliases.
 */
import { isObject, textOf } from './client.ts';
import type { Json, JsonObject, Step } from './types.ts';

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;
const TIME = /\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)/g;
const ADDRESS = /\b10\.96\.\d{1,3}\.\d{1,3}\b/g;
const REVISION_TEXT =
  /((?:ResourceVersion in \w+(?: meta)?|current): |version: \d+ \(|ResourceVersion in record \()(\d+)/g;
/** Objects quoted in messages. */
const QUOTED_REVISION = /(resourceVersion\\?"[:,]+\\?")\d+/g;
/** Times that cases themselves write keep their value. */
const LONG_AGO = /^20[01]\d/;

export class Normaliser {
  readonly #words: (readonly [string, string])[];
  readonly #uids = new Map<string, string>();
  readonly #addresses = new Map<string, string>();
  readonly #ports = new Map<number, string>();
  readonly #revisions: number[];

  /** `words` are replaced wherever they stand, in the order given. */
  constructor(steps: readonly Step[], words: readonly (readonly [string, string])[]) {
    this.#words = [...words];
    const found = new Set<number>();
    for (const step of steps) collect(step.seen, found);
    this.#revisions = [...found].sort((a, b) => a - b);
  }

  step(step: Step): Step {
    return { step: this.#text(step.step), seen: this.#value(step.seen) as JsonObject };
  }

  #value(value: Json, key = ''): Json {
    if (typeof value === 'string') return key === 'continue' && value !== '' ? 'CONTINUE' : this.#text(value, key);
    if (typeof value === 'number')
      return key === 'nodePort' && value >= 30_000 ? placeholder(this.#ports, value, 'NODEPORT') : value;
    if (Array.isArray(value)) return this.#list(value, key);
    if (!isObject(value)) return value;
    const out: JsonObject = {};
    const collection = isCollection(value);
    for (const name of Object.keys(value).sort()) {
      const entry = value[name] ?? null;
      if (name === 'metadata' && isObject(entry)) out[name] = this.#metadata(entry, collection);
      else out[this.#text(name)] = this.#value(entry, name);
    }
    return out;
  }

  #list(value: Json[], key: string): Json {
    const done = value.map((entry) => this.#value(entry, key));
    // Entries of the same second are in an order that depends on the clock.
    return key === 'managedFields' ? done.sort((a, b) => (managerOf(a) < managerOf(b) ? -1 : 1)) : done;
  }

  #metadata(metadata: JsonObject, collection: boolean): Json {
    const { resourceVersion, ...rest } = metadata;
    const out = this.#value(rest) as JsonObject;
    if (resourceVersion !== undefined) out.resourceVersion = this.#revision(resourceVersion, collection);
    return out;
  }

  #revision(value: Json, collection: boolean): Json {
    if (typeof value !== 'string' || !/^\d+$/.test(value)) return value;
    const at = Number(value);
    if (collection) return `>=RV${this.#revisions.filter((known) => known <= at).length}`;
    const rank = this.#revisions.indexOf(at);
    return rank < 0 ? value : `RV${rank + 1}`;
  }

  #text(text: string, key = ''): string {
    let out = text;
    for (const [word, stands] of this.#words) out = out.replaceAll(word, stands);
    out = out.replace(UUID, (uid) => placeholder(this.#uids, uid, 'UID'));
    out = out.replace(TIME, (time) => (LONG_AGO.test(time) ? time : time.includes('.') ? 'MICROTIME' : 'TIME'));
    out = out.replace(ADDRESS, (address) => placeholder(this.#addresses, address, 'IP'));
    out = out.replace(REVISION_TEXT, (_all, before: string, digits: string) => {
      const rank = this.#revisions.indexOf(Number(digits));
      return `${before}${rank < 0 ? 'RV' : `RV${rank + 1}`}`;
    });
    out = out.replace(QUOTED_REVISION, '$1RV');
    if (key === 'cells') return out.replace(/^\d+[sm]$/, 'AGE');
    if (key === 'stdout' || key === 'stderr') return printed(out);
    return out;
  }
}

/** Output for people: ages differ, and with them the width of columns. */
function printed(text: string): string {
  return (
    text
      .replace(/\b\d+s( ago)?\b/g, 'AGE$1')
      // Newer kubectl says where it deleted something.
      .replace(/(deleted) from \S+ namespace$/gm, '$1')
      .replace(/\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} \w+/g, 'TIME')
      .replace(/\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b,? .*\b20\d\d\b.*/g, 'TIME')
      .split('\n')
      .map((line) => line.trimEnd().replace(/(\S) {2,}/g, '$1  '))
      .join('\n')
  );
}

const managerOf = (entry: Json): string =>
  isObject(entry) ? [entry.operation, entry.manager, entry.subresource, entry.apiVersion].map(textOf).join(' ') : '';

function placeholder<T>(known: Map<T, string>, value: T, word: string): string {
  let found = known.get(value);
  if (found === undefined) {
    found = `${word}${known.size + 1}`;
    known.set(value, found);
  }
  return found;
}

/** Lists, tables and bookmarks: their resourceVersion is the server's, not an object's. */
function isCollection(value: JsonObject): boolean {
  return Array.isArray(value.items) || value.kind === 'Table' || value.bookmark === true;
}

function collect(value: Json, found: Set<number>): void {
  if (Array.isArray(value)) for (const entry of value) collect(entry, found);
  if (!isObject(value)) return;
  const revision = isObject(value.metadata) ? value.metadata.resourceVersion : undefined;
  if (!isCollection(value) && typeof revision === 'string' && /^[1-9]\d*$/.test(revision)) found.add(Number(revision));
  for (const entry of Object.values(value)) collect(entry, found);
}
