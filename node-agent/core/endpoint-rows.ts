/** Rows of local endpoints: what makes one valid, and which of a state file are still true. */
import { type Address, formatAddress, parseAddress } from '@weir/net';
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
  checkAddresses(row);
}

/** @throws InvalidEndpointError */
function checkAddresses({ id, addresses, found }: EndpointRow): void {
  if (addresses.length === 0 && found === undefined) throw new InvalidEndpointError(id, 'it has no address');
  let last = 0;
  for (const text of addresses) {
    const { family, bytes } = readAddress(id, text);
    if (formatAddress(bytes) !== text)
      throw new InvalidEndpointError(id, `address ${JSON.stringify(text)} is written ${formatAddress(bytes)}`);
    if (family <= last)
      throw new InvalidEndpointError(id, `addresses ${addresses.join(', ')}: one of each family at most, IPv4 first`);
    last = family;
  }
}

function readAddress(id: number, text: string): Address {
  try {
    return parseAddress(text);
  } catch (error) {
    throw new InvalidEndpointError(id, `address ${JSON.stringify(text)}: ${messageOf(error)}`);
  }
}

const TEXTS = ['mac', 'hostMac', 'containerId', 'containerInterface', 'netns', 'gone'] as const;

/** @throws Error with a sentence, InvalidEndpointError */
export function decodeEndpoints(json: unknown): readonly EndpointRow[] {
  return objects(json, 'endpoints').map((fields) => {
    const row = withAddresses(fields) as unknown as EndpointRow;
    const wrong = (what: string): Error => new Error(`has an endpoint ${JSON.stringify(row.id)} with a wrong ${what}`);
    if (typeof row.interfaceName !== 'string') throw wrong('interfaceName');
    if (!isTextList(row.addresses)) throw wrong('addresses');
    for (const name of TEXTS) if (row[name] !== undefined && typeof row[name] !== 'string') throw wrong(name);
    if (row.pod !== undefined && !isPod(row.pod)) throw wrong('pod');
    if (row.found !== undefined && !Number.isInteger((row.found as { identity?: unknown } | null)?.identity))
      throw wrong('found');
    if (row.labels !== undefined && !isTexts(row.labels)) throw wrong('labels');
    checkEndpoint(row);
    return row;
  });
}

/** Agents that knew IPv4 alone wrote `ipv4`. */
function withAddresses({ ipv4, ...fields }: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return typeof ipv4 === 'string' && fields.addresses === undefined
    ? { ...fields, addresses: ipv4 === '' ? [] : [ipv4] }
    : fields;
}

function isTextList(value: unknown): boolean {
  return Array.isArray(value) && value.every((text) => typeof text === 'string');
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
