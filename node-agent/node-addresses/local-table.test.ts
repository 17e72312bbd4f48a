import { expect, it } from '@jest/globals';
import { localAddressesIn, reachable } from './local-table.ts';

const route = (type: string, dst: string, dev = 'eth0'): object => ({ type, dst, dev, protocol: 'kernel', flags: [] });
const read = (...routes: readonly object[]): Record<string, string> =>
  Object.fromEntries(
    localAddressesIn(JSON.stringify(routes)).map(({ prefix, kind, device }) => [prefix, `${kind} ${device}`]),
  );

it('the addresses of all interfaces, with broadcast and anycast of their networks', () => {
  expect(
    read(
      route('local', '192.0.2.1'),
      route('local', '192.0.2.2'),
      route('broadcast', '192.0.2.255'),
      route('local', '172.17.0.1', 'docker0'),
      route('local', '2001:db8::1'),
      route('anycast', '2001:db8::'),
      route('local', '198.51.100.0/24', 'lo'),
    ),
  ).toEqual({
    '192.0.2.1/32': 'local eth0',
    '192.0.2.2/32': 'local eth0',
    '192.0.2.255/32': 'broadcast eth0',
    '172.17.0.1/32': 'local docker0',
    '2001:db8::1/128': 'local eth0',
    '2001:db8::/128': 'anycast eth0',
    '198.51.100.0/24': 'local lo',
  });
  expect(localAddressesIn(JSON.stringify([route('local', '192.0.2.1')]))).toMatchObject([{ identity: 1 }]);
});

it('leaves out loopback, IPv6 addresses of links, multicast, everything, and what kube-proxy keeps of Services', () => {
  expect(
    read(
      route('local', '127.0.0.0/8', 'lo'),
      route('local', '127.0.0.53', 'lo'),
      route('broadcast', '127.255.255.255', 'lo'),
      route('local', '::1', 'lo'),
      route('local', 'fe80::1'),
      route('anycast', 'fe80::'),
      route('multicast', 'ff00::/8'),
      route('local', 'default', 'lo'),
      route('local', '0.0.0.0/0', 'lo'),
      route('local', '10.96.0.1', 'kube-ipvs0'),
      route('unicast', '10.0.0.0/8'),
    ),
  ).toEqual({});
  expect(localAddressesIn('')).toEqual([]);
  expect(localAddressesIn('[{}]')).toEqual([]);
});

it('an address of two interfaces is one, and one that is both broadcast and local is local', () => {
  expect(read(route('broadcast', '192.0.2.1'), route('local', '192.0.2.1', 'eth1'))).toEqual({
    '192.0.2.1/32': 'local eth1',
  });
  expect(read(route('local', '192.0.2.1', 'eth1'), route('broadcast', '192.0.2.1'))).toEqual({
    '192.0.2.1/32': 'local eth1',
  });
});

it('others can reach single addresses that are routed', () => {
  const rows = localAddressesIn(
    JSON.stringify([
      route('local', '192.0.2.1'),
      route('broadcast', '192.0.2.255'),
      route('local', '169.254.20.10'),
      route('local', '198.51.100.0/24', 'lo'),
      route('local', '2001:db8::1'),
      route('anycast', '2001:db8::'),
    ]),
  );
  expect(reachable(rows, new Set(['192.0.2.1']))).toEqual(['192.0.2.1', '2001:db8::1']);
});

it('so can they broadcast and anycast addresses of networks that the node alone is known to be on', () => {
  const rows = localAddressesIn(
    JSON.stringify([
      route('local', '192.0.2.1'),
      route('broadcast', '192.0.2.255'),
      route('local', '172.17.0.1', 'docker0'),
      route('broadcast', '172.17.255.255', 'docker0'),
      route('anycast', '2001:db8:77::', 'docker0'),
      route('broadcast', '169.254.255.255', 'docker0'),
    ]),
  );
  const others = ['172.17.0.1', '172.17.255.255', '2001:db8:77::'];
  expect(reachable(rows, new Set(['192.0.2.1']))).toEqual(['192.0.2.1', ...others]);
});
