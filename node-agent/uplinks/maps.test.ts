import { expect, it } from '@jest/globals';
import { uplinkEntry, uplinkMap } from './maps.ts';

it.each([{ ipv4: '192.0.2.10' }, { ipv6: 'fd00:2::10' }, { ipv4: '192.0.2.10', ipv6: 'fd00:2::10' }])(
  'shows of an uplink the addresses that it has: %j',
  (addresses) => {
    const entry = uplinkEntry({ ifindex: 7, name: 'eth0', ...addresses });
    expect(uplinkMap('m').describe?.(...entry)).toEqual({ key: { ifindex: 7 }, value: addresses });
  },
);
