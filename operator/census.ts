/** How many pods of each identity are on each node. */

/** A pod that has an identity and an address. */
export interface Resident {
  readonly identity: number;
  /** undefined: no node is known. */
  readonly node: string | undefined;
  /** Being deleted: it may run for a while, or be gone from its node already. */
  readonly leaving: boolean;
}

export interface Count {
  readonly staying: number;
  readonly leaving: number;
}

const NONE: ReadonlyMap<string, Count> = new Map();

export class Census {
  readonly #counts = new Map<number, Map<string, Count>>();
  readonly #onChange: (identity: number) => void;

  /** `onChange`: the counts of the identity have changed. */
  constructor(onChange: (identity: number) => void) {
    this.#onChange = onChange;
  }

  move(before: Resident | undefined, after: Resident | undefined): void {
    const same =
      before?.identity === after?.identity && before?.node === after?.node && before?.leaving === after?.leaving;
    if (same) return;
    this.#add(before, -1);
    this.#add(after, 1);
    if (before !== undefined) this.#onChange(before.identity);
    if (after !== undefined && after.identity !== before?.identity) this.#onChange(after.identity);
  }

  /** Pods of an identity by node. */
  of(identity: number): ReadonlyMap<string, Count> {
    return this.#counts.get(identity) ?? NONE;
  }

  #add(resident: Resident | undefined, by: 1 | -1): void {
    if (resident?.node === undefined) return;
    const { identity, node, leaving } = resident;
    const nodes = this.#counts.get(identity) ?? new Map<string, Count>();
    const { staying, leaving: going } = nodes.get(node) ?? { staying: 0, leaving: 0 };
    const count = leaving ? { staying, leaving: going + by } : { staying: staying + by, leaving: going };
    if (count.staying + count.leaving === 0) nodes.delete(node);
    else nodes.set(node, count);
    if (nodes.size === 0) this.#counts.delete(identity);
    else this.#counts.set(identity, nodes);
  }
}
