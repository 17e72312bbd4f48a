/**
 * DNS messages on the wire (RFC 1035, section 4), as far as the proxy reads them: the question, and the addresses of an answer. Whatever it is given, it
 * returns or throws nothing else than MessageError, in time linear to the message.
 *
 * Names are canonical texts (`@weir/policy`, host-names.ts). A byte of a label that is no letter, digit, `-` or `_` stands there as `\046`, so that no text
 * has two names: a dot inside a label separates nothing.
 */
import { formatAddress } from '@weir/net';

const HEADER_BYTES = 12;
const LONGEST_NAME = 255;
const LONGEST_LABEL = 63;
const QR = 0x8000;
const OPCODE = 0x7800;
const TRUNCATED = 0x0200;
const RECURSION_DESIRED = 0x0100;
const RECURSION_AVAILABLE = 0x0080;
const CHECKING_DISABLED = 0x0010;
const TYPE = { A: 1, CNAME: 5, AAAA: 28, OPT: 41, IXFR: 251, AXFR: 252 } as const;
const CLASS_IN = 1;
/** A chain of CNAMEs that resolvers follow is shorter. */
const LONGEST_CHAIN = 32;

export const RCODE = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, NOTIMP: 4, REFUSED: 5 } as const;

const RCODE_NAMES: ReadonlyMap<number, string> = new Map(Object.entries(RCODE).map(([name, code]) => [code, name]));
const TYPE_NAMES: ReadonlyMap<number, string> = new Map([
  [1, 'A'],
  [2, 'NS'],
  [5, 'CNAME'],
  [6, 'SOA'],
  [12, 'PTR'],
  [15, 'MX'],
  [16, 'TXT'],
  [28, 'AAAA'],
  [33, 'SRV'],
  [64, 'SVCB'],
  [65, 'HTTPS'],
  [255, 'ANY'],
]);

/**
 * A DNS message cannot be read. It gets no answer, or FORMERR.
 * @fix Look at who sends it: resolvers and clients do not.
 */
export class MessageError extends Error {
  readonly code = 'ERR_WEIR_DNS_MESSAGE';

  constructor(message: string) {
    super(message);
    this.name = 'MessageError';
  }
}

export interface Question {
  readonly id: number;
  readonly flags: number;
  readonly name: string;
  readonly type: number;
  /** Of the question section, its bytes as they were sent: letters keep their case. */
  readonly bytes: Buffer;
}

/** What a question is answered without being forwarded; undefined: it may be. */
export type Fault = 'FORMERR' | 'NOTIMP' | 'REFUSED' | undefined;

/** `A`, `TYPE999`. */
export function typeName(type: number): string {
  return TYPE_NAMES.get(type) ?? `TYPE${type}`;
}

export function rcodeName(code: number): string {
  return RCODE_NAMES.get(code) ?? `RCODE${code}`;
}

/** The message's id, where it has one and is a question. What is not gets no answer: two programs could answer each other for ever. */
export function isAsking(message: Buffer): boolean {
  return message.length >= HEADER_BYTES && (message.readUInt16BE(2) & QR) === 0;
}

/**
 * The one question of a message, and what is wrong with it.
 * @throws MessageError when it has not exactly one that can be read
 */
export function readQuestion(message: Buffer): { readonly question: Question; readonly fault: Fault } {
  if (message.length < HEADER_BYTES) throw new MessageError('it is shorter than its header');
  const flags = message.readUInt16BE(2);
  if (message.readUInt16BE(4) !== 1) throw new MessageError('it has not exactly one question');
  const { name, end } = readName(message, HEADER_BYTES);
  if (end + 4 > message.length) throw new MessageError('its question is cut');
  const type = message.readUInt16BE(end);
  const question = {
    id: message.readUInt16BE(0),
    flags,
    name,
    type,
    // A copy: the buffer is used again.
    bytes: Buffer.from(message.subarray(HEADER_BYTES, end + 4)),
  };
  return { question, fault: faultOf(message, flags, type) };
}

