/**
 * A packet is judged by every combination of versions that may be in force from the moment it was sent until it arrived, or had time to.
 * All of them deny: it must not arrive. All of them allow: it must. Otherwise either is right. Egress is judged where the sender is,
 * ingress where the receiver is, each by its own combination.
 */
import type { Packet } from '../traffic/traffic.ts';
import type { Protocol } from '../world/policy.ts';
import type { HostModel, World } from '../world/world.ts';
import { ALLOWED, type Judgement, type Possible, possible, type Window } from './possible.ts';

export type Wrong = 'allow' | 'drop';

export interface Finding {
  readonly wrong: Wrong;
  /** The packet itself, or the echo that answered it. */
  readonly what: 'packet' | 'echo';
  readonly packet: Packet;
  readonly window: Window;
  readonly from: HostModel;
  readonly to: HostModel;
  readonly egress: Possible;
  readonly ingress: Possible;
}

/** What a packet had to do; `exempt`: its host was coming or going, or is forgotten. */
export type Duty = 'arrive' | 'not arrive' | 'either' | 'exempt';

export interface Verdict {
  readonly duty: Duty;
  readonly findings: readonly Finding[];
}

/** So long after it starts again with flows of which nothing is known, a node lets no answer by UDP stand for itself, in milliseconds. */
const QUARANTINE_MS = 4000;

/** The port of a sender's own socket: no rule of a run names one of these. */
const EPHEMERAL = 50_000;

const protocolOf = ({ flow }: Packet): Protocol => (flow.kind === 'udp' || flow.kind === 'udp-new' ? 'UDP' : 'TCP');

export class Judge {
  readonly #world: World;
  /** Flows whose TCP connection was opened where nobody may have looked: from there on no flow is known of it. */
  readonly #unseen = new Set<string>();
  /** When the connections that live now were opened. */
  readonly #opened = new Map<string, number>();

  constructor(world: World) {
    this.#world = world;
  }

  judge(packet: Packet): Verdict {
    const { flow, received, sent, deadline } = packet;
    const from = this.#world.hosts.get(flow.from);
    // Who got it counts, not who was meant: an address may have gone over to another pod.
    const to = this.#world.hosts.get(received?.by ?? flow.to);
    if (from === undefined || to === undefined) return { duty: 'exempt', findings: [] };
    const window = { from: sent, to: received?.at ?? deadline };
    const { egress, ingress } = this.#ways(from, to, protocolOf(packet), flow.port, window);
    const finding = { packet, from, to, egress, ingress };
    const may = egress.allow && ingress.allow;
    const must = !egress.deny && !ingress.deny;
    const stays = from.endsAt > window.to && to.endsAt > window.to;
    if (!may) {
      const wrong = received === undefined ? [] : [{ ...finding, wrong: 'allow', what: 'packet', window } as const];
      return { duty: 'not arrive', findings: wrong };
    }
    const duty = !must ? 'either' : stays ? 'arrive' : 'exempt';
    if (flow.kind === 'connect' && received !== undefined) {
      const unseen = mayBeOpen(from, window) || mayBeOpen(to, window);
      this.#unseen[unseen ? 'add' : 'delete'](connectionOf(packet));
      this.#opened.set(connectionOf(packet), sent);
    }
    if (received === undefined) {
      const wrong =
        duty === 'arrive' && !this.#deniesBack(packet, from, to, window) && !this.#isForgotten(packet, from, to);
      return { duty, findings: wrong ? [{ ...finding, wrong: 'drop', what: 'packet', window }] : [] };
    }
    return { duty, findings: this.#judgeEcho(packet, from, to, received.at) };
  }

  /** An echo passes where its packet's flow does; where that is denied, it stands alone. */
  #judgeEcho(packet: Packet, from: HostModel, to: HostModel, answered: number): readonly Finding[] {
    if (packet.flow.kind !== 'udp' && packet.flow.kind !== 'udp-new') return [];
    // Whoever answers from an address that was another's is not whom the flow was opened to.
    if (to.id !== packet.flow.to) return [];
    const { echoed } = packet;
    const window = { from: answered, to: echoed ?? answered + (packet.deadline - packet.sent) };
    const { egress, ingress } = this.#ways(from, to, 'UDP', packet.flow.port, window);
    const finding = { packet, from, to, egress, ingress, window, what: 'echo' } as const;
    const back = this.#ways(to, from, 'UDP', EPHEMERAL, window);
    if (echoed === undefined) {
      // Where nothing looked when the packet passed, no flow is known: there the echo stands alone.
      const unseen = (host: HostModel): boolean => mayBeOpen(host, { from: packet.sent, to: window.to });
      const stopped =
        egress.deny || ingress.deny || (unseen(to) && back.egress.deny) || (unseen(from) && back.ingress.deny);
      const stays = from.endsAt > window.to && to.endsAt > window.to;
      if (packet.sent < Math.max(from.flowsLostUntil, to.flowsLostUntil) + QUARANTINE_MS) return [];
      return stopped || !stays ? [] : [{ ...finding, wrong: 'drop' }];
    }
    // Each node lets it pass for its flow, or on its own: the receiver's, then the sender's.
    const may = (ingress.allow || back.egress.allow) && (egress.allow || back.ingress.allow);
    return may ? [] : [{ ...finding, wrong: 'allow' }];
  }

  /** A line whose answers stand alone, as nobody saw who opened the connection, and are denied: TCP does not go on without them. */
  #deniesBack(packet: Packet, from: HostModel, to: HostModel, window: Window): boolean {
    if (packet.flow.kind !== 'tcp' || !this.#unseen.has(connectionOf(packet))) return false;
    const { egress, ingress } = this.#ways(to, from, 'TCP', EPHEMERAL, window);
    return egress.deny || ingress.deny;
  }

  /** A line of a connection of which a node has forgotten who opened it: it is not picked up in its middle. */
  #isForgotten(packet: Packet, from: HostModel, to: HostModel): boolean {
    const opened = this.#opened.get(connectionOf(packet)) ?? Number.NEGATIVE_INFINITY;
    return packet.flow.kind === 'tcp' && opened < Math.max(from.flowsLostUntil, to.flowsLostUntil);
  }

  #ways(from: HostModel, to: HostModel, protocol: Protocol, port: number, window: Window) {
    const sender = from.states.possible(window.from, window.to);
    const receiver = to.states.possible(window.from, window.to);
    const one = (direction: Judgement['direction'], subject: typeof sender, peer: typeof sender): Possible =>
      subject.every(({ kind }) => kind === 'outside')
        ? ALLOWED
        : possible(this.#world, { direction, subject, peer, protocol, port }, window);
    return { egress: one('egress', sender, receiver), ingress: one('ingress', receiver, sender) };
  }
}

function mayBeOpen({ states }: HostModel, { from, to }: Window): boolean {
  return states.possible(from, to).some(({ kind }) => kind === 'open');
}

function connectionOf({ flow: { from, to, port } }: Packet): string {
  return `${from} ${to} ${port}`;
}
