import type { ServerResponse } from 'node:http';
import { filter, fromEvent, map, merge, type Observable, scan, takeUntil, tap } from 'rxjs';

/** Bytes that may wait for a slow reader; beyond, events are counted and left out. */
const MAX_PENDING_BYTES = 1 << 20;

/** Where lines go, and whether there is room. */
interface Reader {
  full(): boolean;
  /** Emits when everything that waited has been taken. */
  readonly drained: Observable<unknown>;
}

/** Events left out so far and not told yet, and the lines to write now. */
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
        const told = [...(lost === 0 ? [] : [{ lost }]), ...(event === undefined ? [] : [event])];
        return { lost: 0, lines: told.map((each) => `${JSON.stringify(each)}\n`).join('') };
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

/** Answers with the events, one JSON object a line, until `end` emits, the events end, or the reader goes away. */
export function follow(
  raw: ServerResponse,
  events: Observable<object>,
  on: { readonly end: Observable<unknown>; readonly stall: () => void; readonly error: (error: unknown) => void },
): void {
  raw.writeHead(200, { 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' });
  raw.flushHeaders();
  // What breaks a connection also closes it.
  raw.on('error', () => undefined);
  const reader: Reader = { full: () => raw.writableLength > MAX_PENDING_BYTES, drained: fromEvent(raw, 'drain') };
  bounded(events, reader, on.stall)
    .pipe(takeUntil(merge(on.end, fromEvent(raw, 'close'))))
    .subscribe({
      next: (lines) => raw.write(lines),
      complete: () => raw.end(),
      error: (error: unknown) => {
        on.error(error);
        raw.destroy();
      },
    });
}
