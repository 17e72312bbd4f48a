import { describe, expect, it } from '@jest/globals';
import { DEFAULT_CONFIG, excludedBy, parseConfig } from './config.ts';

const parse = (text: string) => parseConfig('/etc/config/masq', text);

describe('the configuration of ip-masq-agent', () => {
  it('is read as YAML and JSON, with defaults', () => {
    expect(parse('')).toEqual(DEFAULT_CONFIG);
    expect(parse('{"nonMasqueradeCIDRs": ["100.64.0.0/10"], "masqLinkLocal": true}')).toEqual({
      nonMasqueradeCidrs: ['100.64.0.0/10'],
      linkLocal: true,
      linkLocalIpv6: false,
    });
    expect(parse('nonMasqueradeCIDRs: [FD00::/8]\nmasqLinkLocalIPv6: true\nresyncInterval: 1m30s\n')).toEqual({
      nonMasqueradeCidrs: ['fd00::/8'],
      linkLocal: false,
      linkLocalIpv6: true,
    });
  });

  it('excludes private networks and what is on the link, unless it says otherwise', () => {
    expect([...excludedBy(DEFAULT_CONFIG)]).toEqual(
      expect.arrayContaining(['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '169.254.0.0/16', 'fe80::/10']),
    );
    const open = excludedBy(parse('nonMasqueradeCIDRs: []\nmasqLinkLocal: true\nmasqLinkLocalIPv6: true'));
    expect([...open].filter((prefix) => /^(10|169|fe80)/.test(prefix))).toEqual([]);
  });

  it.each([
    ['[1]', 'has [1] where keys are expected'],
    ['a: [', 'is neither YAML nor JSON'],
    ['nonMasqueradeCidrs: []', 'has the unknown key "nonMasqueradeCidrs": the keys are nonMasqueradeCIDRs'],
    ['nonMasqueradeCIDRs: 10.0.0.0/8', 'has "10.0.0.0/8" at nonMasqueradeCIDRs: write a list of CIDRs'],
    ['nonMasqueradeCIDRs: [10.0.0.0/8, 7]', 'has 7 at nonMasqueradeCIDRs[1]: write a CIDR such as'],
    ['nonMasqueradeCIDRs: [10.1.0.0/8]', 'has "10.1.0.0/8" at nonMasqueradeCIDRs[0]: write the network, 10.0.0.0/8'],
    ['nonMasqueradeCIDRs: [10.0.0.0]', 'has "10.0.0.0" at nonMasqueradeCIDRs[0]: '],
    ['masqLinkLocal: "yes"', 'has "yes" at masqLinkLocal: write true or false'],
    ['resyncInterval: 60', 'has 60 at resyncInterval: write a duration such as 60s'],
  ])('says of %j what is wrong with it, and where', (text, problem) => {
    expect(() => parse(text)).toThrow(`the masquerade configuration /etc/config/masq ${problem}`);
  });
});
