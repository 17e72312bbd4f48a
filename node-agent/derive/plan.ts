/** What the model is given of the kernel at start, and what a round is to carry out. */
import type { EndpointStateRow, IpcacheRow, KernelEndpoint, SlotRow } from '../tables.ts';
import type { KernelSlot } from './slot-rows.ts';

/** What was found in the kernel at start. */
export interface KernelState {
  readonly endpoints: readonly KernelEndpoint[];
  readonly slots: ReadonlyMap<number, KernelSlot>;
  readonly ipcache: Iterable<readonly [prefix: string, identity: number]>;
  /** A round was under way: endpoints' revisions may not tell of everything that has changed. */
  readonly interrupted: boolean;
  /** Endpoints are enforced by maps that this version cannot read (another layout): they are not in `endpoints`. */
  readonly unread?: boolean;
}

/** Changes to the derived tables, in the order in which they may reach the kernel. */
export interface Plan {
  readonly slots: readonly SlotRow[];
  readonly ipcache: readonly IpcacheRow[];
  /** By prefix of those that get another identity: the one that they had. */
  readonly moved: ReadonlyMap<string, number>;
  readonly endpoints: readonly EndpointStateRow[];
  readonly ipcacheGone: readonly string[];
  /** Endpoints whose decisions may differ once `ipcacheGone` is gone. */
  readonly afterGone: readonly number[];
  readonly endpointsGone: readonly number[];
  readonly slotsGone: readonly number[];
  /** Another plan has something to tidy up, or what waits for its turn. */
  readonly again: boolean;
  /** Endpoints wait for their turn: the next plan goes on, whatever the kernel refuses meanwhile. */
  readonly waiting: boolean;
}

/** What is taken back of what was found in the kernel, or given back, before the first plan. */
export interface Withdrawal {
  /** Addresses with the identity that they get: 0, or again what was found. */
  readonly addresses: readonly IpcacheRow[];
  /** Endpoints that are closed. */
  readonly endpoints: readonly number[];
  /** Endpoints that were closed and are again as they were found. */
  readonly reopened: readonly number[];
  /** Every endpoint is to get a new revision: something was changed, now or by an agent that died in it. */
  readonly renew: boolean;
}
