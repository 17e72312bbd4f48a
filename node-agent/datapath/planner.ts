/** What datapath/ asks of those who know policies: derive/ answers (`Model`, `LocalNumbers`). */
import type { Plan } from '../derive/contract.ts';
import type { EndpointStateRow } from '../tables.ts';

/** Says what the kernel is to hold, and hears what became of it. */
export interface Planner {
  /** Takes in at most `limit` changes of inputs; whether more may be waiting. */
  pull(limit: number): boolean;
  /** Calls back once, when there is something to pull (at once when there is already). Returns the unsubscribe function. */
  onPending(callback: () => void): () => void;
  /** When there is something to plan though no input changes, by the clock of the rounds; undefined: not before an input does. */
  dueAt(): number | undefined;
  /** Whether something that could not be planned is due to be tried again. */
  readonly failing: boolean;
  /** What rules wait for since the start. */
  awaited(): { readonly size: number };

  /** What a round is to carry out, as far as it is known. Its rows count as current from then on. */
  plan(known: { readonly rules: boolean }): Promise<Plan>;
  /** The kernel has these revisions of endpoints that are else as they were found. */
  renewed(revisions: Iterable<readonly [id: number, revision: number]>): void;

  states(): Iterable<EndpointStateRow>;
  state(endpoint: number): EndpointStateRow | undefined;
  /** Whether some address has the identity, once the current plan is in the kernel. */
  addressed(identity: number): boolean;
  /** New revisions for endpoints whose decisions may differ. */
  bump(endpoints: Iterable<number>): readonly EndpointStateRow[];

  /** The kernel keeps addresses that the last plan lets go, with these identities. */
  keepAddresses(kept: Iterable<readonly [prefix: string, identity: number]>): void;
  /** The kernel knows nobody at these addresses: the next plan has them again. */
  withholdAddresses(prefixes: Iterable<string>): void;
  /** The kernel has dropped these CIDRs: their numbers may be given out again. */
  forgetCidrs(prefixes: Iterable<string>): void;
  /** The slot in the kernel cannot become what the last plan says of it: the next has another one. */
  slotOutgrown(slot: number): void;
  /** The kernel has nothing of the slot any more. */
  slotReleased(slot: number): void;
}

/** Numbers given out on this node. */
export interface Numbers {
  /** A datapath revision that is newer than all before. */
  revision(): number;
  /** Something was given out, or given back, since it was saved last. */
  dirty: boolean;
}
