/** Processes of a test that talk: each says who it was that spoke to it. */

/** Answers at a port by UDP and at one by TCP, at an address or at all, with the address and port that it sees, datagrams at the length in which they came. */
export const listener = (udp: number, tcp: number, address = '::'): string => `
import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
const udp = createSocket('${address.includes(':') ? 'udp6' : 'udp4'}');
const plain = (address) => address.replace('::ffff:', '');
udp.on('message', (text, from) => udp.send((plain(from.address) + ' ' + from.port).padEnd(text.length), from.port, from.address));
udp.bind(${udp}, '${address}', () => {
  const tcp = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    socket.on('data', () => socket.write(plain(socket.remoteAddress) + ' ' + socket.remotePort + '\\n'));
  });
  tcp.listen(${tcp}, '${address}', () => console.log('ready'));
});
`;

/**
 * "udp ADDRESS SIZE [PORT [TO]]": a datagram of that size, from that port; "tcp ADDRESS [PORT [TO]]": a connection, or a word on the one that is open;
 * "ping ADDRESS ID": an echo; "listen PORT": a socket for datagrams; "close PORT", "hangup PORT": ends those that talked from there. Prints what comes back, the name of an error, or "nothing"
 * after a minute; after a second and a half with "brief" before the rest, for where nothing is to come.
 */
export const TALKER = `
import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import koffi from 'koffi';
const libc = koffi.load('libc.so.6');
const openSocket = libc.func('int socket(int domain, int type, int protocol)');
const sendto = libc.func('long sendto(int fd, void *data, size_t length, int flags, void *address, uint32_t addressLength)');
const recv = libc.func('long recv(int fd, _Out_ void *data, size_t length, int flags)');
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const sockets = new Map(), streams = new Map();
let patience = 0;
const late = (resolve) => setTimeout(() => resolve('nothing'), patience).unref();
function udp(address, size, port = '0', to = '7777') {
  return new Promise((resolve) => {
    const key = address + port + to;
    const known = sockets.get(key);
    const socket = known ?? createSocket(address.includes(':') ? 'udp6' : 'udp4');
    const send = () => socket.send(Buffer.alloc(Number(size), 'x'), (error) => { if (error) resolve(error.code); });
    sockets.set(key, socket);
    socket.removeAllListeners('message').removeAllListeners('error');
    socket.on('message', (text) => resolve(String(text).trim() + (text.length > 60 ? ' ' + text.length : '')));
    socket.on('error', (error) => { sockets.delete(key); socket.close(); resolve(error.code); });
    if (known) send(); else socket.bind(Number(port), () => socket.connect(Number(to), address, (error) => error ? resolve(error.code) : send()));
    late(resolve);
  });
}
function tcp(address, port = '0', to = '7778') {
  return new Promise((resolve) => {
    const key = address + port;
    let stream = streams.get(key);
    if (stream === undefined) {
      stream = connect({ host: address, port: Number(to), ...(port === '0' ? {} : { localPort: Number(port) }) });
      if (port !== '0') streams.set(key, stream);
    }
    stream.removeAllListeners('data');
    stream.on('data', (text) => resolve(String(text).trim()));
    stream.on('error', (error) => { streams.delete(key); resolve(error.code); });
    stream.write('?');
    late(resolve);
  });
}
/** By IPv6 the kernel makes the checksum, and gives what comes without the header of IP. */
async function ping6(address, id) {
  const fd = openSocket(10, 3 | 0o4000, 58);
  const echo = Buffer.from([128, 0, 0, 0, Number(id) >> 8, Number(id) & 255, 0, 1]);
  const to = Buffer.alloc(28);
  to.writeUInt16LE(10);
  const [head, tail = ''] = address.split('::');
  const groups = (text) => text.split(':').filter((group) => group !== '');
  groups(head).forEach((group, at) => to.writeUInt16BE(parseInt(group, 16), 8 + 2 * at));
  groups(tail).reverse().forEach((group, at) => to.writeUInt16BE(parseInt(group, 16), 22 - 2 * at));
  sendto(fd, echo, 8, 0, to, 28);
  for (const end = performance.now() + patience; performance.now() < end; ) {
    const got = Buffer.alloc(200), length = recv(fd, got, 200, 0);
    if (length >= 8 && got[0] === 129 && got.readUInt16BE(4) === Number(id)) return 'echo from ' + address;
    await sleep(10);
  }
  return 'nothing';
}
async function ping(address, id) {
  if (address.includes(':')) return ping6(address, id);
  const fd = openSocket(2, 3 | 0o4000, 1);
  const echo = Buffer.from([8, 0, 0, 0, Number(id) >> 8, Number(id) & 255, 0, 1]);
  let sum = 0;
  for (let at = 0; at < 8; at += 2) sum += echo.readUInt16BE(at);
  sum = (sum & 0xffff) + (sum >> 16);
  echo.writeUInt16BE(~sum & 0xffff, 2);
  const to = Buffer.alloc(16);
  to.writeUInt16LE(2);
  address.split('.').forEach((byte, at) => { to[4 + at] = Number(byte); });
  sendto(fd, echo, 8, 0, to, 16);
  for (const end = performance.now() + patience; performance.now() < end; ) {
    const got = Buffer.alloc(200), length = recv(fd, got, 200, 0);
    if (length >= 28 && got[20] === 0 && got.readUInt16BE(24) === Number(id)) return 'echo from ' + [...got.subarray(12, 16)].join('.');
    if (length >= 28 && got[20] === 3 && got.readUInt16BE(28 + 24) === Number(id)) return 'unreachable';
    await sleep(10);
  }
  return 'nothing';
}
function listen(port) {
  return new Promise((resolve) => createSocket('udp4').on('error', (error) => resolve(error.code)).bind(Number(port), () => resolve('listens')));
}
function close(port) {
  for (const [key, socket] of sockets) if (socket.address().port === Number(port)) { sockets.delete(key); socket.close(); }
  return 'closed';
}
/** Ends the connections from a port at once, without TIME_WAIT. */
function hangup(port) {
  for (const [key, stream] of streams)
    if (key.endsWith(port)) { streams.delete(key); stream.removeAllListeners('error').on('error', () => {}).resetAndDestroy(); }
  return 'closed';
}
const verbs = { udp, tcp, ping, listen, close, hangup };
for await (const line of createInterface({ input: process.stdin })) {
  const words = line.split(' '), brief = words[0] === 'brief';
  patience = brief ? 1500 : 60_000;
  const [verb, ...rest] = brief ? words.slice(1) : words;
  console.log(await verbs[verb](...rest));
}
`;

/** Prints, when asked, the source addresses of packets that have come since the last time; those of IPv6 as 32 hex digits. */
export const WATCHER = `
import { createInterface } from 'node:readline';
import koffi from 'koffi';
const libc = koffi.load('libc.so.6');
const openSocket = libc.func('int socket(int domain, int type, int protocol)');
const recv = libc.func('long recv(int fd, _Out_ void *data, size_t length, int flags)');
const fd = openSocket(17, 3 | 0o4000, 0x0300);
console.log('ready');
for await (const _ of createInterface({ input: process.stdin })) {
  const seen = new Set();
  for (;;) {
    const frame = Buffer.alloc(2000), length = recv(fd, frame, 2000, 0);
    if (length < 0) break;
    const type = frame.readUInt16BE(12);
    if (type === 0x800) seen.add([...frame.subarray(26, 30)].join('.'));
    if (type === 0x86dd) seen.add(frame.subarray(22, 38).toString('hex'));
  }
  console.log([...seen].sort().join(' '));
}
`;
