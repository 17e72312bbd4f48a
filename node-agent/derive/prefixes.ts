import { addressBits, formatPrefix, maskPrefix, parsePrefix } from '@weir/net';

/** Identities by prefix with longest match, as the kernel's trie answers. Prefixes are canonical texts. */
export class PrefixIdentities {
  readonly #byPrefix = new Map<string, number>();
  /** How many prefixes have each (family, length): only lengths that exist are tried. */
  readonly #lengths = new Map<number, number>();

  get size(): number {
    return this.#byPrefix.size;
  }

  get(prefix: string): number | undefined {
    return this.#byPrefix.get(prefix);
  }

  set(prefix: string, identity: number): void {
    if (!this.#byPrefix.has(prefix)) this.#count(prefix, 1);
    this.#byPrefix.set(prefix, identity);
  }

  delete(prefix: string): void {
    if (this.#byPrefix.delete(prefix)) this.#count(prefix, -1);
  }

  entries(): IterableIterator<[string, number]> {
    return this.#byPrefix.entries();
  }

  /** Identity of the prefix itself, else of the longest one that contains it; 0 when none. */
  match(prefix: string): number {
    const own = this.#byPrefix.get(prefix);
    if (own !== undefined) return own;
    const { family, bytes, bits } = parsePrefix(prefix);
    for (let length = bits - 1; length >= 0; length -= 1) {
      if (!this.#lengths.has(family * 256 + length)) continue;
      const found = this.#byPrefix.get(formatPrefix(maskPrefix(family, bytes, length)));
      if (found !== undefined) return found;
    }
    return 0;
  }

  #count(prefix: string, by: number): void {
    const slash = prefix.indexOf('/');
    const family = prefix.includes(':') ? 6 : 4;
    const length = family * 256 + Number(prefix.slice(slash + 1));
    const next = (this.#lengths.get(length) ?? 0) + by;
    if (next === 0) this.#lengths.delete(length);
    else this.#lengths.set(length, next);
  }
}

/** The prefix of one address, or undefined when the text is no address. */
export function hostPrefix(address: string): string | undefined {
  try {
    const prefix = parsePrefix(address);
    return prefix.bits === addressBits(prefix.family) ? formatPrefix(prefix) : undefined;
  } catch {
    return undefined;
  }
}

/** The canonical prefix, or undefined when the text is none. */
export function prefixOrNone(text: string): string | undefined {
  try {
    return formatPrefix(parsePrefix(text));
  } catch {
    return undefined;
  }
}
