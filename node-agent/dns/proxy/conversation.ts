/** What the agent says is put in force and kept; what it did not say again by `complete` is gone. */
import type { FromProxy, ToProxy } from '../protocol.ts';
import type { Learning } from './learning.ts';
import type { Names } from './names.ts';
import { inPieces } from './pieces.ts';
import type { Kept } from './read-message.ts';
import { goneOf, isRule, type Rule, type Rules, ruleKey } from './rules.ts';

export interface ConversationOptions {
  readonly rules: Rules;
  readonly names: Names;
  readonly learning: Learning;
  readonly keep: (lines: readonly Kept[]) => void;
}

export class Conversation {
  readonly #options: ConversationOptions;
  /** Of the newest connection: rules that were there when it began, and were not said again. */
  #unsaid: ReadonlyMap<string, Rule> | undefined;
  #said = new Set<string>();

  constructor(options: ConversationOptions) {
    this.#options = options;
  }

  /** All that an agent is told after its connect. */
  *greeting(): Generator<FromProxy> {
    const { rules, names, learning } = this.#options;
    this.#unsaid = new Map(Array.from(rules.all(), (rule) => [ruleKey(rule), rule]));
    this.#said = new Set();
    yield* learning.askAgain(names.allLacking());
    for (const row of names.all()) yield { type: 'name', ...row };
    yield { type: 'names-complete' };
  }

  async receive(message: ToProxy): Promise<void> {
    if (message.type === 'complete') {
      const unsaid = [...(this.#unsaid ?? [])].filter(([key]) => !this.#said.has(key));
      this.#unsaid = undefined;
      this.#said = new Set();
      for (const [, rule] of unsaid) {
        // Another agent has connected meanwhile, and says what there is.
        if (this.#unsaid !== undefined) return;
        await this.#apply(goneOf(rule));
      }
      return;
    }
    if (isRule(message) && this.#unsaid !== undefined) this.#said.add(ruleKey(message));
    await this.#apply(message);
    if (message.type === 'identity') this.#options.learning.given(message.selectors);
  }

  async #apply(message: ToProxy): Promise<void> {
    this.#options.keep([message]);
    await inPieces(this.#options.rules.apply(message));
  }
}
