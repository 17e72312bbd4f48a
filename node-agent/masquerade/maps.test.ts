import { expect, it } from '@jest/globals';
import { MASQUERADE_MAPS, prefixKey } from './maps.ts';

it.each(['0.0.0.0/0', '10.244.1.0/24', '192.0.2.9/32', '::/0', 'fd00:1::/64', '2001:db8::9/128'])(
  'shows an excluded prefix as it is written: %s',
  (prefix) => {
    const [excluded] = MASQUERADE_MAPS;
    expect(excluded?.describe?.(prefixKey(prefix), Uint8Array.of(0, 0, 0, 0))).toEqual({ key: { prefix }, value: {} });
    expect(excluded?.describe?.(prefixKey(prefix), Uint8Array.of(1, 0, 0, 0)).value).toEqual({ pods: true });
  },
);
