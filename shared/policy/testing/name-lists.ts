/** Listeners for tests. */
import { hostNameList } from '../host-names.ts';
import type { Listeners } from '../types.ts';

/** Numbers of lists of names, from 1: equal lists, equal numbers. */
export class NameLists implements Listeners {
  readonly #lists: (readonly string[])[] = [];

  ofNames(patterns: readonly string[]): number {
    const list = hostNameList(patterns);
    const known = this.#lists.findIndex((each) => each.join(' ') === list.join(' '));
    return known < 0 ? this.#lists.push(list) : known + 1;
  }

  union(one: number, other: number): number {
    const [some, others] = [this.names(one), this.names(other)];
    return some === undefined || others === undefined ? 0 : this.ofNames([...some, ...others]);
  }

  /** Undefined: nobody has the number. */
  names(number: number): readonly string[] | undefined {
    return this.#lists[number - 1];
  }
}
