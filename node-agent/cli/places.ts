/** Where in its file a value is written, by its JSON path. */
import { EVENT_ID, type Event, getScalarValue, SCALAR_STYLE, type ScalarEvent } from 'js-yaml';

/** Both from 1; columns count UTF-16 units, as editors and SARIF do. */
export interface Place {
  readonly line: number;
  readonly column: number;
}

/** A value of a file. A field is where its name is. */
interface Spot {
  readonly at: number;
  readonly fields?: ReadonlyMap<string, Spot>;
  readonly items?: readonly Spot[];
}

export const START: Place = { line: 1, column: 1 };

/** Of one file. The work is done when the first place is asked for. */
export class Places {
  readonly #text: string;
  readonly #events: readonly Event[];
  #spots: readonly Spot[] | undefined;
  #lines: readonly number[] | undefined;

  constructor(text: string, events: readonly Event[]) {
    this.#text = text;
    this.#events = events;
  }

  /**
   * The place of a path in a document, or of the nearest value around it that is written.
   * @param document by number
   * @param path as `PolicyProblem` has it
   */
  of(document: number, ...path: readonly string[]): Place {
    this.#spots ??= spotsIn(this.#text, this.#events);
    const whole = this.#spots[document];
    if (whole === undefined) return START;
    let spot = whole;
    for (const step of path.flatMap(stepsOf)) {
      const next: Spot | undefined = typeof step === 'number' ? spot.items?.[step] : spot.fields?.get(step);
      if (next === undefined) break;
      spot = next;
    }
    this.#lines ??= lineStarts(this.#text);
    return placeOf(this.#lines, spot.at);
  }
}

/** `spec.egress[0]["a/b"]`; `$` and the empty text are the whole. */
function stepsOf(path: string): readonly (string | number)[] {
  const steps: (string | number)[] = [];
  for (const [, name, index, quoted] of path.matchAll(
    /\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]/g,
  )) {
    if (name !== undefined) steps.push(name);
    else if (index !== undefined) steps.push(Number(index));
    else if (quoted !== undefined) steps.push(unquoted(quoted));
  }
  return steps;
}

function unquoted(text: string): string {
  try {
    return String(JSON.parse(text));
  } catch {
    return text;
  }
}

interface Open {
  readonly at: number;
  readonly fields?: Map<string, Spot>;
  readonly items?: Spot[];
  /** Of a mapping: the name that a value follows. */
  name?: { readonly text: string; readonly at: number } | undefined;
}

/** One for each document. */
function spotsIn(text: string, events: readonly Event[]): readonly Spot[] {
  const documents: Spot[] = [];
  const open: Open[] = [];
  const put = (spot: Spot, name?: string): void => {
    const parent = open.at(-1);
    if (parent?.items !== undefined) parent.items.push(spot);
    if (parent?.fields === undefined) return;
    if (parent.name === undefined) {
      // A collection as a name is never asked for.
      parent.name = { text: name ?? '', at: spot.at };
      return;
    }
    parent.fields.set(parent.name.text, { ...spot, at: parent.name.at });
    parent.name = undefined;
  };
  for (const event of events) {
    switch (event.type) {
      case EVENT_ID.DOCUMENT:
        open.push({ at: 0, items: [] });
        break;
      case EVENT_ID.SEQUENCE:
        open.push({ at: event.start, items: [] });
        break;
      case EVENT_ID.MAPPING:
        open.push({ at: event.start, fields: new Map() });
        break;
      case EVENT_ID.SCALAR:
        put({ at: startOf(event) }, getScalarValue(text, event));
        break;
      case EVENT_ID.ALIAS:
        put({ at: event.anchorStart - 1 });
        break;
      case EVENT_ID.POP: {
        const closed = open.pop();
        if (closed === undefined) break;
        if (open.length > 0) put(closed);
        else documents.push(closed.items?.[0] ?? { at: 0 });
      }
    }
  }
  return documents;
}

/** With its quote. */
function startOf({ valueStart, style }: ScalarEvent): number {
  const quoted = style === SCALAR_STYLE.SINGLE_QUOTED || style === SCALAR_STYLE.DOUBLE_QUOTED;
  return Math.max(0, quoted ? valueStart - 1 : valueStart);
}

function lineStarts(text: string): readonly number[] {
  const starts = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) starts.push(at + 1);
  return starts;
}

function placeOf(starts: readonly number[], at: number): Place {
  let [low, high] = [0, starts.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((starts[middle] ?? 0) <= at) low = middle;
    else high = middle - 1;
  }
  return { line: low + 1, column: at - (starts[low] ?? 0) + 1 };
}