function faultOf(message: Buffer, flags: number, type: number): Fault {
  if ((flags & OPCODE) !== 0) return 'NOTIMP';
  if (message.readUInt16BE(6) !== 0 || message.readUInt16BE(8) !== 0) return 'FORMERR';
  // A zone has names that no rule was asked for.
  return type === TYPE.AXFR || type === TYPE.IXFR ? 'REFUSED' : undefined;
}

/** An answer without records, to a message that is a question. Repeats the question where there is one. */
export function emptyAnswer(message: Buffer, question: Question | undefined, code: keyof typeof RCODE): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(message.readUInt16BE(0), 0);
  const kept = message.readUInt16BE(2) & (OPCODE | RECURSION_DESIRED | CHECKING_DISABLED);
  header.writeUInt16BE(QR | kept | RECURSION_AVAILABLE | RCODE[code], 2);
  if (question === undefined) return header;
  header.writeUInt16BE(1, 4);
  return Buffer.concat([header, question.bytes]);
}

/** Whether the message answers the question: its id, and its question to the byte. */
export function answers(message: Buffer, { id, bytes }: Pick<Question, 'id' | 'bytes'>): boolean {
  return (
    message.length >= HEADER_BYTES + bytes.length &&
    message.readUInt16BE(0) === id &&
    (message.readUInt16BE(2) & QR) !== 0 &&
    message.readUInt16BE(4) === 1 &&
    bytes.equals(message.subarray(HEADER_BYTES, HEADER_BYTES + bytes.length))
  );
}

export interface Answer {
  readonly rcode: number;
  /** Of the question's name, and of those that it is an alias of. */
  readonly addresses: readonly AnswerAddress[];
}

export interface AnswerAddress {
  readonly address: string;
  /** Seconds: the least of the address and the aliases that lead to it. */
  readonly ttl: number;
}

interface Alias {
  readonly to: string;
  readonly ttl: number;
}

/**
 * Addresses of an answer to the question. A message that is cut short, and says so (TC), gives those that are whole.
 * @throws MessageError
 */
export function readAnswer(message: Buffer, { name, bytes }: Pick<Question, 'name' | 'bytes'>): Answer {
  const flags = message.readUInt16BE(2);
  const aliases = new Map<string, Alias>();
  const found = new Map<string, AnswerAddress[]>();
  const known: KnownNames = new Map();
  let at = HEADER_BYTES + bytes.length;
  for (let left = message.readUInt16BE(6); left > 0; left -= 1) {
    if (at === message.length && (flags & TRUNCATED) !== 0) break;
    const record = readRecord(message, at, known);
    at = record.end;
    if (record.class !== CLASS_IN) continue;
    if (record.type === TYPE.CNAME) {
      const { name: to, end } = readName(message, record.data, known);
      if (end !== record.end) throw new MessageError('an alias is not as long as it says');
      if (!aliases.has(record.name)) aliases.set(record.name, { to, ttl: record.ttl });
    } else if (record.type === TYPE.A || record.type === TYPE.AAAA) {
      const length = record.end - record.data;
      if (length !== (record.type === TYPE.A ? 4 : 16)) throw new MessageError('an address has a wrong length');
      const address = formatAddress(message.subarray(record.data, record.end));
      const of = found.get(record.name) ?? [];
      found.set(record.name, of);
      of.push({ address, ttl: record.ttl });
    }
  }
  return { rcode: flags & 0xf, addresses: alongChain(name, aliases, found) };
}

function alongChain(
  name: string,
  aliases: ReadonlyMap<string, Alias>,
  found: ReadonlyMap<string, readonly AnswerAddress[]>,
): AnswerAddress[] {
  const addresses = new Map<string, AnswerAddress>();
  let [at, ttl] = [name, Number.POSITIVE_INFINITY];
  for (let links = 0; links < LONGEST_CHAIN; links += 1) {
    for (const each of found.get(at) ?? []) {
      const known = addresses.get(each.address)?.ttl ?? 0;
      addresses.set(each.address, { address: each.address, ttl: Math.max(known, Math.min(ttl, each.ttl)) });
    }
    const alias = aliases.get(at);
    if (alias === undefined) break;
    at = alias.to;
    ttl = Math.min(ttl, alias.ttl);
  }
  return [...addresses.values()];
}

