import { describe, expect, it } from '@jest/globals';
import { parseBareRules } from './index.ts';
import { allowing, deny, E0, found, ingress, type Json, P0, port, WEB } from './testing/parsed.ts';

describe('ports', () => {
  const ranges = (...fields: unknown[]) => {
    const result = ingress({ toPorts: [{ ports: fields }] });
    expect(result.problems.filter(({ code }) => code !== 'Warning')).toEqual([]);
    const ports = result.rules[0]?.elements[0]?.ports;
    return ports === 'any'
      ? ports
      : ports?.map((one) => ('name' in one ? `${one.protocol} ${one.name}` : `${one.protocol} ${one.from}-${one.to}`));
  };

  it('are ranges of a protocol, sorted, each as it is written', () => {
    expect(ranges({ port: '80', protocol: 'TCP' })).toEqual(['TCP 80-80']);
    expect(ranges({ port: '80', protocol: 'tcp', endPort: 0 })).toEqual(['TCP 80-80']);
    expect(ranges({ port: '80', protocol: 'TCP', endPort: 70 })).toEqual(['TCP 80-80']);
    expect(ranges({ port: '80', protocol: 'TCP', endPort: 90 })).toEqual(['TCP 80-90']);
    expect(ranges({ port: '0', protocol: 'UDP' })).toEqual(['UDP 0-65535']);
    expect(ranges({ port: '0', protocol: 'UDP', endPort: 9 })).toEqual(['UDP 0-9']);
    const any = ['TCP 53-53', 'UDP 53-53', 'SCTP 53-53'];
    for (const protocol of ['ANY', 'any', '', null, undefined]) expect(ranges({ port: '53', protocol })).toEqual(any);
    expect(
      ranges(
        { port: '82', protocol: 'TCP' },
        { port: '80', protocol: 'TCP', endPort: 81 },
        { port: '9', protocol: 'TCP' },
      ),
    ).toEqual(['TCP 9-9', 'TCP 80-81', 'TCP 82-82']);
    expect(ranges()).toEqual([]);
    expect(deny({ toPorts: [{ ports: [] }] }).rules[0]?.elements[0]).toMatchObject({ peers: 'any', ports: [] });
    expect(ingress({ fromEntities: ['all'], toPorts: [] }).rules[0]?.elements[0]?.ports).toBe('any');
  });

  it('have names in lower case, after the numbers, each once', () => {
    expect(ranges({ port: 'HTTP', protocol: 'TCP' })).toEqual(['TCP http']);
    expect(ranges({ port: 'dns' })).toEqual(['TCP dns', 'UDP dns', 'SCTP dns']);
    for (const name of ['0x50', '1e3', 'a', '8080-tcp', 'fifteen-letters'])
      expect(ranges({ port: name, protocol: 'UDP', endPort: 0 })).toEqual([`UDP ${name}`]);
    expect(
      ranges(
        { port: 'web', protocol: 'UDP' },
        { port: 'web', protocol: 'TCP' },
        { port: 'api', protocol: 'tcp' },
        { port: 'Web', protocol: 'TCP' },
        { port: '80', protocol: 'SCTP' },
      ),
    ).toEqual(['SCTP 80-80', 'TCP api', 'TCP web', 'UDP web']);
    const denied = deny({ toPorts: [{ ports: [{ port: 'http', protocol: 'TCP' }] }] });
    expect(found(denied)).toEqual([]);
    expect(denied.rules[0]?.elements[0]).toMatchObject({ peers: 'any', ports: [{ protocol: 'TCP', name: 'http' }] });
    const bare = parseBareRules([{ endpointSelector: WEB, ingress: [{ toPorts: [{ ports: [{ port: 'pg' }] }] }] }]);
    expect(bare.rules[0]?.elements[0]?.ports).toHaveLength(3);
  });

  it.each([
    [{ port: 'pg', protocol: 'TCP', endPort: 90 }, 'endPort'],
    [{ port: 'pg', endPort: 'x' }, 'endPort'],
    [{ port: 80 }, 'port'],
    [{ port: '' }, 'port'],
    [{}, 'port'],
    [{ port: '65536' }, 'port'],
    [{ port: '-1' }, 'port'],
    [{ port: '080' }, 'port'],
    [{ port: '1_000' }, 'port'],
    [{ port: '80-90' }, 'port'],
    [{ port: '80,90' }, 'port'],
    [{ port: 'a--b' }, 'port'],
    [{ port: 'no_name' }, 'port'],
    [{ port: 'sixteen-letters-' }, 'port'],
    [{ port: '80', endPort: '90' }, 'endPort'],
    [{ port: '80', endPort: -1 }, 'endPort'],
    [{ port: '80', endPort: 65536 }, 'endPort'],
    [{ port: '80', endPort: 1.5 }, 'endPort'],
    [{ port: '80', protocol: 'ICMP' }, 'protocol'],
    [{ port: '80', protocol: 'TCPP' }, 'protocol'],
    [{ port: '80', protocol: 6 }, 'protocol'],
    [{ port: '80', endport: 90 }, 'endport'],
  ])('%j is invalid at %s', (fields, member) => {
    expect(found(port(fields))).toEqual([`InvalidSpec ${P0}.${member}`]);
  });

  it.each([
    ['TCPP', 'write TCP, UDP, SCTP or ANY, or without a port IGMP, IPIP, IPV6, GRE, ESP, AH or VRRP'],
    ['ICMPv6', 'write ICMP under icmps'],
    ['1', 'write ICMP under icmps'],
    ['58', 'write ICMP under icmps'],
    ['6', 'write TCP'],
    ['47', 'write GRE'],
  ])('of protocol %s are told what to write', (protocol, hint) => {
    expect(port({ protocol }).problems[0]?.message).toBe(`"${protocol}" is no protocol of ports: ${hint}`);
  });

  it('are at most 40 in an entry', () => {
    const many = (count: number) =>
      found(ingress({ toPorts: [{ ports: Array.from({ length: count }, (_, i) => ({ port: String(i + 1) })) }] }));
    expect(many(40)).toEqual([]);
    expect(many(41)).toEqual([`InvalidSpec ${E0}.toPorts[0].ports`]);
  });

  it('do not stand beside icmps', () => {
    const both = ingress({ toPorts: [{ ports: [{ port: '80' }] }], icmps: [{ fields: [{ type: 8 }] }] });
    expect(found(both)).toContain(`InvalidSpec ${E0}.icmps`);
  });

  it('of a deny take no L7 members', () => {
    const element = (member: string) => ({ toPorts: [{ ports: [{ port: '80' }], [member]: { http: [{}] } }] });
    expect(found(deny(element('rules')))).toEqual(['InvalidSpec spec.ingressDeny[0].toPorts[0].rules']);
    expect(found(deny(element('listener')))).toEqual(['InvalidSpec spec.ingressDeny[0].toPorts[0].listener']);
    expect(found(deny({ authentication: { mode: 'required' } }))).toEqual([
      'InvalidSpec spec.ingressDeny[0].authentication',
    ]);
  });
});

