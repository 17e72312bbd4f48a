import { maskPrefix, type Prefix, parsePrefix } from '@weir/net';

/** Peers of many rules by prefix: which of them hold a given prefix, without looking at each. */
export class CidrIndex {
  readonly #inside = new PrefixMap();
  readonly #excepted = new PrefixMap();

  /** `peer` is any number that names the (cidr, except) pair; each pair needs its own. */
  add(peer: number, cidr: string, except: readonly string[]): void {
    this.#inside.add(parsePrefix(cidr), peer);
    for (const text of except) this.#excepted.add(parsePrefix(text), peer);
  }

  /**
   * The peers whose cidr contains the prefix and none of whose exceptions does. `look` is told, before they are compared, how many have such a
   * cidr or exception.
   */
  peersOf(prefix: Prefix, look: (count: number) => void = () => undefined): number[] {
    const inside = this.#inside.covering(prefix);
    const excepted = this.#excepted.covering(prefix);
    look(inside.length + excepted.length);
    const without = new Set(excepted);
    return inside.filter((peer) => !without.has(peer));
  }

  /** Names the longest cidr or exception that contains the prefix: prefixes of one region have the same peers. Undefined: they have none. */
  regionOf(prefix: Prefix): string | undefined {
    const [inside, excepted] = [this.#inside.longest(prefix), this.#excepted.longest(prefix)];
    if (inside === undefined || excepted === undefined) return inside?.name;
    return excepted.bits > inside.bits ? excepted.name : inside.name;
  }
}

/** Numbers by prefix; `covering` visits each prefix length in use once. */
class PrefixMap {
  readonly #byLength = new Map<number, Map<string, number[]>>();

  add(prefix: Prefix, value: number): void {
    const key = prefix.family * 256 + prefix.bits;
    const length = this.#byLength.get(key) ?? new Map<string, number[]>();
    this.#byLength.set(key, length);
    const text = prefix.bytes.join('.');
    const values = length.get(text);
    if (values === undefined) length.set(text, [value]);
    else values.push(value);
  }

  covering(prefix: Prefix): number[] {
    return [...this.#holding(prefix)].flatMap(({ values }) => values);
  }

  longest(prefix: Prefix): { readonly bits: number; readonly name: string } | undefined {
    let found: { readonly bits: number; readonly name: string } | undefined;
    for (const { bits, text } of this.#holding(prefix))
      if (found === undefined || bits > found.bits) found = { bits, name: `${text}/${bits}` };
    return found;
  }

  *#holding(prefix: Prefix): Generator<{ readonly bits: number; readonly text: string; readonly values: number[] }> {
    for (const [key, length] of this.#byLength) {
      const bits = key % 256;
      if (Math.floor(key / 256) !== prefix.family || bits > prefix.bits) continue;
      const text = maskPrefix(prefix.family, prefix.bytes, bits).bytes.join('.');
      const values = length.get(text);
      if (values !== undefined) yield { bits, text, values };
    }
  }
}
