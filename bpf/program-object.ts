/** BPF objects beside the datapath's: what they are made of, and where their programs run. */
import type { CgroupAttach, TcDirection } from 'libbpf-ts';

/** Where a program of a part runs. */
export type Hook =
  /**
   * At every pod's interface: `from-pod` before what the pod sends is judged, `to-pod` after what it gets was judged and may pass (bpf/stage.h). Each
   * has one program at most.
   */
  | { readonly at: 'from-pod' | 'to-pod'; readonly program: string }
  /** For all processes of the node: its root cgroup of version 2. */
  | { readonly at: 'cgroup'; readonly program: string; readonly attach: CgroupAttach }
  /** At these interfaces of the node, by their index, after what others attached; asked for in each look. Linux 6.6. */
  | {
      readonly at: 'interfaces';
      readonly program: string;
      readonly direction: TcDirection;
      readonly interfaces: () => readonly number[];
    };

/** A BPF object of a part, as it is compiled. */
export interface ObjectSource {
  /** Lower case, with underscores, up to 15 characters; unique. Of its file in an image (`NAME.o`, beside `weir.o`). */
  readonly name: string;
  /** Its C file, which may include the headers of bpf/. */
  readonly source: string;
}

/**
 * The same, as it is loaded. Its maps that have the name of a pinned map, of the datapath (bpf/maps.h) or of a part, are that map; others are made anew
 * with each load.
 */
export interface ProgramObject extends ObjectSource {
  readonly hooks: readonly Hook[];
}