describe('protocols without ports', () => {
  const whole = (json: Json) => port(json).rules[0]?.elements[0]?.ports;

  it.each(['VRRP', 'vrrp', 'IGMP', 'GRE', 'IPIP', 'IPv6', 'ESP', 'AH'])(
    '%s is read with no port, an empty one and "0"',
    (protocol) => {
      const expected = [{ protocol: protocol.toUpperCase(), from: 0, to: 65_535 }];
      for (const ports of [{}, { port: '' }, { port: '0' }, { port: '0', endPort: 0 }])
        expect(whole({ protocol, ...ports })).toEqual(expected);
    },
  );

  it.each([
    [{ protocol: 'vrrp', port: '80' }, 'port'],
    [{ protocol: 'IGMP', port: '00' }, 'port'],
    [{ protocol: 'GRE', port: 'http' }, 'port'],
    [{ protocol: 'GRE', port: 0 }, 'port'],
    [{ protocol: 'ESP', port: '0', endPort: 9 }, 'endPort'],
    [{ protocol: '112' }, 'protocol'],
  ])('%j is invalid at %s', (fields, member) => {
    expect(found(port(fields))).toContain(`InvalidSpec ${P0}.${member}`);
    expect(allowing(port(fields))).toEqual([]);
  });

  it('stand beside others, each once, and are not in ANY', () => {
    const both = ingress({
      toPorts: [{ ports: [{ protocol: 'VRRP' }, { port: '80', protocol: 'TCP' }] }, { ports: [{ protocol: 'vrrp' }] }],
    });
    expect(both.rules[0]?.elements[0]?.ports).toEqual([
      { protocol: 'TCP', from: 80, to: 80 },
      { protocol: 'VRRP', from: 0, to: 65_535 },
    ]);
    expect(port({ port: '0' }).rules[0]?.elements[0]?.ports).toHaveLength(3);
  });
});
