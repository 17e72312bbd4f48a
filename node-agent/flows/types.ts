import type { Observable } from 'rxjs';

/** What happened to a packet or a flow, made readable. */
export interface FlowEvent {
  readonly time: string;
  /** `dropped` and `allowed` are the datapath's; parts have others. */
  readonly verdict: string;
  readonly direction: 'ingress' | 'egress';
  /** Endpoint that judged. */
  readonly endpoint: number;
  readonly source: FlowPeer;
  readonly destination: FlowPeer;
  readonly protocol: string;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  readonly icmpType?: number;
  /** `policy-denied`, `policy`, ... with the sentence that explains it. */
  readonly reason: string;
  readonly message: string;
  /** The policy that decided: the deny rule's, or those whose default deny no rule lifted. `cnp default/l3-rule spec.ingress[0]`. */
  readonly policies: readonly string[];
  readonly revision: number;
  /** Of an event of a DNS proxy (verdict `dns`): what the pod asked. */
  readonly question?: {
    /** Canonical. */
    readonly name: string;
    /** `A`, `AAAA`, `TYPE65`. */
    readonly type: string;
    /** Of the answer: `NOERROR`. Absent: the server gave none. */
    readonly rcode?: string;
    /** From the question to what became of it. */
    readonly milliseconds: number;
  };
}

export interface FlowPeer {
  readonly address: string;
  readonly identity: number;
  /**
   * `namespace/name` when the address is a known pod; `host`, `world`, node name otherwise. Of the source for reason `invalid-source`: the
   * pod that sent the packet, whose address it is not; for `unknown-l3`: the pod that sent the frame.
   */
  readonly name?: string;
  /** `namespace/name` of the Service whose own address it is. */
  readonly service?: string;
  /** `namespace/name` of each Service that the address and port are a backend of. */
  readonly backendOf?: readonly string[];
  /** Names that endpoints of this node have looked the address up by; at most 5. */
  readonly hostNames?: readonly string[];
  readonly labels?: readonly string[];
}

/** For decoders of events. */
export interface EventNames {
  peer(address: Uint8Array, identity: number): FlowPeer;
  /** Wall clock, ISO 8601. @param bootNs CLOCK_BOOTTIME */
  time(bootNs: bigint): string;
}

/** What a part knows of the ends of a flow. */
export interface PeerNaming {
  /** `namespace/name` of each Service that this is a backend of. @param protocol its number */
  backendOf(address: string, port: number, protocol: number): readonly string[];
  /** Names that somebody here has looked the address up by, ascending. Default: none. */
  hostNames?(address: string): readonly string[];
}

/** Events that a part tells, as no program does. */
export interface EventSource {
  /** Of its events; `weir monitor --type` takes it. */
  readonly verdict: string;
  events(names: EventNames): Observable<FlowEvent>;
}

/** Kinds of events from here on are those of parts. */
export const FIRST_PART_KIND = 16;

/**
 * Events that a part's programs send through map `events`. The first 9 bytes of a record are as in `struct event` (bpf/layout.h): the time, and the
 * kind.
 */
export interface EventKind {
  /** 16 to 255; unique. */
  readonly kind: number;
  /** Verdict of its events; `weir monitor --type` takes it. */
  readonly verdict: string;
  decode(record: Uint8Array, names: EventNames): FlowEvent;
}
