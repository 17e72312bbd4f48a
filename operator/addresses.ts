/**
 * Which pod an address speaks for. Pods may claim the same address for a while: one that is going keeps its address in
 * the API when its network is gone already, and a rebooted node's pods come back with each other's.
 *
 * Guarantee: at most one pod owns an address. One that stays wins over those that are going; among equals nobody does, so
 * that nodes take the address for unknown until the API server tells them apart.
 */
export class AddressBook {
  readonly #claims = new Map<string, string | readonly string[]>();
  readonly #leaving = new Set<string>();

  /** Replaces a pod's claims. Returns the other pods that may have gained or lost an address by it. */
  set(pod: string, before: readonly string[], after: readonly string[], leaving: boolean): ReadonlySet<string> {
    const rivals = new Set<string>();
    const moved = this.#leaving.has(pod) !== leaving;
    for (const address of before) {
      if (moved || !after.includes(address)) this.#note(rivals, address, pod);
      if (!after.includes(address)) this.#drop(address, pod);
    }
    for (const address of after) {
      if (before.includes(address)) continue;
      this.#note(rivals, address, pod);
      const known = this.#claims.get(address);
      if (known === undefined) this.#claims.set(address, pod);
      else this.#claims.set(address, [...(typeof known === 'string' ? [known] : known), pod]);
    }
    if (leaving && after.length > 0) this.#leaving.add(pod);
    else this.#leaving.delete(pod);
    return rivals;
  }

  owns(pod: string, address: string): boolean {
    const claims = this.#claims.get(address);
    if (claims === undefined || typeof claims === 'string') return claims === pod;
    const staying = claims.filter((other) => !this.#leaving.has(other));
    return (staying.length === 0 ? claims.length === 1 : staying.length === 1) && (staying[0] ?? claims[0]) === pod;
  }

  /** Other pods that claim the address. */
  rivals(pod: string, address: string): readonly string[] {
    const claims = this.#claims.get(address);
    return claims === undefined || typeof claims === 'string' ? [] : claims.filter((other) => other !== pod);
  }

  #note(rivals: Set<string>, address: string, pod: string): void {
    const claims = this.#claims.get(address);
    if (claims === undefined) return;
    for (const other of typeof claims === 'string' ? [claims] : claims) if (other !== pod) rivals.add(other);
  }

  #drop(address: string, pod: string): void {
    const claims = this.#claims.get(address);
    if (claims === undefined || typeof claims === 'string') {
      if (claims === pod) this.#claims.delete(address);
      return;
    }
    const [first, ...others] = claims.filter((other) => other !== pod);
    if (first !== undefined) this.#claims.set(address, others.length === 0 ? first : [first, ...others]);
  }
}
