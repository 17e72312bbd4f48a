import { ENDPOINT_FLAGS, endpointKey, endpointValue } from '@weir/bpf';
import { formatAddress, parseAddress } from '@weir/net';
import type { KernelEndpoint } from '../derive/index.ts';
import { OrderError } from '../errors.ts';
import type { EndpointStateRow } from '../tables.ts';
import type { EndpointTable } from './endpoint-map.ts';
import type { LinkTable } from './links.ts';

/** Endpoints in the kernel: the word that says which policy revision judges, and the programs on the interface. */
export class EndpointStore {
  readonly #map: EndpointTable;
  readonly #links: LinkTable;
  /** Whether the kernel holds the slot as its newest row says. */
  readonly #slotReady: (slot: number) => boolean;
  /** What the kernel acknowledged, by id. */
  readonly #held = new Map<number, EndpointStateRow>();
  /** Slot of each endpoint that was found at start and is not written yet. */
  readonly #found = new Map<number, KernelEndpoint>();

  constructor(map: EndpointTable, links: LinkTable, slotReady: (slot: number) => boolean) {
    this.#map = map;
    this.#links = links;
    this.#slotReady = slotReady;
  }

  adopt(): KernelEndpoint[] {
    for (const [, bytes] of this.#map.entries()) {
      const value = endpointValue.decode(bytes);
      this.#found.set(value.id, {
        id: value.id,
        ifindex: value.ifindex,
        ipv4: formatAddress(value.ipv4),
        slot: value.slot,
        revision: value.revision,
        enforced: {
          ingress: (value.flags & ENDPOINT_FLAGS.ingressEnforced) !== 0,
          egress: (value.flags & ENDPOINT_FLAGS.egressEnforced) !== 0,
        },
      });
    }
    return [...this.#found.values()];
  }

  /** What the kernel acknowledged. */
  held(id: number): EndpointStateRow | undefined {
    return this.#held.get(id);
  }

  allHeld(): Iterable<EndpointStateRow> {
    return this.#held.values();
  }

  /** Whether some endpoint in the kernel points at the slot. */
  uses(slot: number): boolean {
    for (const row of this.#held.values()) if (row.slot === slot) return true;
    for (const found of this.#found.values()) if (found.slot === slot) return true;
    return false;
  }

  update(row: EndpointStateRow): void {
    if (row.slot !== 0 && !this.#slotReady(row.slot)) {
      throw new OrderError(
        `endpoint ${row.id} cannot move to policy slot ${row.slot}: the slot is not complete in the kernel`,
      );
    }
    const key = endpointKey.encode(row.ifindex);
    const value = endpointValue.encode({
      revision: row.revision,
      slot: row.slot,
      flags:
        (row.enforced.ingress ? ENDPOINT_FLAGS.ingressEnforced : 0) |
        (row.enforced.egress ? ENDPOINT_FLAGS.egressEnforced : 0),
      ifindex: row.ifindex,
      ipv4: parseAddress(row.ipv4).bytes,
      identity: row.identity,
      id: row.id,
    });
    const had = this.#map.lookup(key);
    if (had === undefined || Buffer.compare(had, value) !== 0) this.#map.update(key, value);
    this.#links.ensure(row.id, row.ifindex);
    const before = this.#held.get(row.id)?.ifindex ?? this.#found.get(row.id)?.ifindex;
    if (before !== undefined && before !== row.ifindex) this.#removeEntry(before, row.id);
    this.#found.delete(row.id);
    this.#held.set(row.id, row);
  }

  /** Detaches first: an interface whose programs find no endpoint would drop everything with a misleading reason. */
  delete(id: number): void {
    this.#links.remove(id);
    const ifindex = this.#held.get(id)?.ifindex ?? this.#found.get(id)?.ifindex;
    if (ifindex !== undefined) this.#removeEntry(ifindex, id);
    this.#held.delete(id);
    this.#found.delete(id);
  }

  /** Endpoints that the kernel or a pin knows, and nobody else. */
  strays(known: (id: number) => boolean): number[] {
    const ids = new Set([...this.#found.keys(), ...this.#held.keys(), ...this.#links.endpoints()]);
    return [...ids].filter((id) => !known(id));
  }

  #removeEntry(ifindex: number, id: number): void {
    const key = endpointKey.encode(ifindex);
    const bytes = this.#map.lookup(key);
    // The interface index may belong to a new endpoint by now.
    if (bytes !== undefined && endpointValue.decode(bytes).id === id) this.#map.delete(key);
  }
}
