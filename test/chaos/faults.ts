/** What is broken now, and how each of it is mended. */
import type { Cluster } from '../cluster/index.ts';
import type { Program } from '../cluster/process.ts';

/** A program, by the number of its node or its own, from 1. */
export type Who = { readonly agent: number } | { readonly operator: number };

export interface FaultsOptions {
  /** An agent has just died. */
  readonly onKill?: (node: number) => void;
  /** Something has really been done to a program. */
  readonly onEffect?: (effect: string) => void;
}

export class Faults {
  readonly #cluster: Cluster;
  readonly #options: FaultsOptions;
  /** By name, in the order in which they began. */
  readonly #broken = new Map<string, () => void>();
  #hiddenUntil = 0;
  #kills = 0;

  constructor(cluster: Cluster, options: FaultsOptions = {}) {
    this.#cluster = cluster;
    this.#options = options;
  }

  get names(): readonly string[] {
    return [...this.#broken.keys()];
  }

  /** Programs killed so far. */
  get kills(): number {
    return this.#kills;
  }

  /** Until this time a fault may be there that the system need not have noticed. */
  get hidden(): number {
    return this.#hiddenUntil;
  }

  hiddenUntil(at: number): void {
    this.#hiddenUntil = Math.max(this.#hiddenUntil, at);
  }

  /** Something is broken until `mend`; broken again it is mended first. */
  add(name: string, mend: () => void): void {
    this.#broken.get(name)?.();
    this.#broken.delete(name);
    this.#broken.set(name, mend);
  }

  /** A program that is down already stays so. */
  async kill(who: Who): Promise<void> {
    const { program, name, start } = this.#program(who);
    if (this.#broken.has(`${name} down`)) return;
    this.#broken.delete(`${name} frozen`);
    this.#kills += 1;
    await program.kill9();
    if ('agent' in who) this.#options.onKill?.(who.agent);
    this.#options.onEffect?.('agent' in who ? 'agent killed' : 'operator killed');
    this.add(`${name} down`, start);
  }

  freeze(who: Who): void {
    const { program, name } = this.#program(who);
    if (!program.running || this.#broken.has(`${name} frozen`)) return;
    program.freeze();
    this.#options.onEffect?.('agent' in who ? 'agent frozen' : 'operator frozen');
    this.add(`${name} frozen`, () => program.thaw());
  }

  /** The program runs again. */
  revive(who: Who): void {
    const { name } = this.#program(who);
    for (const how of ['frozen', 'down']) this.mend(`${name} ${how}`);
  }

  /** One fault, when it is there. */
  mend(name: string): void {
    const mend = this.#broken.get(name);
    this.#broken.delete(name);
    mend?.();
  }

  /** Everything. Programs that are to start last find the rest mended. */
  heal(): void {
    const names = [...this.names].sort((a, b) => Number(a.endsWith(' down')) - Number(b.endsWith(' down')));
    for (const name of names) this.mend(name);
    this.#cluster.api.faults.clear();
  }

  /** Programs that have ended though nobody ended them. */
  ended(): readonly string[] {
    const programs = [...this.#cluster.operators, ...this.#cluster.nodes.map(({ agent }) => agent)];
    return programs.filter(({ running }) => !running).map(({ name, tail }) => `${name} has ended: ${tail.slice(-600)}`);
  }

  #program(who: Who): { program: Program; name: string; start: () => void } {
    if ('operator' in who) {
      const program = this.#cluster.operators[who.operator - 1];
      if (program === undefined) throw new Error(`there is no operator ${who.operator}`);
      return { program, name: program.name, start: () => this.#cluster.startOperator(who.operator) };
    }
    const node = this.#cluster.node(who.agent);
    return { program: node.agent, name: `agent of ${node.name}`, start: () => void node.launchAgent() };
  }
}
