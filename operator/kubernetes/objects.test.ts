import { describe, expect, it } from '@jest/globals';
import type { CiliumEndpointSlice } from '@weir/kube';
import { adoptedSlice } from './objects.ts';

describe('adoptedSlice', () => {
  it('takes addresses of what anybody may have written into a slice, and leaves out what is none', () => {
    const endpoints = [
      { name: 'a', networking: { addressing: [{ ipv4: '10.0.0.1', ipv6: 'FD00:0::1' }, { ipv4: 'nonsense' }, {}] } },
      { name: 'b', networking: {} },
      { name: 'c' },
    ];
    const slice = { metadata: { name: 's' }, namespace: 'ns', endpoints } as unknown as CiliumEndpointSlice;
    expect(adoptedSlice(slice).pods).toEqual([
      { name: 'a', addresses: ['10.0.0.1', 'fd00::1'] },
      { name: 'b', addresses: [] },
      { name: 'c', addresses: [] },
    ]);
  });
});
