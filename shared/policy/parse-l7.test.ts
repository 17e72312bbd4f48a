/** What asks for a proxy is read whole, though nothing does it yet: what is wrong with it is said now. */
import { describe, expect, it } from '@jest/globals';
import { parsePolicy } from './index.ts';
import { allowing, cnp, egress, found, ingress, type Json, WEB } from './testing/parsed.ts';

const P = 'spec.egress[0].toPorts[0]';
const tcp = [{ port: '80', protocol: 'TCP' }];
const item = (fields: Json, ports: unknown = tcp) => egress({ toEntities: ['world'], toPorts: [{ ports, ...fields }] });
const invalid = (result: ReturnType<typeof item>) =>
  result.problems.filter(({ code }) => code === 'InvalidSpec').map(({ path }) => path);
const verdicts = ({ rules }: ReturnType<typeof item>) =>
  rules.flatMap(({ elements }) => elements.map(({ verdict }) => verdict));

describe('what asks for a proxy', () => {
  it.each<Json>([
    { rules: { http: [{}] } },
    { rules: { http: [{ method: 'GET|HEAD', path: '/[[:alpha:]]+', host: 'x', headers: ['X: y'] }] } },
    { rules: { http: [{ headerMatches: [{ name: 'X', value: 'y', mismatch: 'LOG', secret: { name: 's' } }] }] } },
    { rules: { l7proto: 'x', l7: [{ any: 'thing' }] } },
    { serverNames: ['x.org', '*.x.org', '**.x.org'] },
    { terminatingTLS: { secret: { namespace: 'a', name: 'b' }, trustedCA: 'ca.crt' } },
    { listener: { envoyConfig: { kind: 'CiliumEnvoyConfig', name: 'x' }, name: 'y', priority: 100 } },
    { serverNames: ['x.org'], terminatingTLS: { secret: { name: 'b' } }, rules: { http: [{}] } },
  ])('is read: %j', (fields) => {
    const result = item(fields);
    expect(invalid(result)).toEqual([]);
    expect([verdicts(result), allowing(result)]).toEqual([['redirect'], []]);
  });

  it.each<[Json, string, unknown?]>([
    [{ rules: 'http' }, 'rules'],
    [{ rules: { http: [{}], dns: [{ matchPattern: '*' }] } }, 'rules'],
    [{ rules: { l7: [{}] } }, 'rules.l7'],
    [{ rules: { l7proto: [] } }, 'rules.l7proto'],
    [{ rules: { http: '' } }, 'rules.http'],
    [{ rules: { http: [{ methd: 'GET' }] } }, 'rules.http[0].methd'],
    [{ rules: { http: [5] } }, 'rules.http[0]'],
    [{ rules: { http: [{ path: '/(' }] } }, 'rules.http[0].path'],
    [{ rules: { http: [{ host: '[' }] } }, 'rules.http[0].host'],
    [{ rules: { http: [{ headerMatches: [{ value: 'y' }] }] } }, 'rules.http[0].headerMatches[0].name'],
    [
      { rules: { http: [{ headerMatches: [{ name: 'X', mismatch: 'log' }] }] } },
      'rules.http[0].headerMatches[0].mismatch',
    ],
    [{ rules: { http: [{}] } }, 'ports', [{ port: '80' }]],
    [{ rules: { http: [{}] } }, 'ports', [{ port: '0', protocol: 'TCP' }]],
    [{ rules: { http: [{}] } }, 'ports', []],
    [{ rules: { dns: [{ matchNme: 'x' }] } }, 'rules.dns[0].matchNme', [{ port: '53' }]],
    [{ rules: { dns: [{ matchName: 'x', matchPattern: '*' }] } }, 'rules.dns[0]', [{ port: '53' }]],
    [{ rules: { dns: [{ matchPattern: '*' }] } }, 'ports', [{ port: '53', endPort: 54 }]],
    [{ rules: { dns: [{ matchPattern: '*' }] } }, 'ports', [{ port: '53', protocol: 'SCTP' }]],
    [{ serverNames: [''] }, 'serverNames[0]'],
    [{ serverNames: ['a.*.org'] }, 'serverNames[0]'],
    [{ serverNames: ['x.org'], rules: { http: [{}] } }, 'serverNames'],
    [{ terminatingTLS: {} }, 'terminatingTLS.secret'],
    [{ originatingTLS: { secret: { name: 'x' }, key: 'x' } }, 'originatingTLS.key'],
    [{ listener: { name: 'x' } }, 'listener.envoyConfig'],
    [{ listener: { name: 'x', envoyConfig: { kind: 'EnvoyConfig', name: 'y' } } }, 'listener.envoyConfig.kind'],
    [{ listener: { name: 'x', envoyConfig: { name: 'y' }, priority: 101 } }, 'listener.priority'],
  ])('and is wrong: %j at %s', (fields, path, ports = tcp) => {
    const result = item(fields, ports);
    expect(invalid(result)).toContain(`${P}.${path}`);
    expect(allowing(result)).toEqual([]);
  });

  it.each<[string, Json, string]>([
    [
      'TCP',
      {},
      'rules.http beside a port without protocol or of protocol ANY, which is more than TCP: write protocol TCP',
    ],
    [
      'TCP',
      { protocol: 'ANY' },
      'rules.http beside a port without protocol or of protocol ANY, which is more than TCP: write protocol TCP',
    ],
    ['TCP', { protocol: 'UDP' }, 'rules.http beside protocol UDP: write protocol TCP'],
  ])('takes %s alone, and speaks of the protocol that is written: %j', (_, protocol, message) => {
    const { problems } = item({ rules: { http: [{}] } }, [{ port: '80', ...protocol }]);
    expect(problems.map((each) => each.message)).toContain(`${message} with each port`);
  });

  it('speaks of broader rules alone, as a plain allow of the same peer and port lets the flows pass', () => {
    const [problem] = item({ rules: { http: [{}] } }).problems;
    expect(problem?.message).toMatch(/are denied, also where a broader rule allows them$/);
  });

  it('asks for nothing by names that nobody knows, and allows nothing by them', () => {
    const result = item({ rules: { htp: [] } });
    expect(found(result)).toEqual([`InvalidSpec ${P}.rules.htp`]);
    expect([verdicts(result), allowing(result)]).toEqual([['allow'], []]);
  });

  it('takes flags and named groups in regular expressions, as Cilium does', () => {
    const http = [{ path: '(?i)/a[[:alpha:]]+', method: '(?i:get|post)', host: '(?P<name>a)\\.(?:b|c)' }];
    expect(invalid(item({ rules: { http } }))).toEqual([]);
    for (const path of ['(?i', '(?i)(', '(?P<a', '(?x)'])
      expect(invalid(item({ rules: { http: [{ path }] } }))).toEqual([`${P}.rules.http[0].path`]);
  });

  it('asks for nothing by empty lists', () => {
    const result = item({ rules: { http: [] }, serverNames: [] });
    expect([found(result), allowing(result)]).toEqual([[], result.rules[0]?.elements]);
  });

  it('stands where it may: DNS rules and listeners under egress, a CiliumEnvoyConfig in a namespace', () => {
    const dns = { toPorts: [{ ports: [{ port: '53' }], rules: { dns: [{ matchPattern: '*' }] } }] };
    expect(invalid(egress(dns))).toEqual([]);
    expect(found(ingress(dns))).toEqual(['InvalidSpec spec.ingress[0].toPorts[0].rules.dns']);
    const listener = { envoyConfig: { kind: 'CiliumEnvoyConfig', name: 'x' }, name: 'y' };
    expect(invalid(ingress({ toPorts: [{ ports: tcp, listener }] }))).toEqual(['spec.ingress[0].toPorts[0].listener']);
    expect(invalid(item({ listener, rules: { http: [{}] } }))).toEqual([`${P}.listener`]);
    const spec = { endpointSelector: WEB, egress: [{ toPorts: [{ ports: tcp, listener }] }] };
    expect(invalid(cnp(spec))).toEqual([]);
    expect(invalid(parsePolicy({ metadata: { name: 'p' }, spec }, 'CiliumClusterwideNetworkPolicy'))).toEqual([
      `${P}.listener.envoyConfig.kind`,
    ]);
  });
});

describe('peers that are not supported', () => {
  it.each<[Json, string]>([
    [{ toFQDNs: [{ matchNme: 'x' }] }, 'toFQDNs[0].matchNme'],
    [{ toFQDNs: [{}] }, 'toFQDNs[0]'],
    [{ toFQDNs: [{ matchName: 'a b' }] }, 'toFQDNs[0].matchName'],
    [{ toFQDNs: [{ matchPattern: 'x'.repeat(256) }] }, 'toFQDNs[0].matchPattern'],
    [{ toNodes: [{ matchLabel: {} }] }, 'toNodes[0].matchLabel'],
    [{ toNodes: [null] }, 'toNodes[0]'],
    [{ toGroups: [{ aws: { region: 'x', zone: 'y' } }] }, 'toGroups[0].aws.zone'],
  ])('are read: %j', (element, path) => {
    const result = egress(element);
    expect(invalid(result)).toContain(`spec.egress[0].${path}`);
    expect(allowing(result)).toEqual([]);
  });
});
