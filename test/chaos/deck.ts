import type { Action } from './actions/action.ts';
import type { Random } from './random.ts';

/** Deals each action once before it deals any by chance: a short run, too, plays every kind. */
export class Deck {
  readonly #actions: readonly Action[];
  readonly #random: Random;
  #due: Action[];
  #dealt: Action[] = [];

  constructor(actions: readonly Action[], random: Random) {
    this.#actions = actions;
    this.#random = random;
    this.#due = [...random.shuffled(actions)];
  }

  /** Actions that are still to come. */
  get due(): readonly Action[] {
    return this.#due;
  }

  /** `atLeast` of those that are due, as long as there are any, and at most `count` by chance. */
  deal(count: number, atLeast: number): readonly Action[] {
    const due = this.#due.splice(0, atLeast);
    this.#dealt.push(...due);
    const more = this.#actions.length === 0 ? 0 : Math.max(0, count - due.length);
    return [...due, ...Array.from({ length: more }, () => this.#random.weighted(this.#actions))];
  }

  /** What was dealt and did not bring about what it is played for comes again. */
  review(effects: Readonly<Record<string, number>>): void {
    this.#due.push(...this.#dealt.filter((dealt) => dealt.effects.some((effect) => effects[effect] === undefined)));
    this.#dealt = [];
  }
}
