import { expect, it } from '@jest/globals';
import { uplinksOf } from './interfaces.ts';

const link = (ifindex: number, link_type: string, ...addr_info: readonly object[]): object => ({
  ifindex,
  ifname: `if${ifindex}`,
  link_type,
  addr_info,
});
const inet = (local: string, more: object = {}): object => ({ family: 'inet', local, scope: 'global', ...more });
const inet6 = (local: string, more: object = {}): object => ({ family: 'inet6', local, scope: 'global', ...more });

it('are those with Ethernet and an address, but for pods’', () => {
  const printed = JSON.stringify([
    link(1, 'loopback', inet('192.0.2.9')),
    link(2, 'ether', inet('192.0.2.1'), inet6('2001:db8::1')),
    link(3, 'ether', inet('192.0.2.2')),
    link(4, 'ether'),
    link(5, 'ether', inet6('fe80::1', { scope: 'link' })),
    link(6, 'none', inet('192.0.2.3')),
  ]);
  expect(uplinksOf(printed, (ifindex) => ifindex === 3, [])).toEqual([
    { ifindex: 2, name: 'if2', ipv4: '192.0.2.1', ipv6: '2001:db8::1' },
  ]);
  expect(uplinksOf('', () => false, [])).toEqual([]);
});

it('have the node’s own address, or their first that lasts', () => {
  const printed = JSON.stringify([
    link(
      2,
      'ether',
      inet('192.0.2.1', { secondary: true }),
      inet('192.0.2.2'),
      inet('192.0.2.3'),
      inet6('2001:db8::1', { temporary: true }),
      inet6('2001:db8::2', { deprecated: true }),
      inet6('2001:db8::3', { tentative: true }),
      inet6('2001:db8::4'),
    ),
  ]);
  const of = (...preferred: readonly string[]) => uplinksOf(printed, () => false, preferred)[0];
  expect(of()).toMatchObject({ ipv4: '192.0.2.2', ipv6: '2001:db8::4' });
  expect(of('192.0.2.3', 'name')).toMatchObject({ ipv4: '192.0.2.3', ipv6: '2001:db8::4' });
});
