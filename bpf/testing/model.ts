/**
 * The judging of single TCP, UDP and ICMP packets, restated plainly for property tests: no bytes, no maps, no
 * prefixes; one flow table of objects, with time.
 */
import type { Direction } from '../constants.ts';
import type { ClassRow, VerdictRow } from './datapath.ts';

export interface ModelPacket {
  readonly direction: Direction;
  readonly protocol: 'tcp' | 'udp' | 'sctp' | 'icmp' | 'icmpv6' | 'other';
  /** IPv6: with colons. */
  readonly peer: string;
  /**
   * The pod's and the peer's port. ICMP queries and answers: the identifier in podPort, the query's type in peerPort. Others: the number of the protocol in
   * podPort, and 0.
   */
  readonly podPort: number;
  readonly peerPort: number;
  /** TCP flags; ICMP type. */
  readonly bits: number;
  /** To the pod: the node itself sends it. */
  readonly local: boolean;
  /** Of TCP: the acknowledgment number of what the pod sends, the sequence number of what it receives. */
  readonly number: number;
}

/** An ICMP error. */
export interface ModelError {
  readonly direction: Direction;
  /** Who sends it to the pod, or gets it from the pod. */
  readonly peer: string;
  /** ICMP type: 3, 4, 11 or 12; ICMPv6: 1 to 4. */
  readonly type: number;
  readonly local: boolean;
  /** Bytes of ICMP, the quoted ones among them; of IPv6 those of the whole packet. */
  readonly bytes: number;
  /** The quoted packet; its direction is the other one, and on egress its peer is the error's. */
  readonly about: ModelPacket;
}

interface ModelFlow {
  readonly opener: ModelPacket;
  /** Of the packet that was allowed last. */
  local: boolean;
  revision: number;
  denied: boolean;
  replied: boolean;
  finForward: boolean;
  finReply: boolean;
  reset: boolean;
  /** Its initiator has sent an ACK. */
  acked: boolean;
  /** The acknowledgment number that the pod has sent last. */
  waitsFor: number;
  /** Ticks since its last packet. */
  idle: number;
  /** Its time is over, and its responder has sent since. */
  over: boolean;
}

/** Why a row drops. An allow does where it has a proxy port. */
const REFUSALS = {
  allow: 'policy',
  deny: 'policy-denied',
  redirect: 'no-proxy',
  authenticate: 'no-authentication',
} as const satisfies Record<VerdictRow['verdict'], string>;

export class Model {
  readonly #identities: ReadonlyMap<string, number>;
  readonly #flows = new Map<string, ModelFlow>();
  #strangers = 0;
  #revision = 1;
  #enforced: ReadonlySet<Direction> = new Set();
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

  /** How many errors a pod has sent about flows of others that are alive. */
  get strangers(): number {
    return this.#strangers;
  }

  policy(
    revision: number,
    enforced: ReadonlySet<Direction>,
    classes: readonly ClassRow[],
    verdicts: readonly VerdictRow[],
    quarantine: boolean,
  ): void {
    this.#revision = revision;
    this.#enforced = enforced;
    this.#quarantine = quarantine;
    this.#classes = classes;
    this.#verdicts = verdicts;
  }

