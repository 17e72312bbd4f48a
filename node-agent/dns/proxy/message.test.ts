import { describe, expect, it } from '@jest/globals';
import packet from 'dns-packet';
import fc from 'fast-check';
import { answers, emptyAnswer, isAsking, MessageError, readAnswer, readQuestion, typeName } from './message.ts';

const ask = (name: string, type = 'A', more: Partial<packet.Packet> = {}): Buffer =>
  packet.encode({
    type: 'query',
    id: 77,
    flags: packet.RECURSION_DESIRED,
    questions: [{ name, type: type as 'A' }],
    ...more,
  });

/** A message with these bytes after a header of one question. */
const raw = (...bytes: readonly number[]): Buffer => Buffer.from([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, ...bytes]);

function answerOf(name: string, records: readonly packet.Answer[], flags = 0): Buffer {
  return packet.encode({
    type: 'response',
    id: 77,
    flags,
    questions: [{ name, type: 'A' }],
    answers: [...records],
  });
}

const addressesOf = (name: string, message: Buffer) =>
  readAnswer(message, { name: name.toLowerCase(), bytes: readQuestion(ask(name)).question.bytes }).addresses;

describe('a question', () => {
  it('is read', () => {
    const { question, fault } = readQuestion(
      ask('API.Example.com', 'AAAA', {
        additionals: [
          {
            type: 'OPT',
            name: '.',
            udpPayloadSize: 4096,
            flags: 0,
            options: [],
            extendedRcode: 0,
            ednsVersion: 0,
            flag_do: false,
          },
        ],
      }),
    );
    expect(question).toMatchObject({ id: 77, name: 'api.example.com', type: 28 });
    expect(question.bytes.toString('latin1')).toContain('API');
    expect(fault).toBeUndefined();
  });

  it('has a name that no other name has: bytes that separate nothing are escaped', () => {
    expect(readQuestion(raw(5, 0x61, 0x2e, 0x62, 0x2a, 0xc9, 3, 0x63, 0x6f, 0x6d, 0, 0, 1, 0, 1)).question.name).toBe(
      'a\\046b\\042\\201.com',
    );
    expect(readQuestion(raw(0, 0, 2, 0, 1)).question.name).toBe('');
  });

  it.each([
    [
      'two questions',
      packet.encode({
        type: 'query',
        id: 1,
        questions: [
          { name: 'a', type: 'A' },
          { name: 'b', type: 'A' },
        ],
      }),
    ],
    ['no question', packet.encode({ type: 'query', id: 1, questions: [] })],
    ['a compressed name', raw(0xc0, 0, 0, 1, 0, 1)],
    ['a name that leads to itself', raw(0xc0, 12, 0, 1, 0, 1)],
    ['a label of an unknown kind', raw(0x41, 1, 0, 0, 1, 0, 1)],
    [
      'a name of 256 bytes',
      raw(...Array.from({ length: 4 }, () => [63, ...Buffer.alloc(63, 97)]).flat(), 0, 0, 1, 0, 1),
    ],
    ['a cut name', raw(5, 97)],
    ['a cut question', raw(1, 97, 0, 0, 1)],
    ['a short header', Buffer.alloc(11)],
  ])('is none with %s', (_, message) => {
    expect(() => readQuestion(message)).toThrow(MessageError);
  });

  it.each([
    ['another opcode', ask('a.com', 'A', { flags: 4 << 11 }), 'NOTIMP'],
    ['records in it', ask('a.com', 'A', { answers: [{ name: 'a.com', type: 'A', data: '192.0.2.1' }] }), 'FORMERR'],
    ['a zone', ask('a.com', 'AXFR'), 'REFUSED'],
  ])('is not forwarded with %s', (_, message, fault) => {
    expect(readQuestion(message).fault).toBe(fault);
  });

  it('is no answer', () => {
    expect(isAsking(ask('a.com'))).toBe(true);
    expect(isAsking(answerOf('a.com', []))).toBe(false);
    expect(isAsking(Buffer.alloc(3))).toBe(false);
  });
});

