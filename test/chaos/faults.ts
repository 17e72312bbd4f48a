/** What is broken now, and how each of it is mended. */
import { rmSync } from 'node:fs';
import type { Cluster } from '../cluster/index.ts';
import type { Program } from '../cluster/process.ts';

export class Faults {
  readonly #cluster: Cluster;
  readonly #onKill: (node: number) => void;
  /** By name, in the order in which they began. */
  readonly #broken = new Map<string, () => void>();
  #hiddenUntil = 0;
  #kills = 0;

  /** `onKill`: an agent has just died. */
  constructor(cluster: Cluster, onKill: (node: number) => void = () => undefined) {
    this.#cluster = cluster;
    this.#onKill = onKill;
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

  /** Something is broken until `mend`; broken anew it is mended first. */
  add(name: string, mend: () => void): void {
    this.#broken.get(name)?.();
    this.#broken.delete(name);
    this.#broken.set(name, mend);
  }

  /** A program that is down already stays so. */
  async kill(who: 'operator' | number): Promise<void> {
    const { program, name, start } = this.#program(who);
    if (this.#broken.has(`${name} down`)) return;
    this.#broken.delete(`${name} frozen`);
    this.#kills += 1;
    await program.kill9();
    if (who !== 'operator') this.#onKill(who);
    this.add(`${name} down`, start);
  }

  freeze(who: 'operator' | number): void {
    const { program, name } = this.#program(who);
    if (!program.running || this.#broken.has(`${name} frozen`)) return;
    program.freeze();
    this.add(`${name} frozen`, () => program.thaw());
  }

  fill(node: number, file: string): void {
    this.add(`disk of node-${node} full`, () => rmSync(file, { force: true }));
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
    const programs = [this.#cluster.operator, ...this.#cluster.nodes.map(({ agent }) => agent)];
    return programs.filter(({ running }) => !running).map(({ name, tail }) => `${name} has ended: ${tail.slice(-600)}`);
  }

  #program(who: 'operator' | number): { program: Program; name: string; start: () => void } {
    if (who === 'operator')
      return { program: this.#cluster.operator, name: who, start: () => this.#cluster.startOperator() };
    const node = this.#cluster.node(who);
    return { program: node.agent, name: `agent of ${node.name}`, start: () => void node.launchAgent() };
  }
}
