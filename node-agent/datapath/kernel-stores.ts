import type { Conntrack } from './conntrack.ts';
import type { EndpointStore } from './endpoint-store.ts';
import type { IpcacheStore } from './ipcache-store.ts';
import type { RoundMark } from './round-mark.ts';
import type { SlotStore } from './slot-store.ts';

/** What the kernel holds of the datapath, behind the stores that write it. */
export interface KernelStores {
  readonly slots: SlotStore;
  readonly ipcache: IpcacheStore;
  readonly endpoints: EndpointStore;
  readonly conntrack: Pick<Conntrack, 'purge'>;
  readonly mark: RoundMark;
  /** Deletes flows that may have begun with an answer to what nobody judged. */
  readonly clearFlows: () => Promise<void>;
}
