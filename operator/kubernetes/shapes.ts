/** Whether objects that the operator writes are as it writes them. Others may write them, too, and are then taken for nothing. */
import {
  type CiliumEndpointSlice,
  type CiliumIdentity,
  objectsIn,
  type PeerSet,
  POD_UIDS_ANNOTATION,
  type ResolvedPolicyObject,
  textMapOf,
} from '@weir/kube';
import { isLabelSelector } from '@weir/labels';
import { shapeProblem } from '@weir/policy';

export const readable = {
  identity: (object: Partial<CiliumIdentity>): boolean => {
    const labels = object['security-labels'];
    return isMap(labels) && Object.keys(textMapOf(labels)).length === Object.keys(labels).length;
  },
  peerSet: ({ spec }: { readonly spec?: Partial<PeerSet['spec']> }): boolean => {
    const { hash, selector, identities, slice, slices } = isMap(spec) ? spec : {};
    const numbers = [slice, slices].every(Number.isInteger);
    return typeof hash === 'string' && isLabelSelector(selector) && Array.isArray(identities) && numbers;
  },
  resolved: ({ spec }: { readonly spec?: Partial<ResolvedPolicyObject['spec']> }): boolean => {
    const { source, rules } = isMap(spec) ? spec : {};
    return isSource(source) && Array.isArray(rules) && rules.every((rule) => shapeProblem(rule) === undefined);
  },
  slice: ({ metadata, namespace, endpoints = [] }: Partial<CiliumEndpointSlice>): boolean =>
    typeof namespace === 'string' &&
    typeof (metadata?.annotations?.[POD_UIDS_ANNOTATION] ?? '') === 'string' &&
    Array.isArray(endpoints) &&
    objectsIn(endpoints).filter(({ name }) => typeof name === 'string').length === endpoints.length &&
    endpoints.every(
      ({ networking }) =>
        isMap(networking) && Array.isArray(networking.addressing) && networking.addressing.every(isMap),
    ),
} as const;

function isSource(source: Partial<ResolvedPolicyObject['spec']['source']> | undefined): boolean {
  const { kind, namespace = '', name, uid, generation } = isMap(source) ? source : {};
  return [kind, namespace, name, uid].every((text) => typeof text === 'string') && Number.isInteger(generation);
}

function isMap<T>(value: T): value is T & object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
