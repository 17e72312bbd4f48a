import { formatAddress, isAddressOf, parseAddress } from '@weir/net';
import type { EndpointRow } from '../tables.ts';
import { BadRequestError } from './errors.ts';

const PREFIXES = [
  'cilium-local',
  'cni-attachment-id',
  'container-id',
  'container-name',
  'docker-endpoint',
  'pod-name',
  'cep-name',
  'ipv4',
  'ipv6',
] as const;
type IdPrefix = (typeof PREFIXES)[number];

export interface EndpointRef {
  readonly prefix: IdPrefix;
  readonly value: string;
}

/** Parses `{prefix}:{value}`; no prefix means cilium-local. Throws `BadRequestError`. */
export function parseEndpointRef(text: string): EndpointRef {
  const at = text.indexOf(':');
  const prefix = at < 0 ? 'cilium-local' : text.slice(0, at);
  const value = text.slice(at + 1);
  const known = PREFIXES.find((name) => name === prefix);
  if (known === undefined)
    throw new BadRequestError(`endpoint id "${text}": unknown prefix "${prefix}"; use one of ${PREFIXES.join(', ')}`);
  if (known === 'cilium-local' && !(/^\d{1,5}$/.test(value) && Number(value) <= 65535)) {
    throw new BadRequestError(
      `endpoint id "${text}" is neither a number from 0 to 65535 nor PREFIX:VALUE, as pod-name:NAMESPACE/NAME`,
    );
  }
  if (value === '') throw new BadRequestError(`endpoint id "${text}" is empty after its prefix`);
  if ((known === 'pod-name' || known === 'cep-name') && !/^[^/]+\/[^/]+$/.test(value)) {
    throw new BadRequestError(`endpoint id "${text}": "${value}" is not NAMESPACE/NAME`);
  }
  if (known === 'ipv4' || known === 'ipv6') return { prefix: known, value: addressOf(text, known, value) };
  return { prefix: known, value };
}

/** Canonical. */
function addressOf(text: string, prefix: 'ipv4' | 'ipv6', value: string): string {
  if (isAddressOf(prefix === 'ipv4' ? 4 : 6, value)) return formatAddress(parseAddress(value).bytes);
  throw new BadRequestError(`endpoint id "${text}": "${value}" is no ${prefix === 'ipv4' ? 'IPv4' : 'IPv6'} address`);
}

export function matchesRef(endpoint: EndpointRow, ref: EndpointRef): boolean {
  switch (ref.prefix) {
    case 'cilium-local':
      return endpoint.id === Number(ref.value);
    case 'container-id':
    case 'docker-endpoint':
      return endpoint.containerId === ref.value;
    case 'cni-attachment-id':
      return `${endpoint.containerId ?? ''}:${endpoint.containerInterface ?? ''}` === ref.value;
    case 'container-name':
      return endpoint.pod?.name === ref.value;
    case 'pod-name':
    case 'cep-name':
      return endpoint.pod !== undefined && `${endpoint.pod.namespace}/${endpoint.pod.name}` === ref.value;
    case 'ipv4':
    case 'ipv6':
      return endpoint.addresses.includes(ref.value);
  }
}
