import {
  addressBits,
  addressToInt,
  formatAddress,
  intToAddress,
  type Prefix,
  parseAddress,
  parsePrefix,
  prefixContains,
} from '@weir/net';
import type { StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import type { AddressLeases } from './address-leases.ts';
import { AddressesExhaustedError, AddressesRestingError, CNI_CODE, CniError, PodCidrError } from './errors.ts';
import { holds, sizeOf } from './kernel-addresses.ts';
import type { AddressRange, NodeAddress } from './types.ts';

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

/** Of a larger range nobody looks at one address after the other only to say that each rests. */
const MOST_COUNTED = 65_536n;

/** Why addresses that nobody has may rest. */
const RECORD_LOST = 'the record of lately released addresses is lost';

/** Loopback, link-local, groups, and IPv4 written as IPv6. */
const NO_PODS = ['127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '::/96', '::ffff:0:0/96', 'fe80::/10', 'ff00::/8'].map(
  (text) => parsePrefix(text),
);

/**
 * The usable addresses of a pod CIDR: all but the network's own (in IPv6 the routers' anycast address), the gateway's (the first) and, in IPv4,
 * broadcast. Throws `PodCidrError`.
 */
export function podRange(cidr: string): AddressRange {
  const prefix = prefixOf(cidr);
  const { family, bytes, bits } = prefix;
  if (bits > addressBits(family) - 2) throw new PodCidrError(cidr, 'is too small');
  if (NO_PODS.some((range) => prefixContains(range, prefix)))
    throw new PodCidrError(cidr, 'has addresses that no pod can have');
  const base = addressToInt(bytes);
  const end = base + sizeOf(family, bits) - 1n;
  return { family, first: base + 2n, last: family === 4 ? end - 1n : end };
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
  /** The addresses that the same container had until now: of its own they need not rest. Each counts only while a pod CIDR has it. */
  readonly before?: readonly string[] | undefined;
  /** As what other nodes will know the pod: an address that they knew as the same need not rest. Absent: that is not known. */
  readonly knownAs?: string | undefined;
}

export interface IpamOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'localPods' | 'remoteEndpoints' | 'endpoints'>;
  readonly leases: AddressLeases;
  /** The node's pod CIDRs, of each family one at most; none while they are not known. */
  readonly cidrs: () => readonly string[];
}

/** Why an address is not given, and the last address of which that is known as well. */
interface Taken {
  readonly reason: Reason;
  readonly until: bigint;
}

/**
 * Hands out the addresses of the node's pod CIDRs, of each family one, in a circle: always the next one after the last that was given, so that an
 * address comes round again as late as it can. Not given is what anybody has: an endpoint, an ADD under way, another pod of this node by its
 * status, another pod by the slices, a route or an interface of the node, and what was given back less than `REST_MS` ago: a pod whose peers judge
 * it as the one before gets that when nothing else is left.
 */
export class Ipam {
  readonly #options: IpamOptions;

  constructor(options: IpamOptions) {
    this.#options = options;
  }

  /** Of each family one, IPv4 first; none while they are not known. */
  get cidrs(): readonly string[] {
    return this.#options.cidrs();
  }

  /**
   * Reserves until `release`, which the caller calls once the addresses are in the endpoints table, or not needed. All or none: throws `CniError`
   * when one of the CIDRs has none.
   */
  allocate(asked: Asked): readonly string[] {
    const { cidrs } = this;
    if (cidrs.length === 0) {
      throw new CniError(
        CNI_CODE.tryLater,
        "this node's pod CIDRs are not known yet",
        'they come from Node.spec.podCIDRs (is --allocate-node-cidrs set on the controller manager?) or the flag --pod-cidr',
      );
    }
    this.#options.leases.follow();
    const addresses: string[] = [];
    try {
      for (const cidr of cidrs) addresses.push(this.#allocateFrom(cidr, asked));
      return addresses;
    } catch (error) {
      this.release(addresses);
      throw error;
    }
  }

  #allocateFrom(cidr: string, asked: Asked): string {
    const { leases } = this.#options;
    const range = podRange(cidr);
    const before = asked.before?.find((address) => holds(range, address));
    if (before !== undefined) {
      const reason = this.#taken(before, asked)?.reason;
      if (reason === undefined || RESTING.includes(reason)) return this.#give(before);
    }
    const large = range.last - range.first > MOST_COUNTED;
    const counts = new Map<Reason, bigint>();
    let resting: string | undefined;
    for (const [first, last] of this.#circle(range))
      for (let next = first; next <= last; ) {
        const address = formatAddress(intToAddress(range.family, next));
        const taken = this.#taken(address, asked);
        if (taken === undefined) return this.#give(address);
        const { reason } = taken;
        if (reason === 'rest' && asked.knownAs !== undefined && leases.knownAs(address) === asked.knownAs)
          resting ??= address;
        const until = taken.until < last && !(large && reason === 'unknown') ? taken.until : last;
        counts.set(reason, (counts.get(reason) ?? 0n) + until - next + 1n);
        next = until + 1n;
      }
    if (resting !== undefined) return this.#give(resting);
    const taken = [...counts].map(([reason, count]) => `${count} ${this.#because(reason)}`).join(', ');
    const total = range.last - range.first + 1n;
    if (!PASSING.some((reason) => counts.has(reason))) throw new AddressesExhaustedError(cidr, total, taken);
    throw new AddressesRestingError(cidr, total, taken, { rest: counts.has('rest'), slice: counts.has('slice') });
  }

  #give(address: string): string {
    this.#options.leases.give(address);
    return address;
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

  release(addresses: readonly string[]): void {
    for (const address of addresses) this.#options.leases.settle(address);
  }

  /** Whether some address is free, now or once it has rested. */
  hasFree(cidr: string, kernel: readonly NodeAddress[]): boolean {
    this.#options.leases.follow();
    const range = podRange(cidr);
    for (const [first, last] of this.#circle(range))
      for (let next = first; next <= last; ) {
        const taken = this.#taken(formatAddress(intToAddress(range.family, next)), { kernel });
        if (taken === undefined || PASSING.includes(taken.reason)) return true;
        next = taken.until + 1n;
      }
    return false;
  }

  /** From the one after the last that was given, once round. */
  #circle({ family, first, last }: AddressRange): readonly (readonly [first: bigint, last: bigint])[] {
    const given = this.#options.leases.last(family);
    const at = given === undefined ? last : addressToInt(parseAddress(given).bytes);
    const inside = at >= first && at <= last ? at : last;
    return [
      [inside + 1n, last],
      [first, inside],
    ];
  }

  #taken(address: string, { podUid, kernel }: Pick<Asked, 'podUid' | 'kernel'>): Taken | undefined {
    const { db, tables, leases } = this.#options;
    const at = addressToInt(parseAddress(address).bytes);
    const alone = (reason: Reason): Taken => ({ reason, until: at });
    const state = leases.state(address);
    if (state === 'use') return alone(state);
    using snapshot = db.read();
    for (const _ of snapshot.list(tables.endpoints, 'address', address)) return alone('use');
    for (const { uid } of snapshot.list(tables.localPods, 'address', address)) if (uid !== podUid) return alone('pod');
    for (const row of snapshot.list(tables.remoteEndpoints, 'address', address))
      if (row.podUid === undefined || row.podUid !== podUid) return alone('slice');
    const other = kernel.find((one) => holds(one, address));
    if (other !== undefined) return { reason: 'node', until: other.last };
    return state === undefined ? undefined : alone(state);
  }
}
