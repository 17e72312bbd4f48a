/**
 * The judging of single TCP, UDP and ICMP packets, restated plainly for property tests: no bytes, no maps, no
 * prefixes; one flow table of objects. Time stands still in it: nothing expires.
 */
import type { Direction } from '../constants.ts';
import type { ClassRow, VerdictRow } from './datapath.ts';

export interface ModelPacket {
  readonly direction: Direction;
  readonly protocol: 'tcp' | 'udp' | 'icmp';
  readonly peer: string;
  /** The pod's and the peer's port; ICMP: echo identifier in podPort, and peerPort unused. */
  readonly podPort: number;
  readonly peerPort: number;
  /** TCP flags; ICMP type (8 or 0). */
  readonly bits: number;
}

/** An ICMP error. */
export interface ModelError {
  readonly direction: Direction;
  /** Who sends it to the pod, or gets it from the pod. */
  readonly peer: string;
  /** ICMP type: 3, 4, 11 or 12. */
  readonly type: number;
  /** The quoted packet; its direction is the other one, and on egress its peer is the error's. */
  readonly about: ModelPacket;
}

interface ModelFlow {
  readonly opener: ModelPacket;
  revision: number;
  denied: boolean;
  replied: boolean;
  finForward: boolean;
  finReply: boolean;
  reset: boolean;
}

export class Model {
  readonly #identities: ReadonlyMap<string, number>;
  readonly #flows = new Map<string, ModelFlow>();
  #revision = 1;
  #enforced: ReadonlySet<Direction> = new Set();
  #pickup = true;
  #quarantine = false;
  #classes: readonly ClassRow[] = [];
  #verdicts: readonly VerdictRow[] = [];

  constructor(identities: ReadonlyMap<string, number>) {
    this.#identities = identities;
  }

  get flows(): number {
    return this.#flows.size;
  }

