import { type Family, formatAddress, isAddressOf, parseAddress } from '@weir/net';
import type { EndpointRef } from './endpoint-id.ts';
import { BadRequestError } from './errors.ts';
import { describe, object, optionalInteger, optionalString, stringList } from './input.ts';
import { parseLabels } from './labels.ts';
import type { EndpointChangeRequest } from './models.ts';

const STATES = [
  'creating',
  'waiting-for-identity',
  'not-ready',
  'waiting-to-regenerate',
  'regenerating',
  'restoring',
  'ready',
  'disconnecting',
  'disconnected',
  'invalid',
];
const MAC = /^([0-9a-f]{2}:){5}[0-9a-f]{2}$/i;
const INTERFACE = /^[A-Za-z0-9_.@-]{1,15}$/;
const MAX_IFINDEX = 0x7fffffff;
const EXAMPLES = { 4: '10.1.0.5', 6: 'fd00:1::5' } as const;

/** Validates an EndpointChangeRequest. What Weir cannot honour is refused by name. Throws `BadRequestError`. */
export function parseEndpointRequest(body: unknown, ref: EndpointRef): EndpointChangeRequest {
  const request = object(body, 'the endpoint change request');
  const state = optionalString(request, 'state');
  if (state === undefined || !STATES.includes(state)) {
    throw new BadRequestError(`"state" is ${describe(request.state)}; it is required, one of ${STATES.join(', ')}`);
  }
  const addressing = request.addressing === undefined ? {} : object(request.addressing, '"addressing"');
  const addresses = [...addressIn(addressing, 4), ...addressIn(addressing, 6)];
  if (addresses.length === 0)
    throw new BadRequestError('"addressing" needs "ipv4", "ipv6" or both: the endpoint\'s own addresses');
  const interfaceName = optionalString(request, 'interface-name');
  if (interfaceName === undefined || !INTERFACE.test(interfaceName)) {
    throw new BadRequestError(
      `"interface-name" is ${describe(request['interface-name'])}; it must name the host-side interface of the endpoint`,
    );
  }
  const bodyId = optionalInteger(request, 'id', 1, 65535) ?? 0;
  const pathId = ref.prefix === 'cilium-local' ? Number(ref.value) : 0;
  if (bodyId !== 0 && pathId !== 0 && bodyId !== pathId) {
    throw new BadRequestError(`"id" is ${bodyId} but the path says ${pathId}; leave one of them out`);
  }
  const containerId =
    optionalString(request, 'container-id') ?? optionalString(request, 'docker-endpoint-id') ?? containerOf(ref);
  const labels = stringList(request.labels, '"labels"');
  return {
    id: bodyId || pathId,
    ifindex: optionalInteger(request, 'interface-index', 1, MAX_IFINDEX),
    interfaceName,
    addresses,
    labels: labels.length === 0 ? undefined : parseLabels(labels),
    mac: macOf(optionalString(request, 'mac'), 'mac'),
    hostMac: macOf(optionalString(request, 'host-mac'), 'host-mac'),
    containerId,
    containerInterface: optionalString(request, 'container-interface-name'),
    pod: podOf(request, ref),
  };
}

/** The address of the family, if one is given: canonical. */
function addressIn(addressing: Readonly<Record<string, unknown>>, family: Family): readonly string[] {
  const key = `ipv${family}`;
  const text = optionalString(addressing, key);
  if (text === undefined) return [];
  if (!isAddressOf(family, text))
    throw new BadRequestError(
      `"addressing.${key}" is ${describe(text)}, not an IPv${family} address such as ${EXAMPLES[family]}`,
    );
  return [formatAddress(parseAddress(text).bytes)];
}

function containerOf(ref: EndpointRef): string | undefined {
  return ref.prefix === 'container-id' || ref.prefix === 'docker-endpoint' ? ref.value : undefined;
}

function podOf(request: Readonly<Record<string, unknown>>, ref: EndpointRef): EndpointChangeRequest['pod'] {
  const fromPath = ref.prefix === 'pod-name' || ref.prefix === 'cep-name' ? ref.value.split('/') : [];
  const namespace = optionalString(request, 'k8s-namespace') ?? fromPath[0];
  const name = optionalString(request, 'k8s-pod-name') ?? fromPath[1];
  const uid = optionalString(request, 'k8s-uid');
  if (namespace === undefined && name === undefined) return undefined;
  if (namespace === undefined || name === undefined) {
    throw new BadRequestError('"k8s-namespace" and "k8s-pod-name" go together: give both or neither');
  }
  return { namespace, name, ...(uid === undefined ? {} : { uid }) };
}

function macOf(text: string | undefined, key: string): string | undefined {
  if (text !== undefined && !MAC.test(text))
    throw new BadRequestError(`"${key}" is ${describe(text)}, not a MAC address such as 02:00:00:00:00:01`);
  return text?.toLowerCase();
}
