import { RESERVED_ID } from '@weir/identity';
import { isNamed, type NumbersOf, namedPortKey, numbered, peerNumbers, portNamesOf } from './port-names.ts';
import type { NamedPort, PortNames, ResolvedRule, Verdict } from './types.ts';

const NO_NUMBERS: NumbersOf = () => [];

/** The port names that egress rules use, by peer identity: asked of `PortNames` once each, however many rules use them. */
export class PeerNames {
  readonly #names: PortNames;
  /** The rules that use names, by index. */
  readonly #naming = new Map<number, { readonly verdict: Verdict; readonly named: readonly NamedPort[] }>();
  /** Numbers of all the names, as text: identities of equal text are alike to every rule. */
  readonly #signatures = new Map<number, string>();
  readonly #unknown = new Map<string, readonly number[]>();

  constructor(rules: readonly ResolvedRule[], names: PortNames) {
    for (const [index, { verdict, ports = [] }] of rules.entries()) {
      const named = ports.filter(isNamed);
      if (named.length > 0) this.#naming.set(index, { verdict, named });
    }
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
  text(identity: number, ...hits: readonly ReadonlySet<number>[]): string {
    if (!this.#signatures.has(identity)) return '';
    let text = '';
    for (const [index, { verdict, named }] of this.#naming) {
      if (!hits.some((some) => some.has(index))) continue;
      const numbers = numbered(named, this.numbersOf(identity, verdict)) ?? [];
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
