import { type Family, maskPrefix, type Prefix, parsePrefix } from '@weir/net';

/** A prefix that some peer names, as its CIDR or as an exception of it. Addresses of which it is the longest such prefix have the same peers. */
export interface Region {
  readonly prefix: Prefix;
  /** Peers that name it as their CIDR. */
  readonly inside: number[];
  /** Peers that name it as an exception. */
  readonly excepted: number[];
}

const NOBODY: readonly number[] = [];

/** Peers of many rules by prefix: which of them hold a given prefix, without looking at each. */
export class CidrIndex {
  readonly #families: Readonly<Record<Family, Regions>> = { 4: new Regions(), 6: new Regions() };

  /** `peer` is any number that names the (cidr, except) pair; each pair needs its own. */
  add(peer: number, cidr: string, except: readonly string[]): void {
    this.#of(parsePrefix(cidr)).inside.push(peer);
    for (const text of except) this.#of(parsePrefix(text)).excepted.push(peer);
  }

  /** The longest region that contains the prefix. */
  regionOf(prefix: Prefix): Region | undefined {
    return this.#families[prefix.family].longest(prefix);
  }

  /** Whether some CIDR or exception contains the prefix. */
  isWithin(prefix: Prefix): boolean {
    return this.regionOf(prefix) !== undefined;
  }

  /**
   * The peers whose cidr contains the region and none of whose exceptions does. `look` is told, before they are compared, how many have such a
   * cidr or exception.
   */
  peersOf({ prefix }: Region, look: (count: number) => void = () => undefined): readonly number[] {
    const holding = this.#families[prefix.family].holding(prefix);
    let [inside, excepted] = [0, 0];
    for (const region of holding) {
      inside += region.inside.length;
      excepted += region.excepted.length;
    }
    look(inside + excepted);
    if (inside === 0) return NOBODY;
    const without = excepted === 0 ? undefined : new Set(holding.flatMap((region) => region.excepted));
    const peers: number[] = [];
    for (const region of holding) for (const peer of region.inside) if (!without?.has(peer)) peers.push(peer);
    return peers;
  }

  #of(prefix: Prefix): Region {
    return this.#families[prefix.family].of(prefix);
  }
}

type RegionKey = number | string;

/** Regions of one family, by length. */
class Regions {
  readonly #byLength = new Map<number, Map<RegionKey, Region>>();
  /** In use, longest first. */
  #lengths: readonly number[] = [];

  of(prefix: Prefix): Region {
    let regions = this.#byLength.get(prefix.bits);
    if (regions === undefined) {
      regions = new Map();
      this.#byLength.set(prefix.bits, regions);
      this.#lengths = [...this.#byLength.keys()].sort((a, b) => b - a);
    }
    const key = keyOf(prefix, prefix.bits);
    const known = regions.get(key) ?? { prefix, inside: [], excepted: [] };
    regions.set(key, known);
    return known;
  }

  longest(prefix: Prefix): Region | undefined {
    for (const bits of this.#lengths) {
      const found = this.#at(prefix, bits);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Those that contain the prefix, longest first. */
  holding(prefix: Prefix): readonly Region[] {
    const holding: Region[] = [];
    for (const bits of this.#lengths) {
      const found = this.#at(prefix, bits);
      if (found !== undefined) holding.push(found);
    }
    return holding;
  }

  #at(prefix: Prefix, bits: number): Region | undefined {
    return bits > prefix.bits ? undefined : this.#byLength.get(bits)?.get(keyOf(prefix, bits));
  }
}

/** The first `bits` bits: as a number where they are an IPv4 address's, of which there may be very many. */
function keyOf({ family, bytes }: Prefix, bits: number): RegionKey {
  if (family === 6) return maskPrefix(family, bytes, bits).bytes.join('.');
  const [a = 0, b = 0, c = 0, d = 0] = bytes;
  return bits === 0 ? 0 : ((a << 24) | (b << 16) | (c << 8) | d) >>> (32 - bits);
}
