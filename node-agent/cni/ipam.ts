import { addressToU32, formatAddress, type Prefix, parsePrefix, u32ToAddress } from '@weir/net';
import type { StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import type { AddressLeases } from './address-leases.ts';
import { AddressesExhaustedError, AddressesRestingError, CNI_CODE, CniError, PodCidrError } from './errors.ts';
import { addressNumber, holds } from './kernel-addresses.ts';
import type { NodeAddress } from './types.ts';

/** Why an address is not given. */
const REASONS = {
  use: 'in use by endpoints of this node',
  pod: "in the status of this node's pods",
  slice: 'of other pods by CiliumEndpointSlices',
  node: 'routed or on an interface of this node',
  rest: 'released lately and resting',
  unknown: 'at rest',
} as const;
type Reason = keyof typeof REASONS;

/** These pass by themselves. */
const PASSING: readonly Reason[] = ['rest', 'unknown', 'slice'];
/** These do not count for whom the address was before. */
const RESTING: readonly (Reason | undefined)[] = ['rest', 'unknown'];

/** Why addresses that nobody has may rest. */
const RECORD_LOST = 'the record of lately released addresses is lost';

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

/** For whom an address is, and what is known of the node at this moment. */
export interface Asked {
  /** Absent: a pod that the cluster does not name. */
  readonly podUid?: string | undefined;
  /** What the node's kernel has. */
  readonly kernel: readonly NodeAddress[];
  /** The IPv4 address that the same container had until now: of its own it need not rest. Counts only while the pod CIDR has it. */
  readonly before?: string | undefined;
  /** As what other nodes will know the pod: an address that they knew as the same need not rest. Absent: that is not known. */
  readonly knownAs?: string | undefined;
}

export interface IpamOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'localPods' | 'remoteEndpoints' | 'endpoints'>;
  readonly leases: AddressLeases;
  /** The node's pod CIDR; undefined while unknown. */
  readonly cidr: () => string | undefined;
}

/**
 * Hands out the addresses of the node's pod CIDR in a circle: always the next one after the last that was given, so that an address comes
 * round again as late as it can. Not given is what anybody has: an endpoint, an ADD under way, another pod of this node by its status, another
 * pod by the slices, a route or an interface of the node, and what was given back less than `REST_MS` ago: a pod whose peers judge it as the one
 * before gets that when nothing else is left.
 */
export class Ipam {
  readonly #options: IpamOptions;

  constructor(options: IpamOptions) {
    this.#options = options;
  }

  get cidr(): string | undefined {
    return this.#options.cidr();
  }

  /** Reserves until `release`, which the caller calls once the address is in the endpoints table, or not needed. Throws `CniError`. */
  allocate(asked: Asked): string {
    const { leases } = this.#options;
    const cidr = this.cidr;
    if (cidr === undefined) {
      throw new CniError(
        CNI_CODE.tryLater,
        "this node's pod CIDR is not known yet",
        'it comes from Node.spec.podCIDR (is --allocate-node-cidrs set on the controller manager?) or the flag --pod-cidr',
      );
    }
    leases.follow();
    const counts = new Map<Reason, number>();
    let resting: string | undefined;
    for (const address of this.#candidates(cidr, asked.before)) {
      const reason = this.#taken(address, asked);
      if (reason === undefined || (RESTING.includes(reason) && address === asked.before)) {
        leases.give(address);
        return address;
      }
      if (reason === 'rest' && asked.knownAs !== undefined && leases.knownAs(address) === asked.knownAs)
        resting ??= address;
      if (address !== asked.before) counts.set(reason, (counts.get(reason) ?? 0) + 1);
    }
    if (resting !== undefined) {
      leases.give(resting);
      return resting;
    }
    const { first, last } = podRange(cidr);
    const taken = [...counts].map(([reason, count]) => `${count} ${this.#because(reason)}`).join(', ');
    const total = last - first + 1;
    if (!PASSING.some((reason) => counts.has(reason))) throw new AddressesExhaustedError(cidr, total, taken);
    throw new AddressesRestingError(cidr, total, taken, { rest: counts.has('rest'), slice: counts.has('slice') });
  }

  /** Why, and for how long, addresses without a record rest; undefined: there are none. */
  get resting(): string | undefined {
    return this.#options.leases.restsFor === 0
      ? undefined
      : `${RECORD_LOST}: addresses of which nothing is known rest for ${this.#secondsLeft()} s more`;
  }

  #because(reason: Reason): string {
    return reason === 'unknown'
      ? `${REASONS.unknown} for ${this.#secondsLeft()} s more (${RECORD_LOST})`
      : REASONS[reason];
  }

  #secondsLeft(): number {
    return Math.ceil(this.#options.leases.restsFor / 1_000);
  }

  release(address: string): void {
    this.#options.leases.settle(address);
  }

  /** Whether some address is free, now or once it has rested. */
  hasFree(cidr: string, kernel: readonly NodeAddress[]): boolean {
    this.#options.leases.follow();
    for (const address of this.#candidates(cidr)) {
      const reason = this.#taken(address, { kernel });
      if (reason === undefined || PASSING.includes(reason)) return true;
    }
    return false;
  }

  *#candidates(cidr: string, before?: string): Generator<string> {
    const { first, last } = podRange(cidr);
    if (before !== undefined && holds({ first, last }, before)) yield before;
    const given = this.#options.leases.last();
    const at = given === undefined ? last : addressNumber(given);
    const inside = at >= first && at <= last ? at : last;
    for (let next = inside + 1; next <= last; next++) yield formatAddress(u32ToAddress(next));
    for (let next = first; next <= inside; next++) yield formatAddress(u32ToAddress(next));
  }

  #taken(address: string, { podUid, kernel }: Pick<Asked, 'podUid' | 'kernel'>): Reason | undefined {
    const { db, tables, leases } = this.#options;
    const state = leases.state(address);
    if (state === 'use') return state;
    using snapshot = db.read();
    for (const _ of snapshot.list(tables.endpoints, 'address', address)) return 'use';
    for (const { uid } of snapshot.list(tables.localPods, 'address', address)) if (uid !== podUid) return 'pod';
    for (const row of snapshot.list(tables.remoteEndpoints, 'address', address))
      if (row.podUid === undefined || row.podUid !== podUid) return 'slice';
    return kernel.some((one) => holds(one, address)) ? 'node' : state;
  }
}
