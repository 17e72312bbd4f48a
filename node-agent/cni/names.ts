import { createHash } from 'node:crypto';
import type { Family } from '@weir/net';
import type { Attachment } from './types.ts';

/** The pod's gateways: never on a wire, reached by permanent neighbour entries. Link-local, so no pod address can collide with them. */
export const GATEWAY: Readonly<Record<Family, string>> = { 4: '169.254.1.1', 6: 'fe80::1' };

function digest(attachment: Attachment, purpose: string): string {
  return createHash('sha256').update(`${purpose}\0${attachment.containerId}\0${attachment.ifname}`).digest('hex');
}

/** Host-side interface name (15 characters, as VETH_PATTERN): a function of the attachment, so that DEL needs no memory. */
export function vethName(attachment: Attachment): string {
  return `weir${digest(attachment, 'veth').slice(0, 11)}`;
}

/** A locally administered unicast MAC, also a function of the attachment. */
export function macOf(attachment: Attachment, side: 'host' | 'pod'): string {
  const hex = digest(attachment, `mac-${side}`);
  return ['02', ...[0, 2, 4, 6, 8].map((at) => hex.slice(at, at + 2))].join(':');
}
