/** Packets of any IP protocol between two hosts, by processes in their network namespaces. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { parseAddress } from '@weir/net';
import { netnsPath } from './fabric.ts';
import { run } from './run.ts';

const SOCKETS = `
import koffi from 'koffi';
const libc = koffi.load('libc.so.6');
const open = libc.func('int socket(int domain, int type, int protocol)');
const sendto = libc.func('long sendto(int fd, void *data, size_t length, int flags, void *address, uint32_t addressLength)');
const setsockopt = libc.func('int setsockopt(int fd, int level, int name, void *value, uint32_t length)');
const recv = libc.func('long recv(int fd, _Out_ void *data, size_t length, int flags)');
const [six, protocol, ...rest] = process.argv.slice(1);
const fd = open(six === '6' ? 10 : 2, 3 | 0o4000, Number(protocol));
`;
/** Says "ready", and then whether something came, until so long after it is told that all was sent. */
const LISTENER = `${SOCKETS}
const [timeout] = rest;
console.log('ready');
const got = Buffer.alloc(2000);
let left = Infinity, heard = false;
// By turns of this process and not by the clock: it may have no core for longer than the time.
process.stdin.once('data', () => { left = Number(timeout) / 5; });
for (; !heard && left > 0; left -= 1) {
  heard = recv(fd, got, got.length, 0) > 0;
  if (!heard) await new Promise((resolve) => setTimeout(resolve, 5));
}
console.log(heard ? 'heard' : 'silence');
process.exit(0);
`;
const SENDER = `${SOCKETS}
const [bytes] = rest;
const to = Buffer.alloc(six === '6' ? 28 : 16), data = Buffer.alloc(32, 'x');
const one = Buffer.from([1, 0, 0, 0]);
setsockopt(fd, 1, 6, one, 4); // SO_BROADCAST
to.writeUInt16LE(six === '6' ? 10 : 2);
Buffer.from(bytes, 'hex').copy(to, six === '6' ? 8 : 4);
sendto(fd, data, data.length, 0, to, to.length);
`;

const inNetns = (netns: string, module: string, args: readonly string[]): string[] => [
  ...[`--net=${netnsPath(netns)}`, process.execPath, '--input-type=module', '-e', module, '--'],
  ...args,
];

/**
 * Whether a packet of the protocol gets from one host to the other.
 * @param from its network namespace, as `to`; `address`: at which the other hears
 */
export async function arrives(
  { from, to, address }: { readonly from: string; readonly to: string; readonly address: string },
  protocol: number,
  timeoutMs = 400,
): Promise<boolean> {
  const { family, bytes } = parseAddress(address);
  const head = [String(family), String(protocol)];
  const listener = spawn('nsenter', inNetns(to, LISTENER, [...head, String(timeoutMs)]), {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: listener.stdout })[Symbol.asyncIterator]();
  await lines.next();
  await run('nsenter', inNetns(from, SENDER, [...head, Buffer.from(bytes).toString('hex')]));
  // It may have heard, and ended.
  listener.stdin.on('error', () => undefined).write('sent\n');
  return (await lines.next()).value === 'heard';
}
