/**
 * What the agent and the DNS proxy of its node say to each other: objects of JSON, one a line, over a unix socket on which the proxy listens. After each
 * connect the agent says everything that it has, then `complete`: what it has not said by then is gone. Until then, and while no agent is there, the proxy
 * goes on with what it had.
 */

/** From the agent. Numbers are of this node, and are given to something else only once nothing in the kernel names them. */
export type ToProxy =
  /** Rules that a verdict names: canonical patterns of names that are answered; any may be asked for where `*` is among them. */
  | { readonly type: 'listener'; readonly listener: number; readonly names: readonly string[] }
  | { readonly type: 'listener-gone'; readonly listener: number }
  | { readonly type: 'endpoint'; readonly endpoint: number; readonly addresses: readonly string[] }
  | { readonly type: 'endpoint-gone'; readonly endpoint: number }
  /** A pattern of `toFQDNs`, canonical. */
  | { readonly type: 'selector'; readonly selector: number; readonly pattern: string }
  | { readonly type: 'selector-gone'; readonly selector: number }
  /** Of addresses whose names are of exactly these selectors, ascending. The kernel has rows of it: an address may get it. */
  | { readonly type: 'identity'; readonly identity: number; readonly selectors: readonly number[] }
  | { readonly type: 'identity-gone'; readonly identity: number }
  | { readonly type: 'complete' }
  /** Names of this pattern are forgotten: no address has them any more. */
  | { readonly type: 'forget'; readonly pattern: string };

/** From the proxy. */
export type FromProxy =
  /** An address has names of these selectors, and no identity: it waits. Said again of a set that still has none when another change or answer meets it. */
  | { readonly type: 'wanted'; readonly selectors: readonly number[] }
  | DnsQuery
  | DnsName
  | NameGone
  /** After a connect: all names that it has were said. */
  | { readonly type: 'names-complete' }
  /** So many more since the last time, told at most once a second: of no question of a pod that is known. */
  | { readonly type: 'oddity'; readonly oddity: Oddity; readonly count: number };

export type Oddity =
  /** A question on a flow that the kernel did not hand to the proxy, by an endpoint that it knows. */
  | 'no-flow'
  /** A message that is no question, or no answer. */
  | 'malformed'
  /** An answer that nobody waits for: its id or its question is another. */
  | 'unasked'
  /** A connection more than an endpoint may have, or of a pod that does not read what it asked for. */
  | 'connection'
  /** An answer with more addresses than a name may have: the first ones count. */
  | 'addresses';

export interface NameGone {
  readonly type: 'name-gone';
  readonly endpoint: number;
  readonly name: string;
  readonly address: string;
  /** `evicted`: there were more than may be. `forgotten`: the agent said so, or its endpoint is gone. */
  readonly why: 'expired' | 'evicted' | 'forgotten';
}

/** A question of a pod. */
export interface DnsQuery {
  readonly type: 'query';
  readonly endpoint: number;
  /** As asked, canonical. */
  readonly name: string;
  /** `A`, `AAAA`, `TYPE65`. */
  readonly qtype: string;
  readonly server: string;
  readonly port: number;
  readonly protocol: 'udp' | 'tcp';
  /** `refused`: no rule has the name. `dropped`: its pod or its rules are not known, or it asks for more than it may. `failed`: its server did not answer. */
  readonly verdict: 'answered' | 'refused' | 'dropped' | 'failed';
  /** Of the answer: `NOERROR`. */
  readonly rcode?: string;
  /** From the question to the answer, in microseconds. */
  readonly micros: number;
}

/** An answer gave the name this address. Told again when the answer's time is another. */
export interface DnsName {
  readonly type: 'name';
  readonly endpoint: number;
  readonly name: string;
  readonly address: string;
  /** Milliseconds of the epoch. */
  readonly seen: number;
  readonly expires: number;
  /** Seconds. */
  readonly ttl: number;
}

export type Check = (value: unknown) => boolean;

/** Of each type of message what its fields must be; others may be there. */
export type Shapes<Message extends { readonly type: string }> = Readonly<
  Record<Message['type'], Readonly<Record<string, Check>>>
>;

export const text: Check = (value) => typeof value === 'string' && value.length <= 1024;

/** Undefined: the line is no message. */
export function readShaped<Message extends { readonly type: string }>(
  line: string,
  shapes: Shapes<Message>,
): Message | undefined {
  let read: unknown;
  try {
    read = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (typeof read !== 'object' || read === null || !('type' in read) || typeof read.type !== 'string') return undefined;
  const shape = Object.hasOwn(shapes, read.type) ? shapes[read.type as Message['type']] : undefined;
  const fields = read as Readonly<Record<string, unknown>>;
  if (shape === undefined || !Object.entries(shape).every(([name, check]) => check(fields[name]))) return undefined;
  return read as unknown as Message;
}
