/** One endpoint under a compiled policy, in the kernel: what passes of a new flow of a peer. */
import { DIRECTION, type Direction, ENDPOINT_FLAGS, FIRST_CLASS, PROTOCOL } from '@weir/bpf';
import {
  ETHERTYPE,
  ethernet,
  icmp,
  ip6,
  ipv4,
  ipv6,
  sctp,
  TCP_FLAGS,
  TestDatapath,
  tcp,
  udp,
  type VerdictRow,
} from '@weir/bpf/testing';
import { portPrefixes } from '@weir/net';
import type { ClassRows, CompiledPolicy } from '@weir/policy';

const OWN = ['192.168.77.1', 'fd77::1'] as const;
const PROTOCOL_NAMES: ReadonlyMap<number, keyof typeof PROTOCOL> = new Map(
  Object.entries(PROTOCOL).map(([name, number]) => [number, name as keyof typeof PROTOCOL]),
);
/** Classes of whole scopes, as bpf/layout.h has them. */
const SCOPES = { unknown: 0, pod: 1, world: 2 } as const;

export interface KernelFlow {
  readonly direction: Direction;
  /** The peer's address. */
  readonly address: string;
  /** The node itself sends it. */
  readonly local: boolean;
  readonly protocol: number;
  /** Of the destination, or the ICMP type. */
  readonly port: number;
}

export class KernelJudge implements Disposable {
  readonly #path = new TestDatapath();
  #revision = 0;
  #source = 1024;

  /** @param addresses what the ipcache has: prefixes, and whose they are */
  policy(compiled: CompiledPolicy, addresses: ReadonlyMap<string, number>): void {
    const path = this.#path;
    path.forget();
    path.map('ipcache').deleteBatch([...path.map('ipcache').keys()]);
    for (const [prefix, identity] of addresses) {
      const [address = '', bits] = prefix.split('/');
      path.identity(address, identity, Number(bits));
    }
    const directions = Object.keys(DIRECTION) as Direction[];
    const classes = directions.flatMap((direction) =>
      compiled[direction].classes.flatMap(({ members }, index) =>
        members.map((identity) => ({ identity, direction, class: FIRST_CLASS + index })),
      ),
    );
    const verdicts = directions.flatMap((direction) => [
      ...Object.entries(SCOPES).flatMap(([scope, number]) =>
        rowsOf(compiled[direction].scope[scope as keyof typeof SCOPES], number, direction),
      ),
      ...compiled[direction].classes.flatMap(({ rows }, index) => rowsOf(rows, FIRST_CLASS + index, direction)),
    ]);
    const prefixes = directions.flatMap((direction) =>
      compiled[direction].addresses.map(({ prefix, rows }, number) => {
        verdicts.push(...rowsOf(rows, number, direction).map((row) => ({ ...row, byAddress: true as const })));
        const [address = '', bits] = prefix.split('/');
        return { address, bits: Number(bits), direction, class: number };
      }),
    );
    path.slot(1, classes, verdicts, prefixes);
    const flags =
      (compiled.ingress.enforced ? ENDPOINT_FLAGS.ingressEnforced : 0) |
      (compiled.egress.enforced ? ENDPOINT_FLAGS.egressEnforced : 0);
    this.#revision += 1;
    path.endpoint({ ipv4: OWN[0], ipv6: OWN[1], slot: 1, revision: this.#revision, flags });
  }

  /** Undefined: it is no packet of the address's family. */
  passes({ direction, address, local, protocol, port }: KernelFlow): boolean | undefined {
    const family = address.includes(':') ? 6 : 4;
    if (protocol === (family === 6 ? PROTOCOL.icmp : PROTOCOL.icmpv6)) return undefined;
    // An error, which stands for what it quotes.
    if (protocol === PROTOCOL.icmpv6 && port < 128) return undefined;
    this.#source = this.#source >= 60_000 ? 1024 : this.#source + 1;
    // Of others nothing tells a flow from its answers.
    if (!PROTOCOL_NAMES.has(protocol)) this.#path.forget();
    const own = OWN[family === 6 ? 1 : 0];
    const [src, dst] = direction === 'egress' ? [own, address] : [address, own];
    const payload = payloadOf(protocol, port, this.#source);
    const frame =
      family === 4
        ? ethernet(ipv4({ src, dst, protocol, payload }))
        : ethernet(ipv6({ src: ip6(src), dst: ip6(dst), nextHeader: protocol, payload, hopLimit: 64 }), ETHERTYPE.ipv6);
    return this.#path.run(direction, frame, local ? 0 : undefined) === 'pass';
  }

  [Symbol.dispose](): void {
    this.#path.close();
  }
}

function rowsOf(rows: ClassRows, number: number, direction: Direction): VerdictRow[] {
  return rows.flatMap((row) =>
    portPrefixes(row.from, row.to).map(({ port, bits }) => ({
      class: number,
      direction,
      protocol: PROTOCOL_NAMES.get(row.protocol) ?? 'other',
      port,
      portBits: bits,
      verdict: row.verdict,
      cookie: row.cookie,
    })),
  );
}

function payloadOf(protocol: number, port: number, sport: number): Uint8Array {
  const dport = port;
  switch (protocol) {
    case PROTOCOL.tcp:
      return tcp({ sport, dport, flags: TCP_FLAGS.syn });
    case PROTOCOL.udp:
      return udp({ sport, dport });
    case PROTOCOL.sctp:
      return sctp({ sport, dport });
    case PROTOCOL.icmp:
    case PROTOCOL.icmpv6:
      return icmp({ type: port, id: sport });
    default:
      return new Uint8Array(32);
  }
}
