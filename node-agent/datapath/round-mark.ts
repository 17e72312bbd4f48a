import { settingsKey, settingsValue } from '@weir/bpf';
import type { BpfMap } from 'libbpf-ts';

/** The highest bit of setting 0; the programs do not look at it. */
const UNDER_WAY = 0x80000000;

/**
 * A mark in the kernel that a round is changing it. Between a change of a slot or an address and the new revision of the
 * endpoints that it concerns, established flows are judged as before; an agent that dies there must not leave it so. The
 * mark tells the next one to give every endpoint a new revision.
 */
export class RoundMark {
  readonly #settings: BpfMap;

  constructor(settings: BpfMap) {
    this.#settings = settings;
  }

  get set(): boolean {
    return (this.#bits() & UNDER_WAY) !== 0;
  }

  begin(): void {
    const bits = this.#bits();
    if ((bits & UNDER_WAY) === 0) this.#write((bits | UNDER_WAY) >>> 0);
  }

  end(): void {
    const bits = this.#bits();
    if ((bits & UNDER_WAY) !== 0) this.#write(bits & ~UNDER_WAY);
  }

  /** Setting 0 as the programs see it. */
  change(bits: number): void {
    this.#write(((this.#bits() & UNDER_WAY) | bits) >>> 0);
  }

  #bits(): number {
    const bytes = this.#settings.lookup(settingsKey.encode(0));
    return bytes === undefined ? 0 : settingsValue.decode(bytes);
  }

  #write(bits: number): void {
    this.#settings.update(settingsKey.encode(0), settingsValue.encode(bits));
  }
}
