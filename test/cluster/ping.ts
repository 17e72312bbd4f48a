/** ICMP queries from a pod, by a process in its network namespace. The kernel of whoever is asked answers. */
import { parseAddress } from '@weir/net';
import { netnsPath } from './fabric.ts';
import { run } from './run.ts';

export type IcmpQuery = 'echo' | 'timestamp';
export type IcmpResult = 'answered' | 'silence';

/** Type, length and the type of the answer (RFC 792, RFC 4443). */
const QUERIES: Readonly<Record<IcmpQuery, readonly [number, number, number]>> = {
  echo: [8, 8, 0],
  timestamp: [13, 20, 14],
};
const ECHO6 = [128, 8, 129] as const;

const PINGER = `
import { isIPv6 } from 'node:net';
import koffi from 'koffi';
const [address, bytes, type, length, answer, timeout] = process.argv.slice(1);
const libc = koffi.load('libc.so.6');
const open = libc.func('int socket(int domain, int type, int protocol)');
const sendto = libc.func('long sendto(int fd, void *data, size_t length, int flags, void *address, uint32_t addressLength)');
const recv = libc.func('long recv(int fd, _Out_ void *data, size_t length, int flags)');
const six = isIPv6(address), fd = open(six ? 10 : 2, 3 | 0o4000, six ? 58 : 1);
// A socket of IPv6 gets no IP header, and its kernel writes the checksum.
const header = six ? 0 : 20;
const query = Buffer.alloc(Number(length)), to = Buffer.alloc(six ? 28 : 16), id = process.pid & 0xffff;
query[0] = Number(type);
query.writeUInt16BE(id, 4);
let sum = 0;
for (let at = 0; at < query.length; at += 2) sum += query.readUInt16BE(at);
query.writeUInt16BE(~((sum & 0xffff) + (sum >> 16)) & 0xffff, 2);
to.writeUInt16LE(six ? 10 : 2);
Buffer.from(bytes, 'hex').copy(to, six ? 8 : 4);
sendto(fd, query, query.length, 0, to, to.length);
let answered = false;
// By turns of this process and not by the clock: it may have no core for longer than the time.
for (let turn = 0; !answered && turn < Number(timeout) / 5; turn += 1) {
  const got = Buffer.alloc(200), read = Number(recv(fd, got, 200, 0));
  answered = read >= header + 8 && got[header] === Number(answer) && got.readUInt16BE(header + 4) === id;
  if (!answered) await new Promise((resolve) => setTimeout(resolve, 5));
}
console.log(answered ? 'answered' : 'silence');
`;

/** @param netns of the pod that asks; `address` may be of either family, which has no timestamps in IPv6 */
export async function ping(
  netns: string,
  address: string,
  query: IcmpQuery = 'echo',
  timeoutMs = 400,
): Promise<IcmpResult> {
  const args = [`--net=${netnsPath(netns)}`, process.execPath, '--input-type=module', '-e', PINGER, '--'];
  const { family, bytes } = parseAddress(address);
  const numbers = [...(family === 6 ? ECHO6 : QUERIES[query]), timeoutMs].map(String);
  const { stdout } = await run('nsenter', [...args, address, Buffer.from(bytes).toString('hex'), ...numbers]);
  return stdout.trim() as IcmpResult;
}