  /** Time passes, in conntrack ticks (layout.h). */
  age(ticks: number): void {
    for (const flow of this.#flows.values()) flow.idle += ticks;
  }

  /** @param begins false: it begins no flow, as a later fragment */
  judge(packet: ModelPacket, begins = true): string {
    const tcp = packet.protocol === 'tcp';
    const opens = tcp && (packet.bits & 0b10110) === 0b00010;
    const answer = isIcmp(packet) && packet.bits !== packet.peerPort;
    const query = isIcmp(packet) && packet.bits === packet.peerPort;
    const own = answer ? undefined : this.#find(packet, packet.direction);
    const other: Direction = packet.direction === 'egress' ? 'ingress' : 'egress';
    const theirs = query ? undefined : this.#find(packet, other);
    // Of other protocols a flow whose time is over begins anew.
    const known = own !== undefined && (tcp || isLive(own));
    if (own !== undefined && known) {
      const anew = opens && (!isLive(own) || closing(own));
      if (isLive(own)) own.idle = 0;
      return anew ? this.#begin(packet) : this.#goOn(own, packet, theirs);
    }
    if (theirs !== undefined && isLive(theirs)) {
      theirs.idle = 0;
      if (opens && (theirs.replied || closing(theirs))) return this.#begin(packet);
      if (this.#present(theirs) === 'forwarded') return this.#seen(theirs, packet, true);
      return opens ? this.#begin(packet) : this.#decide(packet);
    }
    if (theirs !== undefined && !tcp) Object.assign(theirs, { over: true, idle: 0 });
    return !begins || answer || (theirs !== undefined && !opens) || (tcp && !opens)
      ? this.#decide(packet)
      : this.#begin(packet);
  }

  /** As the policy says of the packet's own direction, whatever is known of flows. */
  alone(packet: ModelPacket): string {
    return this.#decide(packet);
  }

  /** A packet of the initiator, of which there may be a flow of the other side, too. */
  #goOn(own: ModelFlow, packet: ModelPacket, theirs: ModelFlow | undefined): string {
    const reason = this.#present(own, packet.local);
    if (reason === 'forwarded') return this.#seen(own, packet, false);
    const opens = packet.protocol === 'tcp' && (packet.bits & 2) !== 0 && (packet.bits & 20) === 0;
    if (theirs === undefined || opens || !isLive(theirs)) return reason;
    theirs.idle = 0;
    return this.#present(theirs) === 'forwarded' ? 'forwarded' : reason;
  }

  /** What begins a flow when it is allowed. */
  #begin(packet: ModelPacket): string {
    const reason = this.#decide(packet);
    if (reason !== 'forwarded' && packet.protocol !== 'tcp')
      Object.assign(this.#find(packet, packet.direction) ?? {}, { over: true, idle: 0 });
    if (reason !== 'forwarded' || (this.#quarantine && packet.protocol !== 'tcp')) return reason;
    const closed = { finForward: false, finReply: false, reset: false };
    const state = { denied: false, replied: false, acked: false, waitsFor: 0, over: false, ...closed };
    const flow = { opener: packet, local: packet.local, revision: this.#revision, idle: 0, ...state };
    this.#flows.set(name(packet, packet.direction), flow);
    if (packet.protocol === 'tcp')
      this.#flows.delete(name(packet, packet.direction === 'egress' ? 'ingress' : 'egress'));
    return reason;
  }

  /** A flow that the kernel knows, or remembers. */
  #find(packet: ModelPacket, opener: Direction): ModelFlow | undefined {
    const flow = this.#flows.get(name(packet, opener));
    return flow !== undefined && flow.idle <= memory(flow) ? flow : undefined;
  }

  /**
   * Passes when the present policy allows a flow that the quoted packet is of, unless the error is long or comes from a pod, or from nobody
   * knows whom, that is no end of that flow; else as the policy says of ICMP itself.
   */
  judgeError({ direction, peer, type, local, bytes, about }: ModelError): string {
    const packet = {
      direction,
      protocol: isV6(peer) ? 'icmpv6' : 'icmp',
      peer,
      podPort: 0,
      peerPort: 0,
      bits: type,
      local,
      number: 0,
    } as const;
    const icmp = isIcmp(about);
    const openers = icmp ? [about.bits === about.peerPort ? about.direction : direction] : [about.direction, direction];
    const flows = openers
      .map((opener) => this.#find(about, opener))
      .filter((flow) => flow !== undefined && isLive(flow));
    const sender = this.#peer(packet);
    const stranger = direction === 'ingress' && peer !== about.peer && (sender === 0 || scope(sender) === 1);
    if (stranger && flows.some((flow) => flow?.denied === false)) this.#strangers++;
    const related = bytes <= (isV6(peer) ? 1280 : 576) && !stranger;
    if (related && flows.some((flow) => flow !== undefined && this.#present(flow) === 'forwarded')) return 'forwarded';
    return this.#decide(packet);
  }

  /**
   * What the present policy makes of a known flow, of which a packet is at hand that the node itself sends, or does not; remembered, as long
   * as it stays denied or the policy the same.
   */
  #present(flow: ModelFlow, local = flow.local): string {
    if (flow.revision === this.#revision && !flow.denied && flow.local === local) return 'forwarded';
    const reason = this.#decide({ ...flow.opener, local });
    const denied = reason !== 'forwarded';
    if (flow.revision !== this.#revision || !denied) Object.assign(flow, { revision: this.#revision, denied, local });
    return reason;
  }

  #seen(flow: ModelFlow, packet: ModelPacket, reply: boolean): string {
    flow.idle = 0;
    mark(flow, packet, reply);
    return 'forwarded';
  }

  #peer({ direction, peer, local }: ModelPacket): number {
    const identity = this.#identities.get(peer) ?? 0;
    if (direction === 'egress') return identity;
    return local ? 1 : identity === 1 ? worldOf(peer) : identity;
  }

  #decide(packet: ModelPacket): string {
    if (!this.#enforced.has(packet.direction)) return 'forwarded';
    if (packet.direction === 'egress' && isGroup(packet.peer)) return this.#decideGroup(packet);
    const identity = this.#peer(packet);
    // Around a CIDR there is the world, and no other CIDR (see address-class.test.ts for these).
    const around = Math.floor(identity / 2 ** 24) === 1 ? [identity, worldOf(packet.peer)] : [identity];
    const named = around.map((each) =>
      this.#classes.find((row) => row.identity === each && row.direction === packet.direction),
    );
    const best = this.#rowOf(packet, named.find((row) => row !== undefined)?.class ?? scope(identity));
    if (best === undefined) return identity === 0 ? 'unknown-identity' : 'policy';
    if (best.verdict === 'allow') return 'forwarded';
    return REFUSALS[best.verdict];
  }

  /** Everybody who may listen must be allowed: the host and all pods. */
  #decideGroup(packet: ModelPacket): string {
    const host = this.#classes.find((row) => row.identity === 1 && row.direction === 'egress')?.class ?? 0;
    const allowed = [host, 1].every((wanted) => this.#rowOf(packet, wanted)?.verdict === 'allow');
    return allowed ? 'forwarded' : 'group-address';
  }

  #rowOf(packet: ModelPacket, wanted: number): VerdictRow | undefined {
    const port = portOf(packet);
    const hits = this.#verdicts.filter(
      (row) =>
        row.class === wanted &&
        row.direction === packet.direction &&
        row.protocol === packet.protocol &&
        covers(row, port),
    );
    return hits.reduce<VerdictRow | undefined>(
      (found, row) => (found === undefined || bits(row) > bits(found) ? row : found),
      undefined,
    );
  }
}

function name(packet: ModelPacket, opener: Direction): string {
  return [opener, packet.protocol, packet.peer, packet.podPort, packet.peerPort].join();
}

const isV6 = (address: string): boolean => address.includes(':');
const isGroup = (address: string): boolean =>
  isV6(address)
    ? address.startsWith('ff') && address.indexOf(':') === 4
    : Number.parseInt(address, 10) >> 4 === 14 || address === '255.255.255.255';
const worldOf = (address: string): number => (isV6(address) ? 10 : 2);
const isIcmp = ({ protocol }: ModelPacket): boolean => protocol === 'icmp' || protocol === 'icmpv6';

function portOf(packet: ModelPacket): number {
  const { protocol, bits, direction, peerPort, podPort } = packet;
  if (isIcmp(packet)) return bits;
  if (protocol === 'other') return podPort;
  return direction === 'egress' ? peerPort : podPort;
}

function mark(flow: ModelFlow, packet: ModelPacket, reply: boolean): void {
  if (reply) flow.replied = true;
  if (packet.protocol !== 'tcp') return;
  if ((packet.bits & 1) !== 0) {
    if (reply) flow.finReply = true;
    else flow.finForward = true;
  }
  const sent = packet.direction === 'egress';
  if ((packet.bits & 4) !== 0 && (sent || packet.number === flow.waitsFor)) flow.reset = true;
  if ((packet.bits & 16) === 0) return;
  if (!reply) flow.acked = true;
  if (sent) flow.waitsFor = packet.number;
}

function established(flow: ModelFlow): boolean {
  return flow.replied && flow.acked;
}

function closing(flow: ModelFlow): boolean {
  return flow.reset || (flow.finForward && flow.finReply);
}

function ticks(seconds: number): number {
  return Math.floor((seconds * 1e9) / 2 ** 30);
}

function timeout(flow: ModelFlow): number {
  const { protocol } = flow.opener;
  if (flow.denied) return ticks(300);
  if (protocol === 'tcp') return ticks(closing(flow) ? 10 : established(flow) ? 21_600 : 60);
  return ticks(protocol === 'udp' && flow.replied ? 180 : 60);
}

function memory(flow: ModelFlow): number {
  if (flow.opener.protocol === 'tcp') return timeout(flow);
  return ticks(300) + timeout({ ...flow, denied: false });
}

/** Whether its time is not over. */
function isLive(flow: ModelFlow): boolean {
  return !flow.over && flow.idle <= timeout(flow);
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
