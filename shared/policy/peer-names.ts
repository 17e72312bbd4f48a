import { RESERVED_ID } from '@weir/identity';
import { isNamed, type NumbersOf, namedPortKey, numbered, peerNumbers, portNamesOf } from './port-names.ts';
import type { PortNames, ResolvedRule, Verdict } from './types.ts';

const NO_NUMBERS: NumbersOf = () => [];

/** The port names that egress rules use, by peer identity: asked of `PortNames` once each, however many rules use them. */
export class PeerNames {
  readonly #rules: readonly ResolvedRule[];
  readonly #names: PortNames;
  /** Numbers of all the names, as text: identities of equal text are alike to every rule. */
  readonly #signatures = new Map<number, string>();
  readonly #unknown = new Map<string, readonly number[]>();

  constructor(rules: readonly ResolvedRule[], names: PortNames) {
    this.#rules = rules;
    const answers = new Map<string, ReadonlyMap<number, readonly number[]>>();
    portNamesOf(rules).egress.forEach((port, index) => {
      const peers = names.peers(port.name, port.protocol);
      answers.set(namedPortKey(port), peers);
      for (const [id, numbers] of peers) {
        if (id === RESERVED_ID.unknown || numbers.length === 0) continue;
        this.#signatures.set(id, `${this.#signatures.get(id) ?? ''}${index}:${numbers.join(',')};`);
      }
    });
    this.#names = {
      own: () => undefined,
      peers: (name, protocol) => answers.get(namedPortKey({ name, protocol })) ?? new Map(),
    };
  }

  /** Identities that give any of the names a number. */
  identities(): Iterable<number> {
    return this.#signatures.keys();
  }

  signature(identity: number): string {
    return this.#signatures.get(identity) ?? '';
  }

  /** What the names are to the identity in the rules of the given indexes; empty when they stand for nothing there. */
  text(identity: number, hits: readonly number[]): string {
    if (!this.#signatures.has(identity)) return '';
    let text = '';
    for (const index of hits) {
      const rule = this.#rules[index];
      const named = rule?.ports?.filter(isNamed) ?? [];
      if (rule === undefined || named.length === 0) continue;
      const numbers = numbered(named, this.numbersOf(identity, rule.verdict)) ?? [];
      if (numbers.length > 0) text += ` ${index}:${numbers.map(({ protocol, from }) => protocol + from).join(',')}`;
    }
    return text;
  }

  /** `identity` undefined: a member of a scope of which nothing else is known. */
  numbersOf(identity: number | undefined, verdict: Verdict): NumbersOf {
    if (identity === undefined) return NO_NUMBERS;
    const numbersOf = peerNumbers(this.#names, identity, verdict);
    if (identity !== RESERVED_ID.unknown || verdict === 'allow') return numbersOf;
    return (port) => {
      const key = namedPortKey(port);
      const numbers = this.#unknown.get(key) ?? numbersOf(port);
      this.#unknown.set(key, numbers);
      return numbers;
    };
  }
}
