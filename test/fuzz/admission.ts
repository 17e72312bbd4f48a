/**
 * What the API server refuses of a tenant's pods, by the chart's templates/pod-admission.yaml (Kubernetes 1.30): only the kubelet of a pod's node
 * says its addresses. So whatever else the tenant writes of them, pods have those that their node gave them.
 *
 * A status whose shape is wrong stays as it is: programs are to bear it, though no API server takes it.
 */
import { type Body, NODE_ADDRESSES, nodeIndexOf } from './story.ts';

/** The first host number that nodes give to hostile pods: honest ones have smaller ones. */
const FIRST_HOST = 100;

interface Addresses {
  readonly podIP?: string;
  readonly hostIP?: string;
}

/** The body with the addresses that its node gave to the pod, none where no node has it. `name` ends with the pod's number. */
export function withOwnAddresses(body: Body, name: string): Body {
  const { spec, status } = body;
  if (!isObject(status)) return body;
  const { podIP, hostIP } = given(isObject(spec) ? spec : {}, name);
  return {
    ...body,
    status: {
      ...status,
      ...one(status, 'podIP', podIP),
      ...one(status, 'hostIP', hostIP),
      ...list(status, 'podIPs', podIP),
      ...list(status, 'hostIPs', hostIP),
    },
  };
}

function given({ nodeName, hostNetwork }: Body, name: string): Addresses {
  const index = nodeIndexOf(nodeName);
  if (index === undefined) return {};
  const hostIP = NODE_ADDRESSES[nodeName as keyof typeof NODE_ADDRESSES];
  const host = FIRST_HOST + Number(/\d+$/.exec(name)?.[0] ?? 0);
  return { hostIP, podIP: hostNetwork === true ? hostIP : `10.0.${index}.${host}` };
}

function one(status: Body, field: string, address: string | undefined): Body {
  return typeof status[field] === 'string' ? { [field]: address } : {};
}

function list(status: Body, field: string, address: string | undefined): Body {
  const held = status[field];
  if (!Array.isArray(held)) return {};
  return { [field]: held.map((each: unknown) => (isObject(each) ? { ...each, ...one(each, 'ip', address) } : each)) };
}

function isObject(value: unknown): value is Body {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