it('an empty answer repeats the question, and has the code', () => {
  const message = ask('A.com');
  const { question } = readQuestion(message);
  const empty = emptyAnswer(message, question, 'REFUSED');
  expect(packet.decode(empty)).toMatchObject({
    id: 77,
    type: 'response',
    rcode: 'REFUSED',
    questions: [{ name: 'A.com' }],
    answers: [],
  });
  expect(answers(empty, question)).toBe(true);
  expect(packet.decode(emptyAnswer(message, undefined, 'FORMERR'))).toMatchObject({
    id: 77,
    rcode: 'FORMERR',
    questions: [],
  });
});

describe('an answer', () => {
  const { question } = readQuestion(ask('Api.com'));

  it('is one by its id and its question, to the byte', () => {
    expect(answers(answerOf('Api.com', []), question)).toBe(true);
    expect(answers(answerOf('api.com', []), question)).toBe(false);
    expect(answers(answerOf('Api.com', []), { ...question, id: 78 })).toBe(false);
    expect(answers(ask('Api.com'), question)).toBe(false);
    expect(answers(answerOf('Api.com', []).subarray(0, 20), question)).toBe(false);
  });

  it('gives addresses of the name, and of what it is an alias of, for the least of their times', () => {
    const message = answerOf('Api.com', [
      { name: 'Api.COM', type: 'CNAME', ttl: 30, data: 'Edge.net' },
      { name: 'edge.net', type: 'A', ttl: 60, data: '192.0.2.1' },
      { name: 'edge.net', type: 'AAAA', ttl: 10, data: '2001:db8::1' },
      { name: 'other.net', type: 'A', ttl: 60, data: '192.0.2.9' },
      { name: 'edge.net', type: 'TXT', ttl: 60, data: 'x' },
    ]);
    expect(addressesOf('Api.com', message)).toEqual([
      { address: '192.0.2.1', ttl: 30 },
      { address: '2001:db8::1', ttl: 10 },
    ]);
  });

  it('whose aliases go round ends', () => {
    const message = answerOf('a.com', [
      { name: 'a.com', type: 'CNAME', ttl: 30, data: 'b.com' },
      { name: 'b.com', type: 'CNAME', ttl: 30, data: 'a.com' },
    ]);
    expect(addressesOf('a.com', message)).toEqual([]);
  });

  it('that is cut between records, and says so, gives those that are whole; else it is none', () => {
    const records: packet.Answer[] = [1, 2].map((at) => ({ name: 'a.com', type: 'A', ttl: 1, data: `192.0.2.${at}` }));
    const whole = answerOf('a.com', records, packet.TRUNCATED_RESPONSE);
    const one = answerOf('a.com', records.slice(0, 1)).length;
    expect(addressesOf('a.com', whole.subarray(0, one))).toHaveLength(1);
    expect(() => addressesOf('a.com', whole.subarray(0, one + 3))).toThrow(MessageError);
    expect(() => addressesOf('a.com', answerOf('a.com', records).subarray(0, one))).toThrow(MessageError);
  });

  it('of 4000 addresses is read at once', () => {
    const records: packet.Answer[] = Array.from({ length: 4000 }, (_, at) => ({
      name: 'a.com',
      type: 'A',
      ttl: 1,
      data: `10.0.${at >> 8}.${at & 255}`,
    }));
    expect(addressesOf('a.com', answerOf('a.com', records))).toHaveLength(4000);
  });

  it('gives what dns-packet reads of it', () => {
    const name = fc.constantFrom('a.com', 'b.com', 'c.example.net');
    const record = fc.oneof(
      fc.record({ name, type: fc.constant('A' as const), ttl: fc.nat(1000), data: fc.ipV4() }),
      fc.record({
        name,
        type: fc.constant('AAAA' as const),
        ttl: fc.nat(1000),
        data: fc.constantFrom('2001:db8::1', 'fd00::2'),
      }),
      fc.record({
        name,
        type: fc.constant('MX' as const),
        ttl: fc.nat(1000),
        data: fc.record({ exchange: name, preference: fc.nat(9) }),
      }),
    );
    fc.assert(
      fc.property(fc.array(record, { maxLength: 10 }), (records) => {
        const own = records.filter((each) => each.name === 'a.com' && each.type !== 'MX');
        const found = addressesOf('a.com', answerOf('a.com', records)).map(({ address }) => address);
        expect(new Set(found)).toEqual(new Set(own.map(({ data }) => data)));
      }),
    );
  });
});

