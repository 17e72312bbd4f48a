/** The account of a run: packets by what they had to do, what was done, what was found. */

import { describe } from './judge/describe.ts';
import type { Duty, Finding, Verdict } from './judge/judge.ts';
import type { World } from './world/world.ts';

export interface Deed {
  readonly text: string;
  readonly at: number;
}

export interface FindingText {
  readonly wrong: 'allow' | 'drop';
  readonly text: string;
}

export interface Account {
  readonly packets: Readonly<Record<Duty, number>>;
  readonly wrongAllows: number;
  readonly wrongDrops: number;
  /** The first of each kind of finding. */
  readonly findings: readonly FindingText[];
  /** Rounds after which the cluster did not settle: each says what was left. */
  readonly unsettled: readonly string[];
  readonly calms: number;
  /** How often each action was played. */
  readonly actions: Readonly<Record<string, number>>;
  /** How often something really took place, by kind: what an action tried to do need not have come about. */
  readonly effects: Readonly<Record<string, number>>;
}

/** Findings that are told in full; a fault that goes on makes thousands. */
const TOLD = 12; // of wrong allows, and of wrong drops
const LOOK_BACK_MS = 20_000;

export class Ledger {
  readonly #world: World;
  readonly #packets: Record<Duty, number> = { arrive: 0, 'not arrive': 0, either: 0, exempt: 0 };
  readonly #wrong = { allow: 0, drop: 0 };
  readonly #findings: FindingText[] = [];
  readonly #unsettled: string[] = [];
  readonly #actions: Record<string, number> = {};
  readonly #effects: Record<string, number> = {};
  readonly #deeds: Deed[] = [];
  /** Flows that a finding has been told of since the last calm: what follows is more of the same. */
  readonly #told = new Set<string>();
  #calms = 0;

  constructor(world: World) {
    this.#world = world;
  }

  enter({ duty, findings }: Verdict): void {
    this.#packets[duty] += 1;
    for (const finding of findings) this.#find(finding);
  }

  #find(finding: Finding): void {
    this.#wrong[finding.wrong] += 1;
    const key = `${finding.wrong} ${finding.from.id} ${finding.to.id}`;
    const alike = this.#findings.filter(({ wrong }) => wrong === finding.wrong).length;
    if (alike >= TOLD || this.#told.has(key)) return;
    this.#told.add(key);
    const from = finding.packet.sent - LOOK_BACK_MS;
    const deeds = this.#deeds.filter(({ at }) => at >= from && at <= finding.window.to);
    this.#findings.push({ wrong: finding.wrong, text: describe(this.#world, finding, deeds) });
  }

  /** Something was done. */
  act(text: string, at: number): void {
    this.#deeds.push({ text, at });
    while ((this.#deeds[0]?.at ?? at) < at - 4 * LOOK_BACK_MS) this.#deeds.shift();
  }

  played(name: string): void {
    this.#actions[name] = (this.#actions[name] ?? 0) + 1;
  }

  /** Something of this kind has come about. */
  took(effect: string, count = 1): void {
    if (count > 0) this.#effects[effect] = (this.#effects[effect] ?? 0) + count;
  }

  calm(): void {
    this.#calms += 1;
    this.#told.clear();
  }

  unsettled(text: string): void {
    this.#unsettled.push(text);
  }

  get account(): Account {
    return {
      packets: { ...this.#packets },
      wrongAllows: this.#wrong.allow,
      wrongDrops: this.#wrong.drop,
      findings: [...this.#findings],
      unsettled: [...this.#unsettled],
      calms: this.#calms,
      actions: { ...this.#actions },
      effects: { ...this.#effects },
    };
  }
}
