/** What the model is given of the kernel at start, and what a round is to carry out. */
import type { EndpointStateRow, IpcacheRow, KernelEndpoint, SlotRow } from '../tables.ts';
import type { KernelSlot } from './slot-rows.ts';

/** What was found in the kernel at start. */
export interface KernelState {
  readonly endpoints: readonly KernelEndpoint[];
  readonly slots: ReadonlyMap<number, KernelSlot>;
  readonly ipcache: Iterable<readonly [prefix: string, identity: number]>;
  /** Endpoints are enforced by maps that this version cannot read (another layout): they are not in `endpoints`. */
  readonly unread?: boolean;
}

/** Changes to the derived tables, in the order in which they may reach the kernel. */
export interface Plan {
  /** Rules are known. Else addresses alone are planned: endpoints are judged by what was found, or are closed. */
  readonly rules: boolean;
  readonly slots: readonly SlotRow[];
  readonly ipcache: readonly IpcacheRow[];
  /** By prefix of those that get another identity: the one that they had. */
  readonly moved: ReadonlyMap<string, number>;
  readonly endpoints: readonly EndpointStateRow[];
  readonly ipcacheGone: readonly string[];
  /** Addresses of `ipcacheGone` that were pods' or nodes', as they are once they are gone. */
  readonly leaving: readonly IpcacheRow[];
  /** Endpoints whose decisions may differ once `ipcacheGone` is gone. */
  readonly afterGone: readonly number[];
  readonly endpointsGone: readonly number[];
  readonly slotsGone: readonly number[];
  /** Another plan has something to tidy up. */
  readonly again: boolean;
}

export function changesAnything(plan: Plan): boolean {
  const { slots, ipcache, endpoints, ipcacheGone, afterGone, endpointsGone } = plan;
  return [slots, ipcache, endpoints, ipcacheGone, afterGone, endpointsGone].some((part) => part.length > 0);
}