  /** How many flows are known and denied. */
  get denied(): number {
    return [...this.#flows.values()].filter((flow) => flow.denied).length;
  }

  policy(
    revision: number,
    enforced: ReadonlySet<Direction>,
    classes: readonly ClassRow[],
    verdicts: readonly VerdictRow[],
    pickup: boolean,
    quarantine: boolean,
  ): void {
    this.#revision = revision;
    this.#enforced = enforced;
    this.#pickup = pickup;
    this.#quarantine = quarantine;
    this.#classes = classes;
    this.#verdicts = verdicts;
  }

  judge(packet: ModelPacket): string {
    const opens = packet.protocol === 'tcp' && (packet.bits & 0b10110) === 0b00010;
    const echoReply = packet.protocol === 'icmp' && packet.bits === 0;
    const own = this.#flows.get(name(packet, packet.direction));
    const other: Direction = packet.direction === 'egress' ? 'ingress' : 'egress';
    const theirs = this.#flows.get(name(packet, other));
    const query = packet.protocol === 'icmp' && packet.bits === 8;
    if (own !== undefined && !echoReply && !(opens && closing(own))) {
      const reason = this.#present(own);
      if (reason === 'forwarded') return this.#seen(own, packet, false);
      // Both sides may have opened the same ports.
      if (theirs === undefined || query || opens) return reason;
      return this.#present(theirs) === 'forwarded' ? 'forwarded' : reason;
    }
    // The kernel looks at the own flow's state before it looks for the other side's: a reopening never gets here.
    const reopens = own !== undefined && !echoReply;
    let standsAlone = false;
    if (theirs !== undefined && !query && !reopens && !(opens && (theirs.replied || closing(theirs)))) {
      if (this.#present(theirs) === 'forwarded') return this.#seen(theirs, packet, true);
      standsAlone = !opens;
    }
    const reason = this.#decide(packet);
    const middle = packet.protocol === 'tcp' && !opens;
    const answers = middle && ((packet.bits & 4) !== 0 || (packet.bits & 2) !== 0 || !this.#pickup);
    const unclear = this.#quarantine && packet.protocol !== 'tcp';
    if (reason === 'forwarded' && !answers && !unclear && !echoReply && !standsAlone) {
      const flow = {
        opener: packet,
        revision: this.#revision,
        denied: false,
        replied: false,
        finForward: false,
        finReply: false,
        reset: false,
      };
      this.#flows.set(name(packet, packet.direction), flow);
      mark(flow, packet, false);
    }
    return reason;
  }

  /** Passes when the present policy allows a flow that the quoted packet is of; else as the policy says of ICMP itself. */
  judgeError({ direction, peer, type, about }: ModelError): string {
    const icmp = about.protocol === 'icmp';
    const openers = icmp ? [about.bits === 8 ? about.direction : direction] : [about.direction, direction];
    for (const opener of openers) {
      const flow = this.#flows.get(name(about, opener));
      if (flow !== undefined && this.#present(flow) === 'forwarded') return 'forwarded';
    }
    return this.#decide({ direction, protocol: 'icmp', peer, podPort: 0, peerPort: 0, bits: type });
  }

  /** What the present policy makes of a known flow; remembered, as long as it stays denied or the policy the same. */
  #present(flow: ModelFlow): string {
    if (flow.revision === this.#revision && !flow.denied) return 'forwarded';
    const reason = this.#decide(flow.opener);
    flow.revision = this.#revision;
    flow.denied = reason !== 'forwarded';
    return reason;
  }

  #seen(flow: ModelFlow, packet: ModelPacket, reply: boolean): string {
    mark(flow, packet, reply);
    return 'forwarded';
  }

  #decide(packet: ModelPacket): string {
    if (!this.#enforced.has(packet.direction)) return 'forwarded';
    const identity = this.#identities.get(packet.peer) ?? 0;
    const named = this.#classes.find((row) => row.identity === identity && row.direction === packet.direction);
    const wanted = named?.class ?? scope(identity);
    const port =
      packet.protocol === 'icmp' ? packet.bits : packet.direction === 'egress' ? packet.peerPort : packet.podPort;
    const hits = this.#verdicts.filter(
      (row) =>
        row.class === wanted &&
        row.direction === packet.direction &&
        row.protocol === packet.protocol &&
        covers(row, port),
    );
    const best = hits.reduce<VerdictRow | undefined>(
      (found, row) => (found === undefined || bits(row) > bits(found) ? row : found),
      undefined,
    );
    if (best === undefined) return identity === 0 ? 'unknown-identity' : 'policy';
    return best.verdict === 'deny' ? 'policy-denied' : 'forwarded';
  }
}

function name(packet: ModelPacket, opener: Direction): string {
  return [
    opener,
    packet.protocol,
    packet.peer,
    packet.podPort,
    packet.protocol === 'icmp' ? 0 : packet.peerPort,
  ].join();
}

function mark(flow: ModelFlow, packet: ModelPacket, reply: boolean): void {
  if (reply) flow.replied = true;
  if (packet.protocol !== 'tcp') return;
  if ((packet.bits & 1) !== 0) {
    if (reply) flow.finReply = true;
    else flow.finForward = true;
  }
  if ((packet.bits & 4) !== 0) flow.reset = true;
}

function closing(flow: ModelFlow): boolean {
  return flow.reset || (flow.finForward && flow.finReply);
}

function scope(identity: number): number {
  if ((identity >= 100 && identity < 65_536) || Math.floor(identity / 2 ** 24) === 3) return 1;
  if ([2, 9, 10].includes(identity) || Math.floor(identity / 2 ** 24) === 1) return 2;
  return 0;
}

export function bits(row: VerdictRow): number {
  return row.portBits ?? (row.port === undefined ? 0 : 16);
}

function covers(row: VerdictRow, port: number): boolean {
  const block = 2 ** (16 - bits(row));
  return Math.floor(port / block) === Math.floor((row.port ?? 0) / block);
}