interface ResourceRecord {
  readonly name: string;
  readonly type: number;
  readonly class: number;
  readonly ttl: number;
  /** Where its data begin and end. */
  readonly data: number;
  readonly end: number;
}

function readRecord(message: Buffer, start: number, known: KnownNames): ResourceRecord {
  const { name, end: at } = readName(message, start, known);
  if (at + 10 > message.length) throw new MessageError('a record is cut');
  const data = at + 10;
  const end = data + message.readUInt16BE(at + 8);
  if (end > message.length) throw new MessageError('a record is longer than the message');
  const ttl = message.readUInt32BE(at + 4);
  // The highest bit: 0 (RFC 2181, section 8).
  return {
    name,
    type: message.readUInt16BE(at),
    class: message.readUInt16BE(at + 2),
    ttl: ttl > 0x7fff_ffff ? 0 : ttl,
    data,
    end,
  };
}

interface Name {
  readonly text: string;
  /** On the wire, uncompressed, with the root's. */
  readonly bytes: number;
}

/** Names of a message by where they begin, so that many that lead to one are read once. */
type KnownNames = Map<number, Name>;

const ROOT: Name = { text: '', bytes: 1 };

/**
 * A name, and where it ends. Each pointer must lead to before all that was read of the name: a name cannot come back to itself.
 * @param known of the message; undefined: the name may not be compressed
 */
function readName(message: Buffer, start: number, known?: KnownNames): { readonly name: string; readonly end: number } {
  const steps: { readonly at: number; readonly label?: string }[] = [];
  let [at, first, bytes] = [start, start, 0];
  let end: number | undefined;
  let rest: Name | undefined;
  while (rest === undefined) {
    const length = message[at];
    if (length === undefined) throw new MessageError('a name is cut');
    if (length === 0) {
      rest = ROOT;
      end ??= at + 1;
    } else if (length >= 0xc0) {
      if (known === undefined) throw new MessageError('the name of a question is compressed');
      if (at + 1 >= message.length) throw new MessageError('a name is cut');
      steps.push({ at });
      end ??= at + 2;
      at = message.readUInt16BE(at) & 0x3fff;
      if (at >= first) throw new MessageError('a name leads to itself');
      first = at;
      rest = known.get(at);
    } else {
      if (length > LONGEST_LABEL) throw new MessageError('a label is of an unknown kind');
      if (at + 1 + length > message.length) throw new MessageError('a name is cut');
      steps.push({ at, label: label(message, at + 1, at + 1 + length) });
      bytes += 1 + length;
      at += 1 + length;
    }
    if (bytes + (rest?.bytes ?? 1) > LONGEST_NAME) throw new MessageError('a name is longer than 255 bytes');
  }
  for (const step of steps.reverse()) {
    if (step.label !== undefined) rest = before(step.label, message[step.at] ?? 0, rest);
    known?.set(step.at, rest);
  }
  return { name: rest.text, end: end ?? at };
}

function before(first: string, length: number, { text, bytes }: Name): Name {
  return { text: text === '' ? first : `${first}.${text}`, bytes: 1 + length + bytes };
}

const PLAIN = /^[-a-z0-9_]*$/;

function label(message: Buffer, from: number, to: number): string {
  const text = message.toString('latin1', from, to);
  if (PLAIN.test(text)) return text;
  // ASCII letters alone have a case in names.
  return text.replace(/[^-a-z0-9_]/g, (character) =>
    character >= 'A' && character <= 'Z'
      ? character.toLowerCase()
      : `\\${String(character.charCodeAt(0)).padStart(3, '0')}`,
  );
}
