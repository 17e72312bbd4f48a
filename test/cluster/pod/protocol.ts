/** What the cluster and a pod's process say to each other over the IPC channel. */

export type ProbeProtocol = 'tcp' | 'udp' | 'http';

/** `reached`: an answer came. `refused`: the host answered that nothing listens. `dropped`: silence until the timeout. */
export type ProbeResult = 'reached' | 'refused' | 'dropped';

export interface ProbeTarget {
  readonly protocol: ProbeProtocol;
  readonly address: string;
  readonly port: number;
  readonly timeoutMs: number;
  /** Bind this own address: a host with several has no other way to say who asks. */
  readonly sourceAddress?: string;
  /** Bind the source port (TCP, UDP). */
  readonly sourcePort?: number;
}

/** Counts of a stream: numbered messages sent on one connection, and echoes that came back. */
export interface StreamReport {
  readonly sent: number;
  readonly echoed: number;
  /** Milliseconds since the last echo; undefined before the first. */
  readonly silentMs: number | undefined;
  /** Epoch milliseconds of the last echo, and of the last echo that came after a silence of 20 ms or more; 0 = none. */
  readonly lastAt: number;
  readonly backAt: number;
  readonly closed: boolean;
}

/** Addresses of names. */
export type Zone = Readonly<Record<string, readonly string[]>>;

export interface Lookup {
  /** An address, asked at port 53. */
  readonly server: string;
  readonly name: string;
  readonly type: 'A' | 'AAAA';
  readonly timeoutMs: number;
}

export type PodRequest =
  | {
      readonly id: number;
      readonly do: 'serve';
      readonly tcp: readonly number[];
      readonly udp: readonly number[];
      readonly name: string;
    }
  | { readonly id: number; readonly do: 'probe'; readonly target: ProbeTarget }
  | {
      readonly id: number;
      readonly do: 'stream';
      readonly protocol: 'tcp' | 'udp';
      readonly address: string;
      readonly port: number;
      readonly intervalMs: number;
    }
  | { readonly id: number; readonly do: 'report'; readonly stream: number }
  | { readonly id: number; readonly do: 'close'; readonly stream: number }
  | { readonly id: number; readonly do: 'names'; readonly zone: Zone }
  | { readonly id: number; readonly do: 'lookup'; readonly lookup: Lookup }
  /** Its own addresses beyond loopback and link. */
  | { readonly id: number; readonly do: 'addresses' };

export type PodReply =
  | {
      readonly id: number;
      readonly ok: true;
      readonly value: StreamReport | number | string | readonly string[] | null;
    }
  | { readonly id: number; readonly ok: false; readonly error: string };
