/** Of an element that asks for a proxy or for authentication, what cannot be read leaves it its rank: a broader rule does not allow its flows. */
import { expect, it } from '@jest/globals';
import { ingress } from './testing/parsed.ts';

const HTTP = [{ ports: [{ port: '80', protocol: 'TCP' }], rules: { http: [{ method: 'GET' }] } }];
const API = [{ matchLabels: { app: 'api' } }];
const REQUIRED = { mode: 'required' };
const tcp80 = [{ protocol: 'TCP', from: 80, to: 80 }];

it.each([
  ['a misspelt peer', { fromEntites: ['world'], toPorts: HTTP }, 'redirect', tcp80],
  ['two lists of peers', { fromEntities: ['world'], fromCIDR: ['10.0.0.0/8'], toPorts: HTTP }, 'redirect', tcp80],
  ['ports that are no list', { fromEndpoints: API, toPorts: HTTP[0] }, 'redirect', 'any'],
  ['ports in another case', { fromEndpoints: API, ToPorts: HTTP }, 'redirect', 'any'],
  ['a misspelt peer, and authentication', { fromEntites: ['world'], authentication: REQUIRED }, 'authenticate', 'any'],
  ['authentication in another case', { fromEndpoints: API, Authentication: REQUIRED }, 'authenticate', 'any'],
])('%s', (_, element, verdict, ports) => {
  const { rules, problems } = ingress(element);
  expect(problems).toContainEqual(expect.objectContaining({ code: 'InvalidSpec' }));
  expect(rules[0]?.elements).toMatchObject([{ verdict, peers: 'any', ports }]);
});

it.each([
  ['a misspelt peer alone', { fromEntites: ['world'] }],
  ['ports that ask for nothing and are no list', { fromEndpoints: API, toPorts: { ports: [{ port: '80' }] } }],
])('%s allows nothing, and takes nothing from others', (_, element) => {
  expect(ingress(element).rules[0]?.elements).toMatchObject([{ verdict: 'allow', peers: [] }]);
});

it.each([
  [
    'a peer',
    { fromCIDR: ['nonsense', '192.0.2.0/24'], toPorts: HTTP },
    'redirect',
    [{ kind: 'cidr' }, { kind: 'entity', entity: 'world' }],
    tcp80,
  ],
  [
    'a peer, and authentication',
    { fromCIDR: [null], authentication: REQUIRED },
    'authenticate',
    [{ kind: 'entity', entity: 'world' }],
    'any',
  ],
  [
    'a port',
    { fromEndpoints: API, toPorts: [{ ports: [{ port: 'no port', protocol: 'TCP' }], rules: { http: [{}] } }] },
    'redirect',
    [{ kind: 'endpoints' }],
    [{ protocol: 'TCP', from: 0, to: 65_535 }],
  ],
])('%s that cannot be read is asked about at its widest', (_, element, verdict, peers, ports) => {
  const last = ingress(element).rules[0]?.elements.at(-1);
  expect(last).toMatchObject({ verdict, peers, ports });
  expect(last?.dns).toBeUndefined();
});
