/** What a run and its traffic process say to each other. All times are of `clock.ts`. */

/** Somebody who sends to and receives from every other: a pod, or an address beyond the cluster. */
export interface TrafficHost {
  readonly id: number;
  /** Path of the network namespace. */
  readonly netns: string;
  /** One of each family, IPv4 first. */
  readonly addresses: readonly string[];
}

/**
 * `udp`: one source port for ever. `udp-new`: a new source port for each packet. `connect`: the opening of a TCP connection. `tcp`: a line on it.
 */
export type FlowKind = 'udp' | 'udp-new' | 'connect' | 'tcp';

export interface Flow {
  readonly id: number;
  readonly kind: FlowKind;
  readonly from: number;
  readonly to: number;
  readonly port: number;
}

export type TrafficCommand =
  | { readonly do: 'host'; readonly host: TrafficHost }
  /** Its sockets are closed; nothing is sent to it any more. */
  | { readonly do: 'gone'; readonly id: number };

/** What has happened since the last report. Tuples, because there are many. */
export interface TrafficReport {
  readonly flows: readonly Flow[];
  /** Number of the packet, flow, time just before it was given to the kernel. */
  readonly sent: readonly (readonly [number: number, flow: number, at: number])[];
  /** Number, host that got it, time just after the kernel gave it. */
  readonly received: readonly (readonly [number: number, host: number, at: number])[];
  /** A UDP packet's echo came back to its sender. */
  readonly echoed: readonly (readonly [number: number, at: number])[];
  /** TCP: given up at this time. */
  readonly lost: readonly (readonly [number: number, at: number])[];
  /** Says nothing: its host went away, or its connection was reset. */
  readonly void: readonly number[];
  /** Everything that came in before this time has been reported. */
  readonly upTo: number;
}

/** Ports that every host answers on, by TCP and UDP. */
export const PORTS = [80, 81] as const;
