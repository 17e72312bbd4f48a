/** Processes of a test, as module texts: each answers a line of JSON with one. */

const LINES = `
import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import packet from 'dns-packet';
const lines = (answer) => {
  createInterface({ input: process.stdin }).on('line', async (line) => console.log(JSON.stringify((await answer(JSON.parse(line))) ?? null)));
};
const family = (address) => (address.includes(':') ? 'udp6' : 'udp4');
`;

/**
 * A resolver, at port 53 of the addresses that it is started with. {zone}: what it answers, by the name's lower case: records of dns-packet, or what it does
 * instead: 'silence', 'forge' (first answers that are not the asked one's: from another port and address, of another id, of another question), 'twice' (answers two times), 'held' (answers by UDP after {release}). {closing}: whether it ends a connection after its
 * first answer. {asked}: questions since the last time.
 */
export const RESOLVER = `${LINES}
let zone = {}, asked = [], closing = false, held = [];
const sockets = [], others = [];
function answer(message, how) {
  const query = packet.decode(message);
  const { name, type } = query.questions[0];
  asked.push(name + ' ' + type + ' ' + how);
  const records = zone[name.toLowerCase()];
  if (records === 'silence') return [];
  const say = (id, question, answers) => packet.encode({ type: 'response', id, flags: packet.RECURSION_DESIRED | packet.RECURSION_AVAILABLE, questions: [question], answers });
  if (records === 'garbage') return [say(query.id, query.questions[0], []).fill(0xff, 6, 8)];
  const own = say(query.id, query.questions[0], (typeof records === 'string' ? [{ name, type: 'A', ttl: 60, data: '192.0.2.1' }] : records ?? []).map((each) => ({ ...each, name: each.name ?? name })));
  if (records === 'held') return [['held', own]];
  if (records !== 'forge') return records === 'twice' ? [own, own] : [own];
  const bad = [{ name, type: 'A', ttl: 60, data: '192.0.2.66' }];
  return [say(query.id ^ 1, query.questions[0], bad), say(query.id, { ...query.questions[0], name: 'x' + name.slice(1) }, bad), ['other', say(query.id, query.questions[0], bad)], own];
}
for (const address of process.argv.slice(1)) {
  const udp = createSocket(family(address)), other = createSocket(family(address));
  udp.on('message', (message, from) => {
    for (const each of answer(message, 'udp')) {
      if (each[0] === 'held') held.push(() => udp.send(each[1], from.port, from.address));
      else if (Array.isArray(each)) other.send(each[1], from.port, from.address);
      else udp.send(each, from.port, from.address);
    }
  });
  const tcp = createServer((socket) => {
    let rest = Buffer.alloc(0);
    socket.on('error', () => socket.destroy());
    socket.on('data', (data) => {
      rest = Buffer.concat([rest, data]);
      while (rest.length >= 2 && rest.length >= 2 + rest.readUInt16BE()) {
        for (const each of answer(rest.subarray(2, 2 + rest.readUInt16BE()), 'tcp')) {
          const length = Buffer.alloc(2);
          length.writeUInt16BE(each.length);
          socket.write(Buffer.concat([length, each]));
          if (closing) socket.end();
        }
        rest = rest.subarray(2 + rest.readUInt16BE());
      }
    });
  });
  await new Promise((resolve) => udp.bind(53, address, () => tcp.listen(53, address, resolve)));
  await new Promise((resolve) => other.bind(54, address, resolve));
}
lines((order) => {
  if (order.zone !== undefined) [zone, closing] = [order.zone, order.closing === true];
  if (order.release) for (const send of held.splice(0)) send();
  if (order.asked === undefined) return 'ok';
  const was = asked;
  asked = [];
  return was;
});
console.log('"ready"');
`;

/**
 * A pod that asks: {udp or tcp: hex of messages, from, port, to, waitMs, least, row}. Answers with the messages that came, in hex, each with the identity that the map
 * `names` had for the key \`row\` when it came; stops at as many as it asked, or \`waitMs\` milliseconds after it has sent all and \`least\` have come. half: whether it
 * ends its side of the connection then. {hold: how many stay, ports}: opens connections, and answers how many there are when no more are closed.
 */
export const POD = `${LINES}
import { openPinnedMap } from 'libbpf-ts';
const names = openPinnedMap(process.argv[1]);
const seen = (row) => {
  const value = row === undefined ? undefined : names.lookup(Buffer.from(row, 'hex'));
  return value === undefined ? 0 : Buffer.from(value).readUInt32LE();
};
// For what never comes.
const LONGEST_MS = 60_000;
async function hold({ hold, ports, from, to }) {
  const sockets = ports.map((port) => connect({ host: to, port: 53, localAddress: from, localPort: port }).on('error', () => {}).resume());
  const closed = new Set();
  for (const socket of sockets) socket.on('close', () => closed.add(socket));
  await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('connect', resolve).once('close', resolve))));
  const end = Date.now() + LONGEST_MS;
  while (sockets.length - closed.size > hold && Date.now() < end) await new Promise((resolve) => setTimeout(resolve, 5));
  await new Promise((resolve) => setTimeout(resolve, 300));
  for (const socket of sockets) socket.destroy();
  return sockets.length - closed.size;
}
function ask({ udp, tcp, from, port, to, waitMs = LONGEST_MS, least = 0, row, half }) {
  return new Promise((resolve) => {
    const came = [];
    const messages = (udp ?? tcp).map((hex) => Buffer.from(hex, 'hex'));
    let end, silence, unsent = udp === undefined ? 0 : messages.length;
    const done = () => { clearTimeout(limit); clearTimeout(silence); end(); resolve(came); };
    const limit = setTimeout(done, LONGEST_MS);
    const wait = () => { if (unsent === 0 && came.length >= least) silence ??= setTimeout(done, waitMs); };
    const take = (message) => {
      came.push({ hex: message.toString('hex'), identity: seen(row) });
      if (came.length === messages.length) done();
      else wait();
    };
    if (udp !== undefined) {
      const socket = createSocket(family(to));
      end = () => socket.close();
      socket.on('message', (message, rinfo) => { if (rinfo.address === to && rinfo.port === 53) take(message); });
      socket.on('error', done);
      const sent = () => { unsent -= 1; wait(); };
      socket.bind(port, from, () => { for (const message of messages) socket.send(message, 53, to, sent); });
      return;
    }
    const socket = connect({ host: to, port: 53, localAddress: from, localPort: port });
    end = () => socket.destroy();
    socket.on('error', done).on('close', done);
    wait();
    for (const message of messages) {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(message.length);
      socket.write(Buffer.concat([length, message]));
    }
    if (half) socket.end();
    let rest = Buffer.alloc(0);
    socket.on('data', (data) => {
      rest = Buffer.concat([rest, data]);
      while (rest.length >= 2 && rest.length >= 2 + rest.readUInt16BE()) {
        take(rest.subarray(2, 2 + rest.readUInt16BE()));
        rest = rest.subarray(2 + rest.readUInt16BE());
      }
    });
  });
}
lines((order) => (order.hold === undefined ? ask(order) : hold(order)));
console.log('"ready"');
`;
