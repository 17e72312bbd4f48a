/** Rows of local endpoints: what makes one valid, and which of a state file are still true. */
import { parseAddress } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import { InvalidEndpointError } from '../errors.ts';
import type { NodeInterface } from '../host/interfaces.ts';
import { objects } from '../state/persist.ts';
import type { EndpointRow } from '../tables.ts';

export const LAST_ENDPOINT = 65535;

/** @throws InvalidEndpointError */
export function checkEndpoint(row: EndpointRow): void {
  if (!Number.isInteger(row.id) || row.id < 1 || row.id > LAST_ENDPOINT)
    throw new InvalidEndpointError(row.id, 'its id must be 1..65535');
  if (!Number.isInteger(row.ifindex) || row.ifindex < 1)
    throw new InvalidEndpointError(row.id, `ifindex ${row.ifindex} is no interface index`);
  if (row.ipv4 === '' && row.found !== undefined) return;
  try {
    if (parseAddress(row.ipv4).family === 4) return;
  } catch (error) {
    throw new InvalidEndpointError(row.id, `ipv4 ${JSON.stringify(row.ipv4)}: ${messageOf(error)}`);
  }
  throw new InvalidEndpointError(row.id, `ipv4 ${JSON.stringify(row.ipv4)} is no IPv4 address`);
}

const TEXTS = ['mac', 'hostMac', 'containerId', 'containerInterface', 'netns', 'gone'] as const;

/** @throws Error with a sentence, InvalidEndpointError */
export function decodeEndpoints(json: unknown): readonly EndpointRow[] {
  return objects(json, 'endpoints').map((fields) => {
    const row = fields as unknown as EndpointRow;
    const wrong = (what: string): Error => new Error(`has an endpoint ${JSON.stringify(row.id)} with a wrong ${what}`);
    if (typeof row.interfaceName !== 'string') throw wrong('interfaceName');
    if (typeof row.ipv4 !== 'string') throw wrong('ipv4');
    for (const name of TEXTS) if (row[name] !== undefined && typeof row[name] !== 'string') throw wrong(name);
    if (row.pod !== undefined && !isPod(row.pod)) throw wrong('pod');
    if (row.found !== undefined && !Number.isInteger((row.found as { identity?: unknown } | null)?.identity))
      throw wrong('found');
    if (row.labels !== undefined && !isTexts(row.labels)) throw wrong('labels');
    checkEndpoint(row);
    return row;
  });
}

function isPod(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const { namespace, name, uid } = value as Record<string, unknown>;
  return typeof namespace === 'string' && typeof name === 'string' && (uid === undefined || typeof uid === 'string');
}

function isTexts(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.values(value).every((text) => typeof text === 'string');
}

/**
 * Why a saved endpoint is dropped; undefined when its interface is there. After a reboot names and indexes may be
 * those of other interfaces: all that is known of the interface must agree.
 */
export function outdated(row: EndpointRow, interfaces: ReadonlyMap<string, NodeInterface>): string | undefined {
  const found = interfaces.get(row.interfaceName);
  if (found === undefined) return `the node has no interface ${row.interfaceName}`;
  if (found.ifindex !== row.ifindex)
    return `interface ${row.interfaceName} has index ${found.ifindex}, the endpoint's had ${row.ifindex}`;
  if (row.hostMac !== undefined && found.mac !== undefined && row.hostMac.toLowerCase() !== found.mac)
    return `interface ${row.interfaceName} has address ${found.mac}, the endpoint's had ${row.hostMac}`;
  return undefined;
}
