/**
 * The statuses of all policies: folded when what they depend on changed, shown at most once an interval each.
 *
 * Guarantees: the first change after a while is shown at once, every later one when the interval since the last write is
 * over; what would say nothing new is not shown; what another hand changed in the API is put right, in the same measure.
 */
import { isDeepStrictEqual } from 'node:util';
import type { PolicyStatus } from '@weir/kube';
import type { Census } from './census.ts';
import { EventBook, secondsOf } from './events.ts';
import type { PolicyBook, PolicyEntry } from './policy-book.ts';
import type { PortNames } from './port-names.ts';
import type { SelectorIndex } from './selector-index.ts';
import { foldStatus } from './status.ts';
import type { Edit, EventRow, NodeReportRow, NodeRow, StatusRow } from './types.ts';

/** Statuses folded in one flush: each may look at many identities, and other work waits meanwhile. */
const STATUSES_PER_FLUSH = 200;

export interface StatusSources {
  readonly policies: PolicyBook;
  readonly sets: SelectorIndex;
  readonly census: Census;
  readonly portNames: PortNames;
}

export interface StatusBoardOptions {
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Milliseconds between two statuses of one policy. */
  readonly intervalMs: number;
}

interface Where {
  readonly live: readonly string[];
  readonly down: readonly string[];
  readonly endpoints: number;
}

export class StatusBoard {
  readonly #sources: StatusSources;
  readonly #options: StatusBoardOptions;
  readonly #events = new EventBook();
  readonly #nodes = new Map<string, NodeRow>();
  readonly #reports = new Map<string, NodeReportRow>();
  readonly #shown = new Map<string, { readonly uid: string; readonly status: PolicyStatus }>();
  /** When a status was shown or written last, and when a change of it that waits is due. Milliseconds of `now`. */
  readonly #shownAt = new Map<string, number>();
  readonly #deferred = new Map<string, number>();
  readonly #dirty = new Set<string>();
  /** Statuses whose object is not as it was left. */
  readonly #touched = new Set<string>();

  constructor(sources: StatusSources, options: StatusBoardOptions) {
    this.#sources = sources;
    this.#options = options;
  }

  adopt(key: string, uid: string, status: PolicyStatus): void {
    this.#shown.set(key, { uid, status });
  }

