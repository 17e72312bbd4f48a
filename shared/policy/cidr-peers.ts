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

  /** The peers whose cidr contains the prefix and none of whose exceptions does. */
  peersOf(prefix: Prefix): number[] {
    const excepted = new Set(this.#excepted.covering(prefix));
    return this.#inside.covering(prefix).filter((peer) => !excepted.has(peer));
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
    const found: number[] = [];
    for (const [key, length] of this.#byLength) {
      const bits = key % 256;
      if (Math.floor(key / 256) !== prefix.family || bits > prefix.bits) continue;
      found.push(...(length.get(maskPrefix(prefix.family, prefix.bytes, bits).bytes.join('.')) ?? []));
    }
    return found;
  }
}
