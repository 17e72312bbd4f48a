import { addressToU32, formatAddress, type Prefix, parseAddress, parsePrefix, u32ToAddress } from '@weir/net';
import { AddressesExhaustedError, CNI_CODE, CniError, PodCidrError } from './errors.ts';

/** The usable addresses of a pod CIDR, as numbers: all but network, gateway (the first) and broadcast. Throws `PodCidrError`. */
export function podRange(cidr: string): { readonly first: number; readonly last: number } {
  const prefix = prefixOf(cidr);
  if (prefix.family !== 4) throw new PodCidrError(cidr, 'is not an IPv4 prefix');
  if (prefix.bits > 30) throw new PodCidrError(cidr, 'is too small');
  const base = addressToU32(prefix.bytes);
  return { first: base + 2, last: base + 2 ** (32 - prefix.bits) - 2 };
}

function prefixOf(cidr: string): Prefix {
  try {
    return parsePrefix(cidr, { requireLength: true });
  } catch (error) {
    throw new PodCidrError(cidr, 'is not a prefix', { cause: error });
  }
}

/**
 * Hands out the lowest free address of the node's pod CIDR. What is in use is asked anew at each allocation (the endpoints table is
 * the memory, so a restart forgets nothing); addresses of ADDs under way are reserved here.
 */
export class Ipam {
  readonly #cidr: () => string | undefined;
  readonly #inUse: () => Iterable<string>;
  /** In flight: addresses of ADDs between being chosen and their endpoint's row, or their failure. */
  readonly #reserved = new Set<string>();

  constructor(options: { readonly cidr: () => string | undefined; readonly inUse: () => Iterable<string> }) {
    this.#cidr = options.cidr;
    this.#inUse = options.inUse;
  }

  /** Reserves until `release`, which the caller calls once the address is in the endpoints table, or not needed. */
  allocate(): string {
    const cidr = this.#cidr();
    if (cidr === undefined) {
      throw new CniError(
        CNI_CODE.tryLater,
        "this node's pod CIDR is not known yet",
        'it comes from Node.spec.podCIDR (is --allocate-node-cidrs set on the controller manager?) or the flag --pod-cidr',
      );
    }
    const { first, last } = podRange(cidr);
    const taken = new Set<string>(this.#inUse());
    for (const address of this.#reserved) taken.add(address);
    for (let at = first; at <= last; at++) {
      const address = formatAddress(u32ToAddress(at));
      if (!taken.has(address)) {
        this.#reserved.add(address);
        return address;
      }
    }
    throw new AddressesExhaustedError(cidr, last - first + 1);
  }

  release(address: string): void {
    this.#reserved.delete(address);
  }

  /** Free addresses left; undefined while the CIDR is unknown. */
  free(): number | undefined {
    const cidr = this.#cidr();
    if (cidr === undefined) return undefined;
    const { first, last } = podRange(cidr);
    const taken = new Set<string>([...this.#inUse(), ...this.#reserved]);
    let inside = 0;
    for (const address of taken) {
      const value = addressToU32(parseAddress(address).bytes);
      if (value >= first && value <= last) inside++;
    }
    return last - first + 1 - inside;
  }
}
