import { createHash } from 'node:crypto';
import { settingsKey, settingsValue } from '@weir/bpf';
import type { BpfMap } from 'libbpf-ts';

/** Bits of setting 0 that the programs do not look at. */
const UNDER_WAY = 0x80000000;
const RULES_CHANGE = 0x40000000;
const RULES_SHIFT = 8;
const RULES = 0x3fffff00;

/** What the agent notes in the kernel for its successor, in setting 0. */
export class RoundMark {
  readonly #settings: Pick<BpfMap, 'lookup' | 'update'>;

  constructor(settings: Pick<BpfMap, 'lookup' | 'update'>) {
    this.#settings = settings;
  }

  /**
   * Whether a round is changing the kernel. Between a change of a slot or an address and the new revision of the endpoints that it concerns,
   * established flows are judged as before; an agent that dies there must not leave it so. The mark tells the next one to give every endpoint a
   * new revision.
   */
  get set(): boolean {
    return (this.#bits() & UNDER_WAY) !== 0;
  }

  begin(): void {
    this.#put(UNDER_WAY, UNDER_WAY);
  }

  end(): void {
    this.#put(UNDER_WAY, 0);
  }

  /** Setting 0 as the programs see it. */
  change(bits: number): void {
    this.#put(~(UNDER_WAY | RULES_CHANGE | RULES), bits);
  }

  /** Other rules, imported on this node, are about to be enforced: until `noteRules` their file may have those before or these. */
  changeRules(): void {
    this.#put(RULES_CHANGE, RULES_CHANGE);
  }

  /** These rules are enforced, and in their file, or cannot be. The file may be lost or old; that must not take them away. */
  noteRules(rules: readonly unknown[]): void {
    this.#put(RULES_CHANGE | RULES, digestOf(rules));
  }

  /** Whether these may be the rules enforced. `loaded`: they are those of the file; else there is none, or none that can be read. */
  mayHaveRules(rules: readonly unknown[], loaded: 'file' | 'absent' | 'unreadable'): boolean {
    const bits = this.#bits();
    const noted = bits & RULES;
    if (noted === digestOf(rules)) return true;
    // Without a note: after a boot, or of an agent that made none.
    return loaded === 'file' ? noted === 0 || (bits & RULES_CHANGE) !== 0 : noted === 0 && loaded === 'absent';
  }

  #bits(): number {
    const bytes = this.#settings.lookup(settingsKey.encode(0));
    return bytes === undefined ? 0 : settingsValue.decode(bytes);
  }

  #put(mask: number, bits: number): void {
    const before = this.#bits();
    const after = ((before & ~mask) | (bits & mask)) >>> 0;
    if (after !== before) this.#settings.update(settingsKey.encode(0), settingsValue.encode(after));
  }
}

function digestOf(rules: readonly unknown[]): number {
  const hash = createHash('sha256').update(JSON.stringify(rules)).digest().readUInt32BE(0) % (RULES >>> RULES_SHIFT);
  return (hash + 1) << RULES_SHIFT;
}
