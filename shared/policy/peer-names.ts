import { RESERVED_ID } from '@weir/identity';
import { compareNumber } from './order.ts';
import { isNamed, type NumbersOf, namedPortKey, numbered, peerNumbers, portNamesOf } from './port-names.ts';
import type { NamedPort, PortNames, ResolvedRule, Verdict } from './types.ts';

const NO_NUMBERS: NumbersOf = () => [];

/** The port names that egress rules use, by peer identity: asked of `PortNames` once each, however many rules use them. */
export class PeerNames {
  readonly #names: PortNames;
  /** Verdicts of the rules that use names, by index. */
  readonly #naming = new Map<number, Verdict>();
  /** Indexes of the rules that use a name. */
  readonly #rulesOf = new Map<string, number[]>();
  /** Which of the names each identity gives a number. */
  readonly #given = new Map<number, NamedPort[]>();
  /** Numbers of all the names, as text: identities of equal text are alike to every rule. */
  readonly #signatures = new Map<number, string>();
  readonly #unknown = new Map<string, readonly number[]>();

  constructor(rules: readonly ResolvedRule[], names: PortNames) {
    for (const [index, { verdict, ports = [] }] of rules.entries()) {
      for (const key of new Set(ports.filter(isNamed).map(namedPortKey))) {
        this.#naming.set(index, verdict);
        const known = this.#rulesOf.get(key);
        if (known === undefined) this.#rulesOf.set(key, [index]);
        else known.push(index);
      }
    }
    const answers = new Map<string, ReadonlyMap<number, readonly number[]>>();
    portNamesOf(rules).egress.forEach((port, index) => {
      const peers = names.peers(port.name, port.protocol);
      answers.set(namedPortKey(port), peers);
      for (const [id, numbers] of peers) {
        if (id === RESERVED_ID.unknown || numbers.length === 0) continue;
        this.#signatures.set(id, `${this.#signatures.get(id) ?? ''}${index}:${numbers.join(',')};`);
        const given = this.#given.get(id);
        if (given === undefined) this.#given.set(id, [port]);
        else given.push(port);
      }
    });
    this.#names = {
      own: () => undefined,
      peers: (name, protocol) => answers.get(namedPortKey({ name, protocol })) ?? new Map(),
      ...(names.every === undefined ? {} : { every: (name, protocol) => names.every?.(name, protocol) ?? [] }),
    };
  }

  /** Identities that give any of the names a number. */
  identities(): Iterable<number> {
    return this.#signatures.keys();
  }

  signature(identity: number): string {
    return this.#signatures.get(identity) ?? '';
  }

  /**
   * What the names are to the identity in the rules of the given indexes; empty when they stand for nothing there. `look` is told how many names
   * there were to look at.
   */
  text(identity: number, hits: readonly ReadonlySet<number>[], look: (count: number) => void): string {
    const byRule = new Map<number, string>();
    for (const port of this.#given.get(identity) ?? []) {
      const rules = this.#rulesOf.get(namedPortKey(port)) ?? [];
      look(rules.length);
      for (const index of rules) {
        if (!hits.some((some) => some.has(index))) continue;
        const numbers = numbered([port], this.numbersOf(identity, this.#naming.get(index) ?? 'allow')) ?? [];
        const text = numbers.map(({ protocol, from }) => ` ${protocol}${from}`).join('');
        if (text !== '') byRule.set(index, (byRule.get(index) ?? '') + text);
      }
    }
    const sorted = [...byRule].sort(([a], [b]) => compareNumber(a, b));
    return sorted.map(([index, text]) => `${index}:${text};`).join('');
  }

  /** The rules that use a name to which the identity gives a number. `identity` undefined: nothing else is known of it. */
  rulesFor(identity: number | undefined): ReadonlySet<number> {
    if (identity === RESERVED_ID.unknown) return new Set(this.#naming.keys());
    const given = (identity === undefined ? undefined : this.#given.get(identity)) ?? [];
    return new Set(given.flatMap((port) => this.#rulesOf.get(namedPortKey(port)) ?? []));
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
