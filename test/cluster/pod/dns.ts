/** DNS of a pod's process: a server of a few names, and questions to others. */
import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { isIPv6 } from 'node:net';
import packet from 'dns-packet';
import type { Lookup, Zone } from './protocol.ts';

const TTL = 60;
const zone = new Map<string, readonly string[]>();

/** Names that port 53 answers from now on, beside those of before. */
export function know(names: Zone): void {
  for (const [name, addresses] of Object.entries(names)) zone.set(name, addresses);
}

/** Answers at UDP port 53 of the addresses. */
export async function serveNames(addresses: readonly string[]): Promise<void> {
  await Promise.all(
    addresses.map((address) => {
      const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
      socket.on('message', (message, from) => {
        const answer = answerTo(message);
        if (answer !== undefined) socket.send(answer, from.port, from.address);
      });
      return new Promise<void>((resolve, reject) => {
        socket.once('error', reject);
        socket.bind(53, address, resolve);
      });
    }),
  );
}

function answerTo(message: Buffer): Buffer | undefined {
  const { id, questions = [] } = packet.decode(message);
  const [question] = questions;
  if (question === undefined) return undefined;
  const { name, type } = question;
  const known = zone.get(name.toLowerCase());
  const answers = (known ?? [])
    .filter((data) => type === (isIPv6(data) ? 'AAAA' : 'A'))
    .map((data) => ({ name, type: type as 'A' | 'AAAA', ttl: TTL, data }));
  return packet.encode({
    type: 'response',
    ...(id === undefined ? {} : { id }),
    // The last four bits are the code: 3 is NXDOMAIN.
    flags: packet.RECURSION_DESIRED | packet.RECURSION_AVAILABLE | (known === undefined ? 3 : 0),
    questions: [question],
    answers,
  });
}

/** Addresses of a name, or the error's code: `EREFUSED`, `ETIMEOUT`, `ENOTFOUND`. */
export async function lookUp({ server, name, type, timeoutMs }: Lookup): Promise<readonly string[] | string> {
  const resolver = new Resolver({ timeout: timeoutMs, tries: 1 });
  resolver.setServers([server]);
  try {
    return await (type === 'A' ? resolver.resolve4(name) : resolver.resolve6(name));
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
}
