import { describe, expect, it } from '@jest/globals';
import type { CiliumEndpointSlice, CiliumIdentity } from '@weir/kube';
import type { SlicedPod, SliceRow } from '../types.ts';
import { slicedPods, sliceObject } from './objects.ts';
import { writableSlice } from './slice-writes.ts';

const pod = (identity: number, more: Partial<SlicedPod> = {}): SlicedPod => ({
  name: 'p',
  id: 0,
  identity,
  networking: { addressing: [{ ipv4: '10.0.0.1' }], node: '192.0.2.1' },
  uid: 'u-p',
  ...more,
});
const slice = (...endpoints: readonly SlicedPod[]): SliceRow => ({ name: 'ces-a-0', namespace: 'a', endpoints });
const at = (version: string, object: CiliumEndpointSlice): CiliumEndpointSlice => ({
  ...object,
  metadata: { ...object.metadata, resourceVersion: version },
});
const identities = (versions: Readonly<Record<number, string>>) => (id: number) => {
  const resourceVersion = versions[id];
  if (resourceVersion === undefined) return undefined;
  const identity: CiliumIdentity = {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumIdentity',
    metadata: { name: String(id), resourceVersion },
    'security-labels': {},
  };
  return identity;
};
const WRITTEN = at('20', sliceObject(slice(pod(300))));

describe('what of a slice is written', () => {
  it('is all of it when every identity is there', () => {
    const row = slice(pod(301), pod(300, { name: 'q', uid: 'u-q' }));
    expect(writableSlice(row, WRITTEN, identities({ 300: '10', 301: '30' }))).toEqual({ row, waiting: 0 });
  });

  it('a relabelled pod keeps the identity of its slice while its new one is not written', () => {
    const ports = [{ name: 'web', port: 80, protocol: 'TCP' }];
    const { row, waiting } = writableSlice(
      slice(pod(301, { 'named-ports': ports })),
      WRITTEN,
      identities({ 300: '10' }),
    );
    expect(row.endpoints).toEqual([pod(300, { 'named-ports': ports })]);
    expect(waiting).toBe(1);
  });

  it.each<readonly [string, SlicedPod, CiliumEndpointSlice | undefined, Readonly<Record<number, string>>]>([
    ['a pod of a slice that is new', pod(301), undefined, { 300: '10' }],
    ['a pod that is new', pod(301, { name: 'q', uid: 'u-q' }), WRITTEN, { 300: '10' }],
    ['another pod of the name', pod(301, { uid: 'u-next' }), WRITTEN, { 300: '10' }],
    [
      'a pod at an address that it did not have',
      pod(301, { networking: { addressing: [{ ipv4: '10.0.0.1', ipv6: 'fd00::1' }], node: '' } }),
      WRITTEN,
      { 300: '10' },
    ],
    ['a pod whose old identity is gone', pod(301), WRITTEN, {}],
    ['a pod whose old number was written since', pod(301), WRITTEN, { 300: '21' }],
    [
      'a pod of a slice that does not say which pods it is of',
      pod(301),
      at('20', { ...WRITTEN, metadata: { name: 'ces-a-0' } }),
      { 300: '10' },
    ],
  ])('%s is left out until its identity is there', (_, wanted, written, versions) => {
    const other = pod(300, { name: 'o', uid: 'u-o' });
    const { row, waiting } = writableSlice(slice(other, wanted), written, identities(versions));
    expect(row.endpoints.map(({ name }) => name)).toEqual(versions[300] === undefined ? [] : ['o']);
    expect(waiting).toBe(versions[300] === undefined ? 2 : 1);
  });
});

describe('a slice as an object', () => {
  it('says which pods it is of beside the endpoints, and is read back as it was', () => {
    const { uid: _, ...unnamed } = pod(300, { name: 'q' });
    const object = sliceObject(slice(pod(300), unnamed));
    expect(object.endpoints[0]).not.toHaveProperty('uid');
    expect(object.metadata.annotations).toEqual({ 'weir.dev/pod-uids': 'u-p,' });
    expect(slicedPods(object)).toEqual([pod(300), unnamed]);
  });
});