it('whatever comes, a message is read or is none', () => {
  const good = answerOf('www.example.com', [
    { name: 'www.example.com', type: 'CNAME', ttl: 5, data: 'edge.example.com' },
    { name: 'edge.example.com', type: 'A', ttl: 5, data: '192.0.2.1' },
  ]);
  const { question } = readQuestion(ask('www.example.com'));
  const broken = fc.array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { maxLength: 12 }).chain((edits) =>
    fc.nat(good.length).map((length) => {
      const message = Buffer.from(good);
      for (const [at, byte] of edits) message[at] = byte;
      return message.subarray(0, length);
    }),
  );
  const whatever = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes));
  let [read, none] = [0, 0];
  fc.assert(
    fc.property(fc.oneof(broken, whatever, fc.constant(good)), (message) => {
      for (const body of [
        () => readQuestion(message),
        () => answers(message, question) && readAnswer(message, question),
      ]) {
        try {
          body();
          read += 1;
        } catch (error) {
          if (!(error instanceof MessageError)) throw error;
          none += 1;
        }
      }
    }),
    { numRuns: 5000 },
  );
  expect(Math.min(read, none)).toBeGreaterThan(100);
});

describe('names that many records lead to are read once', () => {
  /** As many records as a message holds, whose names begin at `last` of a first record's data. */
  function full(data: (at: number) => Buffer, last: (data: Buffer) => number): Buffer {
    const message = ask('a');
    message.writeUInt16BE(0x8180, 2);
    const record = (name: number, length: number): Buffer => {
      const bytes = Buffer.alloc(12);
      for (const [at, value] of [0xc000 | name, 16, 1].entries()) bytes.writeUInt16BE(value, 2 * at);
      bytes.writeUInt16BE(length, 10);
      return bytes;
    };
    const at = message.length + 12;
    const content = data(at);
    const count = Math.floor((65_535 - at - content.length) / 12);
    message.writeUInt16BE(count + 1, 6);
    const each = record(at + last(content), 0);
    return Buffer.concat([message, record(12, content.length), content, ...Array.from({ length: count }, () => each)]);
  }

  it.each([
    [
      'through a chain of pointers',
      (at: number): Buffer => {
        const chain = Buffer.alloc(16_000);
        for (let link = 0; link < chain.length; link += 2)
          chain.writeUInt16BE(0xc000 | (link === 0 ? 12 : at + link - 2), link);
        return chain;
      },
      (chain: Buffer): number => chain.length - 2,
    ],
    ['of as many labels as there can be', (): Buffer => Buffer.from(`${'\x01b'.repeat(126)}\0`), (): number => 0],
  ])('%s', (_, data, last) => {
    const message = full(data, last);
    let reads = 0;
    const counted = <Result>(read: Result): Result => {
      reads += 1;
      if (reads > message.length) throw new Error('more is read than there is');
      return read;
    };
    const { readUInt16BE, toString: text } = Buffer.prototype;
    message.readUInt16BE = (at) => counted(readUInt16BE.call(message, at));
    message.toString = (...args) => counted(text.apply(message, args));
    expect(readAnswer(message, readQuestion(ask('a')).question).addresses).toEqual([]);
    expect(reads).toBeGreaterThan(10_000);
  });
});

it('names types', () => {
  expect([typeName(1), typeName(65), typeName(4000)]).toEqual(['A', 'HTTPS', 'TYPE4000']);
});
