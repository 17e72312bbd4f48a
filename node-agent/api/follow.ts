import type { ServerResponse } from 'node:http';
import { messageOf } from '@weir/process/errors';
import {
  filter,
  firstValueFrom,
  fromEvent,
  map,
  merge,
  type Observable,
  scan,
  takeUntil,
  tap,
  throwError,
  timeout,
} from 'rxjs';
import { SlowReaderError } from './errors.ts';

/** Bytes that may wait for a slow reader; beyond, events are counted and left out. */
const MAX_PENDING_BYTES = 1 << 20;

/** Where lines go, and whether there is room. */
interface Reader {
  full(): boolean;
  /** Emits when everything that waited has been taken. */
  readonly drained: Observable<unknown>;
}

/** Events left out so far and not reported yet, and the lines to write now. */
interface Step {
  readonly lost: number;
  readonly lines: string;
}

/**
 * Events as JSON lines. While the reader is full they are counted and left out; the count is a line of its own, `{"lost":N}`, before the next
 * event or as soon as the reader has caught up, whichever comes first. `onStall` is called once each time that events begin to be left out.
 */
export function bounded(events: Observable<object>, reader: Reader, onStall: () => void): Observable<string> {
  const room = reader.drained.pipe(map(() => undefined));
  return merge(events, room).pipe(
    scan<object | undefined, Step>(
      ({ lost }, event) => {
        if (reader.full()) return { lost: event === undefined ? lost : lost + 1, lines: '' };
        const sent = [...(lost === 0 ? [] : [{ lost }]), ...(event === undefined ? [] : [event])];
        return { lost: 0, lines: sent.map((each) => `${JSON.stringify(each)}\n`).join('') };
      },
      { lost: 0, lines: '' },
    ),
    tap(({ lost }) => {
      if (lost === 1) onStall();
    }),
    map(({ lines }) => lines),
    filter((lines) => lines !== ''),
  );
}

interface Follower {
  /** Ends the answer. */
  readonly end: Observable<unknown>;
  readonly error: (error: unknown) => void;
}

/** Answers with the events, one JSON object a line, until `end` emits, the events end, or the reader goes away. */
export function follow(
  raw: ServerResponse,
  events: Observable<object>,
  { stall, ...on }: Follower & { readonly stall: () => void },
): void {
  const reader: Reader = { full: () => raw.writableLength > MAX_PENDING_BYTES, drained: fromEvent(raw, 'drain') };
  answer(raw, bounded(events, reader, stall), on);
}

/**
 * The same with lines that a source gives when it is asked: `lines` is given what resolves when the reader has taken all before, and rejects
 * when that takes longer than `patienceMs`.
 */
export function followPulled(
  raw: ServerResponse,
  lines: (taken: () => Promise<unknown> | undefined) => Observable<string>,
  { patienceMs, ...on }: Follower & { readonly patienceMs: number },
): void {
  const taken = (): Promise<unknown> | undefined => {
    if (!raw.writableNeedDrain) return undefined;
    const given = timeout({ first: patienceMs, with: () => throwError(() => new SlowReaderError(patienceMs)) });
    return firstValueFrom(merge(fromEvent(raw, 'drain'), fromEvent(raw, 'close')).pipe(given));
  };
  answer(raw, lines(taken), on);
}

/** What cannot go on is the last line, `{"error":"..."}`. */
function answer(raw: ServerResponse, lines: Observable<string>, { end, error }: Follower): void {
  raw.writeHead(200, { 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' });
  raw.flushHeaders();
  // What breaks a connection also closes it.
  raw.on('error', () => undefined);
  lines.pipe(takeUntil(merge(end, fromEvent(raw, 'close')))).subscribe({
    next: (text) => raw.write(text),
    complete: () => raw.end(),
    error: (reason: unknown) => {
      error(reason);
      raw.end(`${JSON.stringify({ error: messageOf(reason) })}\n`);
    },
  });
}
