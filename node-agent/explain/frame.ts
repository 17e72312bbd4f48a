/** The frame of a packet that asks the kernel. */
import { PROTOCOL_NUMBERS } from '@weir/policy';

export interface ProbeFlow {
  /** 4 or 16 bytes, as that of the destination. */
  readonly source: Uint8Array;
  readonly destination: Uint8Array;
  readonly protocol: ProbeProtocol;
  /** Of the destination; for ICMP the type. */
  readonly port: number;
  /** For ICMP the identifier. */
  readonly sourcePort: number;
}

/** Protocols whose packets are judged by what a frame can say; of the others only their number counts. */
export const PROBE_PROTOCOLS = ['TCP', 'UDP', 'SCTP', 'ICMP', 'ICMPv6'] as const;
export type ProbeProtocol = (typeof PROBE_PROTOCOLS)[number];

const ETHERNET = 14;
const HOPS = 64;
/** An acknowledgment: the kernel judges it as the first packet of a connection that it does not know, and begins no flow by it. */
const TCP_ACK = 0x10;
const TCP_BYTES = 20;

/** Checksums of the transport are not looked at. */
export function frameOf(flow: ProbeFlow): Uint8Array {
  const payload = transportOf(flow);
  const v4 = flow.source.length === 4;
  const header = v4 ? 20 : 40;
  const frame = new Uint8Array(ETHERNET + header + payload.length);
  const view = new DataView(frame.buffer);
  view.setUint16(12, v4 ? 0x0800 : 0x86dd);
  const protocol = PROTOCOL_NUMBERS[flow.protocol];
  if (v4) {
    frame[ETHERNET] = 0x45;
    view.setUint16(ETHERNET + 2, header + payload.length);
    frame[ETHERNET + 8] = HOPS;
    frame[ETHERNET + 9] = protocol;
    frame.set(flow.source, ETHERNET + 12);
    frame.set(flow.destination, ETHERNET + 16);
    view.setUint16(ETHERNET + 10, checksum(frame.subarray(ETHERNET, ETHERNET + header)));
  } else {
    frame[ETHERNET] = 0x60;
    view.setUint16(ETHERNET + 4, payload.length);
    frame[ETHERNET + 6] = protocol;
    frame[ETHERNET + 7] = HOPS;
    frame.set(flow.source, ETHERNET + 8);
    frame.set(flow.destination, ETHERNET + 24);
  }
  frame.set(payload, ETHERNET + header);
  return frame;
}

function transportOf({ protocol, port, sourcePort }: ProbeFlow): Uint8Array {
  const bytes = new Uint8Array(protocol === 'TCP' ? TCP_BYTES : protocol === 'SCTP' ? 12 : 8);
  const view = new DataView(bytes.buffer);
  if (protocol === 'ICMP' || protocol === 'ICMPv6') {
    bytes[0] = port;
    view.setUint16(4, sourcePort);
    return bytes;
  }
  view.setUint16(0, sourcePort);
  view.setUint16(2, port);
  if (protocol === 'UDP') view.setUint16(4, bytes.length);
  if (protocol === 'TCP') {
    bytes[12] = (TCP_BYTES / 4) << 4;
    bytes[13] = TCP_ACK;
  }
  return bytes;
}

function checksum(header: Uint8Array): number {
  let sum = 0;
  for (let at = 0; at < header.length; at += 2) sum += ((header[at] ?? 0) << 8) | (header[at + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
