/**
 * Chaos: a cluster under random edits and faults, with numbered packets between all its pods, judged by an oracle of its own.
 *
 * Guarantees:
 * - a packet that no combination of versions that may be in force allows, and that arrives, is found; so is one that every combination
 *   allows, and that does not arrive although it had time to;
 * - a finding names the packet, the versions that were considered, what was done before, and the seed;
 * - a seed repeats the choices (what is done to whom, in which order), not the times: those are the machine's;
 * - nothing of it outlives the run, nor the process.
 *
 * `world/` is what was asked for, `actions/` asks for it, `traffic/` sends, `judge/` judges.
 */
export { passed, print } from './report.ts';
export { type ChaosOptions, type ChaosReport, chaos, UnknownActionError } from './run.ts';
