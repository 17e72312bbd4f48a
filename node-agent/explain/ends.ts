/** The two ends of a flow, as this node knows them. */
import { FLOW_ENDS, type FlowEnd, plainNode, RESERVED_ID } from '@weir/identity';
import { addressBits, type Family, formatAddress, formatPrefix, maskPrefix, parseAddress } from '@weir/net';
import type { PeerIdentity } from '@weir/policy';
import type { Reader } from '@weir/statedb';
import { BadRequestError, NotFoundError } from '../api/errors.ts';
import type { Naming, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { EndpointStateRow } from '../tables.ts';

/** An endpoint of this node, as the kernel has it. */
export interface LocalEnd {
  readonly state: EndpointStateRow;
  readonly name: string;
  readonly pod?: { readonly namespace: string; readonly name: string };
}

export interface End {
  /** As the answer names it. */
  readonly name: string;
  /** At most one of each family, as the kernel will see them. Empty: no address stands for it. */
  readonly addresses: readonly string[];
  readonly identity: number;
  readonly local?: LocalEnd;
}

/** Addresses for documentation: nobody's. */
const OUTSIDE = ['203.0.113.1', '198.51.100.1', '192.0.2.1', '2001:db8::1'];

export interface EndSources {
  readonly reader: Reader;
  readonly tables: Tables;
  readonly naming: Pick<Naming, 'prefixOf'>;
  readonly nodeName: string;
}

/**
 * @param text `pod/NAMESPACE/NAME`, `node/NAME`, `address/ADDRESS`, `entity/NAME`
 * @throws BadRequestError, NotFoundError
 */
export function endOf(text: string, sources: EndSources): End {
  const [kind, ...rest] = text.split('/');
  const [first = '', second = ''] = rest;
  if (kind === 'pod' && rest.length === 2) return podEnd(first, second, sources);
  if (kind === 'node' && rest.length === 1) return nodeEnd(first, sources);
  if (kind === 'address' && rest.length === 1) return addressEnd(first, sources);
  const entity = FLOW_ENDS.find((known) => known === first);
  if (kind === 'entity' && rest.length === 1 && entity !== undefined) return entityEnd(entity, sources);
  throw new BadRequestError(
    `${JSON.stringify(text)} is no end of a flow: write pod/NAMESPACE/NAME, node/NAME, address/ADDRESS or entity/NAME`,
  );
}

/** What policies know of the identity of an address. */
export function peerIdentity(
  { identity, addresses }: End,
  { reader, tables, naming, nodeName }: EndSources,
): PeerIdentity {
  const cidr = naming.prefixOf(identity);
  const ownServer = identity === RESERVED_ID.host && reader.get(tables.nodes, nodeName)?.kubeApiserver === true;
  const server = addresses.some((address) => reader.get(tables.apiserverAddresses, address) !== undefined);
  const kubeApiserver = ownServer || (server && cidr !== undefined);
  return { id: identity, ...(cidr === undefined ? {} : { cidr }), ...(kubeApiserver ? { kubeApiserver } : {}) };
}

function podEnd(namespace: string, name: string, sources: EndSources): End {
  const { reader, tables } = sources;
  const key = tableKey.pod(namespace, name);
  const [row] = reader.list(tables.endpoints, 'pod', key);
  if (row !== undefined) return localEnd(row.id, sources);
  const remote = reader.get(tables.remoteEndpoints, key);
  if (remote !== undefined) return { name: key, addresses: remote.addresses, identity: remote.identity };
  throw new NotFoundError(`this node knows no pod ${key}`);
}

function localEnd(id: number, { reader, tables }: EndSources): End {
  const row = reader.get(tables.endpoints, tableKey.endpoint(id));
  const state = reader.get(tables.kernelEndpoints, tableKey.endpoint(id))?.acknowledged;
  const name = row?.pod === undefined ? `endpoint ${id}` : tableKey.pod(row.pod.namespace, row.pod.name);
  if (state === undefined)
    throw new NotFoundError(`the kernel has no policy of ${name} yet: see \`weir endpoint list\``);
  const { identity, addresses } = state;
  return { name, addresses, identity, local: { state, name, ...(row?.pod === undefined ? {} : { pod: row.pod }) } };
}

function nodeEnd(name: string, sources: EndSources): End {
  const row = sources.reader.get(sources.tables.nodes, name);
  if (row === undefined) throw new NotFoundError(`this node knows no node ${name}`);
  const identity = identityOf(row.addresses[0] ?? '', sources);
  return { name: `node ${name}`, addresses: row.addresses, identity };
}

function addressEnd(text: string, sources: EndSources): End {
  const { reader, tables } = sources;
  const address = canonical(text);
  const [row] = reader.list(tables.endpoints, 'address', address);
  if (row !== undefined) return localEnd(row.id, sources);
  const [service] = reader.list(tables.services, 'address', address);
  if (service !== undefined)
    throw new BadRequestError(
      `${address} is an address of Service ${service.namespace}/${service.name}: policies judge its backends, name one of them`,
    );
  return { name: address, addresses: [address], identity: identityOf(address, sources) };
}

function entityEnd(entity: FlowEnd, sources: EndSources): End {
  const { reader, tables, nodeName } = sources;
  const identity = RESERVED_ID[entity];
  const nodes = [...reader.all(tables.nodes)].filter(({ name }) => (entity === 'host') === (name === nodeName));
  const candidates = entity === 'world' ? OUTSIDE : nodes.flatMap(({ addresses }) => addresses);
  const isWorld = (id: number): boolean =>
    id === RESERVED_ID.world || id === RESERVED_ID['world-ipv4'] || id === RESERVED_ID['world-ipv6'];
  const addresses = candidates.filter((address) => {
    const id = identityOf(address, sources);
    return plainNode(id) === identity || (entity === 'world' && isWorld(id));
  });
  // Rules may tell nodes apart: the first stands for them.
  const [first] = addresses;
  const known = first === undefined || entity === 'world' ? identity : identityOf(first, sources);
  return { name: entity, addresses, identity: known };
}

/** By the longest prefix of the ipcache, as programs find it; 0 where none has it. */
function identityOf(address: string, { reader, tables }: EndSources): number {
  if (address === '') return RESERVED_ID.unknown;
  const { family, bytes } = parseAddress(address);
  for (let bits = addressBits(family); bits >= 0; bits -= 1) {
    const row = reader.get(tables.ipcache, formatPrefix(maskPrefix(family, bytes, bits)));
    if (row !== undefined) return row.identity;
  }
  return RESERVED_ID.unknown;
}

function canonical(text: string): string {
  try {
    return formatAddress(parseAddress(text).bytes);
  } catch (error) {
    throw new BadRequestError(`${JSON.stringify(text)} is no address: ${String(error)}`);
  }
}

/** The first address of each end that are of one family; undefined: no family has both. */
export function addressPair(
  source: End,
  destination: End,
  family?: Family,
): readonly [Uint8Array, Uint8Array] | undefined {
  for (const wanted of family === undefined ? ([4, 6] as const) : [family]) {
    const [a, b] = [source, destination].map(({ addresses }) =>
      addresses.map((text) => parseAddress(text)).find((address) => address.family === wanted),
    );
    if (a !== undefined && b !== undefined) return [a.bytes, b.bytes];
  }
  return undefined;
}
