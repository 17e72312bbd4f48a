import type { Random } from '../random.ts';
import type { Stage } from '../stage.ts';

/**
 * Something that a run may do. It chooses by `random` and by what is wanted (the world), never by what has happened to be reached, so
 * that a seed repeats the run's choices.
 */
export interface Action {
  readonly name: string;
  /** How often, beside the others. */
  readonly weight: number;
  /** Of what kinds the effects are that it is played for (`Account.effects`). */
  readonly effects: readonly string[];
  play(stage: Stage, random: Random): Promise<void>;
}

export const action = (name: string, weight: number, play: Action['play'], ...effects: readonly string[]): Action => ({
  name,
  weight,
  play,
  effects,
});
