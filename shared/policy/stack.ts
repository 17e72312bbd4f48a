/**
 * Words for the world that Cilium reads by the families of addresses that the cluster has (spec 2.2, 3.2): in a cluster of one family nobody has the
 * labels world-ipv4 and world-ipv6, in a cluster of two nobody has the label world. A word that nobody has is refused by name.
 */
import type { Stack } from './types.ts';

/** The word that means the same in every cluster. */
const INSTEAD = {
  'world-ipv4': 'write the CIDR 0.0.0.0/0',
  'world-ipv6': 'write the CIDR ::/0',
  'reserved:world': 'write the entity world',
} as const;

export type StackWord = keyof typeof INSTEAD;

/** Of one policy. */
export class StackWords {
  readonly #stack: Stack;
  /** Whether the policy has such a word. */
  used = false;

  constructor(stack: Stack) {
    this.#stack = stack;
  }

  /** Why the word is refused; undefined: it is not. */
  refusal(word: string): string | undefined {
    if (!Object.hasOwn(INSTEAD, word)) return undefined;
    this.used = true;
    const where = word === 'reserved:world' ? 'dual' : 'single';
    if (this.#stack !== where && this.#stack !== 'unknown') return undefined;
    const cluster = `a cluster of ${where === 'dual' ? 'two families' : 'one family'} of addresses`;
    const doubt = this.#stack === 'unknown' ? ', and it is not known of how many this one is' : '';
    return `${word} selects nobody in ${cluster}${doubt}: ${INSTEAD[word as StackWord]}`;
  }
}
