/** ICMP queries from a pod, by a process in its network namespace. The kernel of whoever is asked answers. */
import { netnsPath } from './fabric.ts';
import { run } from './run.ts';

export type IcmpQuery = 'echo' | 'timestamp';
export type IcmpResult = 'answered' | 'silence';

/** Type, length and the type of the answer (RFC 792). */
const QUERIES: Readonly<Record<IcmpQuery, readonly [number, number, number]>> = {
  echo: [8, 8, 0],
  timestamp: [13, 20, 14],
};

const PINGER = `
import koffi from 'koffi';
const [address, type, length, answer, timeout] = process.argv.slice(1);
const libc = koffi.load('libc.so.6');
const open = libc.func('int socket(int domain, int type, int protocol)');
const sendto = libc.func('long sendto(int fd, void *data, size_t length, int flags, void *address, uint32_t addressLength)');
const recv = libc.func('long recv(int fd, _Out_ void *data, size_t length, int flags)');
const fd = open(2, 3 | 0o4000, 1);
const query = Buffer.alloc(Number(length)), to = Buffer.alloc(16), id = process.pid & 0xffff;
query[0] = Number(type);
query.writeUInt16BE(id, 4);
let sum = 0;
for (let at = 0; at < query.length; at += 2) sum += query.readUInt16BE(at);
query.writeUInt16BE(~((sum & 0xffff) + (sum >> 16)) & 0xffff, 2);
to.writeUInt16LE(2);
address.split('.').forEach((byte, at) => { to[4 + at] = Number(byte); });
sendto(fd, query, query.length, 0, to, 16);
const end = Date.now() + Number(timeout);
let answered = false;
while (!answered && Date.now() < end) {
  const got = Buffer.alloc(200), read = Number(recv(fd, got, 200, 0));
  answered = read >= 28 && got[20] === Number(answer) && got.readUInt16BE(24) === id;
  if (!answered) await new Promise((resolve) => setTimeout(resolve, 5));
}
console.log(answered ? 'answered' : 'silence');
`;

/** @param netns of the pod that asks */
export async function ping(
  netns: string,
  address: string,
  query: IcmpQuery = 'echo',
  timeoutMs = 400,
): Promise<IcmpResult> {
  const args = [`--net=${netnsPath(netns)}`, process.execPath, '--input-type=module', '-e', PINGER, '--'];
  const { stdout } = await run('nsenter', [...args, address, ...QUERIES[query].map(String), String(timeoutMs)]);
  return stdout.trim() as IcmpResult;
}
