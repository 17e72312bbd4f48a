import type { Book } from './book.ts';
import type { Calls } from './calls.ts';
import type { Frontier } from './frontier.ts';
import type { Gate } from './gate.ts';
import type { Settings } from './options.ts';
import type { Results } from './results.ts';

/** What whoever carries operations out works with. */
export interface Parts<T> {
  readonly settings: Settings<T>;
  readonly book: Book<T>;
  readonly calls: Calls;
  readonly gate: Gate;
  readonly frontier: Frontier;
  readonly results: Results<T>;
}