  /** Forgets what was adopted for policies that do not exist. */
  adoptionDone(): void {
    for (const key of [...this.#shown.keys()]) {
      if (this.#sources.policies.get(key) === undefined) this.#shown.delete(key);
    }
  }

  /** What the policy's status depends on may have changed. */
  mark(key: string): void {
    this.#dirty.add(key);
  }

  /** The API holds another status than the one that was written. */
  touch(key: string): void {
    if (this.#sources.policies.get(key) === undefined) return;
    this.#touched.add(key);
    this.#dirty.add(key);
  }

  /** The API has taken a status just now: a write that was retried is one too. */
  written(key: string): void {
    if (this.#shown.has(key)) this.#shownAt.set(key, this.#options.now());
  }

  setNode(row: NodeRow): void {
    const before = this.#nodes.get(row.name);
    if (before?.live === row.live && before.uid === row.uid) return;
    this.#nodes.set(row.name, row);
    this.#markAll();
  }

  deleteNode(name: string): void {
    if (this.#nodes.delete(name)) this.#markAll();
  }

  setReport(row: NodeReportRow): void {
    const before = this.#reports.get(row.node);
    this.#reports.set(row.node, row);
    this.#reportChanged(before, row);
  }

  deleteReport(node: string): void {
    const before = this.#reports.get(node);
    this.#reports.delete(node);
    this.#reportChanged(before, undefined);
  }

  /** Some changes did not fit in the last flush. */
  get more(): boolean {
    return this.#dirty.size > 0;
  }

  /** Milliseconds until an Event that was held back is due; undefined: none was. */
  get eventDueInMs(): number | undefined {
    return this.#events.dueInMs(this.#options.now());
  }

  /** Milliseconds until a status that was held back is due; undefined: none was. */
  get dueInMs(): number | undefined {
    const now = this.#options.now();
    let due: number | undefined;
    for (const at of this.#deferred.values()) due = Math.min(due ?? Number.POSITIVE_INFINITY, Math.max(0, at - now));
    return due;
  }

  /** What is to be shown now; of the statuses, as many as fit. */
  flush(): { readonly statuses: Edit<StatusRow>[]; readonly events: Edit<EventRow>[] } {
    const statuses: Edit<StatusRow>[] = [];
    const now = this.#options.now();
    for (const [key, at] of this.#deferred) if (at <= now) this.#dirty.add(key);
    let folded = 0;
    for (const key of this.#dirty) {
      if (folded === STATUSES_PER_FLUSH) break;
      folded += 1;
      this.#dirty.delete(key);
      const row = this.#row(key, now);
      const edit = row === undefined ? this.#drop(key) : this.#show(row, now);
      if (edit !== undefined) statuses.push(edit);
    }
    return { statuses, events: this.#events.drain(now) };
  }

  #drop(key: string): Edit<StatusRow> {
    for (const map of [this.#shown, this.#shownAt, this.#deferred]) map.delete(key);
    this.#touched.delete(key);
    this.#events.forget(key);
    return { key, row: undefined };
  }

  #show(row: StatusRow, now: number): Edit<StatusRow> | undefined {
    const { key, uid, status } = row;
    const shown = this.#shown.get(key);
    const before = shown?.uid === uid ? shown.status : undefined;
    const shownAt = this.#shownAt.get(key);
    const again = this.#touched.has(key);
    // Once shown by this process, what is the same again needs no write; before that the desired row must come to be.
    if (shownAt !== undefined && !again && before !== undefined && isDeepStrictEqual(before, status)) {
      this.#deferred.delete(key);
      return undefined;
    }
    const { intervalMs } = this.#options;
    // A clock that was set back holds nothing back for long.
    const wait = shownAt === undefined || before === undefined ? 0 : Math.min(intervalMs, shownAt + intervalMs - now);
    if (wait > 0) {
      this.#deferred.set(key, now + wait);
      return undefined;
    }
    this.#deferred.delete(key);
    this.#touched.delete(key);
    this.#shown.set(key, { uid, status });
    this.#shownAt.set(key, now);
    this.#events.note(before, row, now);
    return { key, row, ...(again ? { again } : {}) };
  }

  #row(key: string, now: number): StatusRow | undefined {
    const entry = this.#sources.policies.get(key);
    if (entry === undefined) return undefined;
    const { kind, namespace, name, uid, generation } = entry.row;
    const { live, down, endpoints } = this.#where(entry);
    const shown = this.#shown.get(key);
    const status = foldStatus({
      generation,
      problems: entry.problems,
      enforcedGeneration: entry.resolved?.source.generation,
      rules: entry.resolved?.rules.length ?? 0,
      nodes: live,
      down,
      endpoints,
      missingNames: this.#sources.portNames.missing(entry.resolved?.rules ?? []),
      reported: (node) => {
        const report = this.#reportOf(node);
        return {
          generation: report?.generations[uid],
          failures: report?.failures.filter((failure) => failure.uid === uid) ?? [],
        };
      },
      previous: shown?.uid === uid ? shown.status : undefined,
      now: secondsOf(now),
    });
    return { key, kind, ...(namespace === undefined ? {} : { namespace }), name, uid, status };
  }

  /** Where the policy's pods are. */
  #where({ subjects, row: { uid } }: PolicyEntry): Where {
    const live = new Set<string>();
    const down = new Set<string>();
    const seen = new Set<number>();
    let endpoints = 0;
    for (const hash of subjects) {
      for (const id of this.#sources.sets.members(hash) ?? []) {
        if (seen.has(id)) continue;
        seen.add(id);
        for (const [node, { staying }] of this.#sources.census.of(id)) {
          endpoints += staying;
          // A pod that is going counts while its node says that it has it: afterwards only the object is left.
          if (staying === 0 && this.#reportOf(node)?.generations[uid] === undefined) continue;
          const known = this.#nodes.get(node);
          if (known?.live === true) live.add(node);
          else if (known !== undefined) down.add(node);
        }
      }
    }
    return { live: [...live].sort(), down: [...down].sort(), endpoints };
  }

  /** What this very node reports, not one of the same name before it. */
  #reportOf(node: string): NodeReportRow | undefined {
    const report = this.#reports.get(node);
    const uid = this.#nodes.get(node)?.uid ?? '';
    return report?.nodeUid === undefined || uid === '' || report.nodeUid === uid ? report : undefined;
  }

  #reportChanged(before: NodeReportRow | undefined, after: NodeReportRow | undefined): void {
    const uids = new Set<string>();
    const renewed = before?.nodeUid !== after?.nodeUid;
    for (const row of [before, after]) {
      if (row === undefined) continue;
      for (const uid of Object.keys(row.generations)) {
        if (renewed || before?.generations[uid] !== after?.generations[uid]) uids.add(uid);
      }
      for (const failure of row.failures) uids.add(failure.uid);
    }
    for (const uid of uids) {
      const key = this.#sources.policies.keyOfUid(uid);
      if (key !== undefined) this.#dirty.add(key);
    }
  }

  #markAll(): void {
    for (const key of this.#sources.policies.keys()) this.#dirty.add(key);
  }
}
