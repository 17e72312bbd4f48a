import type { Reader } from '@weir/statedb';
import type { FaceSources } from './faces.ts';
import { backendName } from './realised.ts';
import type { Protocol } from './types.ts';

const PROTOCOLS: Readonly<Record<number, Protocol>> = { 6: 'TCP', 17: 'UDP', 132: 'SCTP' };
/** Of the time that one has taken, until the next may be made. */
const REST = 20;

/**
 * Which Services the kernel has a backend for, for events: those that are followed alone ask. Which of several Services a client has used is not
 * said. It is recreated when the kernel has something else, but for a twentieth of the time at most: of 100,000 backends it may be a second old.
 */
export class BackendNames {
  readonly #sources: FaceSources;
  #services: ReadonlyMap<string, readonly string[]> = new Map();
  #revision = -1;
  #restsUntil = 0;

  readonly #now: () => number;

  /** @param now milliseconds of a clock that only goes on */
  constructor(sources: FaceSources, now = (): number => performance.now()) {
    this.#sources = sources;
    this.#now = now;
  }

  backendOf(address: string, port: number, protocolNumber: number): readonly string[] {
    const protocol = PROTOCOLS[protocolNumber];
    if (protocol === undefined) return [];
    this.#update();
    return this.#services.get(backendName({ address, port, protocol })) ?? [];
  }

  #update(): void {
    using snapshot = this.#sources.read();
    const revision = snapshot.revision(this.#sources.realised.services);
    const now = this.#now();
    if (revision === this.#revision || now < this.#restsUntil) return;
    this.#services = servicesByBackend(snapshot, this.#sources);
    this.#revision = revision;
    const after = this.#now();
    this.#restsUntil = after + (after - now) * REST;
  }
}

function servicesByBackend(reader: Reader, { frontends, realised }: FaceSources): Map<string, string[]> {
  const names = new Map(Array.from(reader.all(realised.backends), ({ id, name }) => [id, name]));
  const found = new Map<string, Set<string>>();
  for (const { row, slots } of reader.all(realised.services)) {
    const service = row === undefined ? undefined : reader.get(frontends, row)?.service;
    if (service === undefined) continue;
    for (const slot of slots) {
      const name = names.get(slot) ?? '';
      const known = found.get(name);
      if (known === undefined) found.set(name, new Set([service]));
      else known.add(service);
    }
  }
  return new Map(Array.from(found, ([name, services]) => [name, [...services].sort()]));
}
