/** NetworkPolicies: what the server completes and what it refuses. */
import type { Case, Json, JsonObject } from '../types.ts';
import { some } from './objects.ts';

const GROUP = 'networking.k8s.io/v1';

const policy = (name: string, spec: Json): JsonObject => ({
  apiVersion: GROUP,
  kind: 'NetworkPolicy',
  metadata: { name },
  spec,
});

const ports = (...list: Json[]): JsonObject => ({ podSelector: {}, ingress: [{ ports: list }] });
const from = (...list: Json[]): JsonObject => ({ podSelector: {}, ingress: [{ from: list }] });
const to = (...list: Json[]): JsonObject => ({ podSelector: {}, policyTypes: ['Egress'], egress: [{ to: list }] });

const REFUSED: Readonly<Record<string, Json>> = {
  'port 0': ports({ port: 0 }),
  'port too large': ports({ port: 65_536 }),
  'negative port': ports({ port: -1 }),
  'port name too long': ports({ port: 'much-too-long-a-name' }),
  'port name odd': ports({ port: 'No_Name' }),
  'port name empty': ports({ port: '' }),
  'port name a number': ports({ port: '80' }),
  'port name with two dashes': ports({ port: 'a--b' }),
  'endPort with a name': ports({ port: 'http', endPort: 90 }),
  'endPort alone': ports({ endPort: 90 }),
  'endPort below': ports({ port: 90, endPort: 80 }),
  'endPort too large': ports({ port: 90, endPort: 70_000 }),
  protocol: ports({ port: 80, protocol: 'ICMP' }),
  'protocol in lower case': ports({ port: 80, protocol: 'tcp' }),
  'protocol empty': ports({ port: 80, protocol: '' }),
  'an empty peer': from({}),
  'block and selector': from({ ipBlock: { cidr: '10.0.0.0/8' }, podSelector: {} }),
  'block and namespaces': from({ ipBlock: { cidr: '10.0.0.0/8' }, namespaceSelector: {} }),
  'no cidr': from({ ipBlock: {} }),
  'empty cidr': from({ ipBlock: { cidr: '' } }),
  'cidr without mask': from({ ipBlock: { cidr: '10.0.0.1' } }),
  'cidr nonsense': from({ ipBlock: { cidr: 'nonsense' } }),
  'cidr mask': from({ ipBlock: { cidr: '10.0.0.0/33' } }),
  'cidr leading zero': from({ ipBlock: { cidr: '010.0.0.0/8' } }),
  'cidr v6 mask': from({ ipBlock: { cidr: 'fd00::/129' } }),
  'except outside': from({ ipBlock: { cidr: '10.0.0.0/16', except: ['10.1.0.0/24'] } }),
  'except as wide': from({ ipBlock: { cidr: '10.0.0.0/16', except: ['10.0.0.0/16'] } }),
  'except wider': from({ ipBlock: { cidr: '10.0.0.0/16', except: ['10.0.0.0/8'] } }),
  'except nonsense': from({ ipBlock: { cidr: '10.0.0.0/16', except: ['x', '10.0.1.0/24'] } }),
  'except of the other family': from({ ipBlock: { cidr: '10.0.0.0/8', except: ['fd00::/64'] } }),
  'egress: an empty peer': to({}),
  'egress: bad cidr': to({ ipBlock: { cidr: '300.0.0.0/8' } }),
  'egress: port': { podSelector: {}, policyTypes: ['Egress'], egress: [{ ports: [{ port: 0 }] }] },
  'selector key': { podSelector: { matchLabels: { 'bad key': 'x' } } },
  'selector value': { podSelector: { matchLabels: { k: 'bad value!' } } },
  'expression operator': { podSelector: { matchExpressions: [{ key: 'a', operator: 'Like', values: ['x'] }] } },
  'expression without values': { podSelector: { matchExpressions: [{ key: 'a', operator: 'In' }] } },
  'expression with values': { podSelector: { matchExpressions: [{ key: 'a', operator: 'Exists', values: ['x'] }] } },
  'expression without key': { podSelector: { matchExpressions: [{ operator: 'Exists' }] } },
  'expression without operator': { podSelector: { matchExpressions: [{ key: 'a' }] } },
  'expression value': { podSelector: { matchExpressions: [{ key: 'a', operator: 'In', values: ['bad value!'] }] } },
  'peer selector key': from({ podSelector: { matchLabels: { 'bad key': 'x' } } }),
  'peer namespace selector': from({ namespaceSelector: { matchExpressions: [{ key: '', operator: 'Exists' }] } }),
  'policy type': { podSelector: {}, policyTypes: ['Sideways'] },
  'policy types twice': { podSelector: {}, policyTypes: ['Ingress', 'Ingress'] },
  'three policy types': { podSelector: {}, policyTypes: ['Ingress', 'Egress', 'Sideways'] },
  'many mistakes': {
    podSelector: { matchLabels: { 'bad key': 'x' } },
    ingress: [{ ports: [{ port: 0 }, { port: 'X' }], from: [{}, { ipBlock: { cidr: 'x' } }] }],
    policyTypes: ['Odd'],
  },
  'port of another type': ports({ port: true }),
  'cidr of another type': from({ ipBlock: { cidr: 5 } }),
  'ingress no list': { podSelector: {}, ingress: {} },
};

const TAKEN: Readonly<Record<string, Json>> = {
  empty: {},
  nothing: null,
  'select all': { podSelector: {} },
  'deny all': { podSelector: {}, policyTypes: ['Ingress', 'Egress'] },
  'with egress': { podSelector: { matchLabels: { a: 'b' } }, egress: [{}] },
  'no egress rules': { podSelector: {}, egress: [] },
  'ingress and ports': ports(
    { port: 80 },
    { port: 'http', protocol: 'UDP' },
    { protocol: 'SCTP' },
    { port: 1000, endPort: 2000 },
    {},
  ),
  'host bits': from({ ipBlock: { cidr: '10.1.2.3/8' } }),
  'except in block': from({ ipBlock: { cidr: '10.0.0.0/8', except: ['10.1.0.0/16', '10.2.3.4/32'] } }),
  'mapped address': from({ ipBlock: { cidr: '::ffff:10.0.0.0/104' } }),
  'all peers': from(
    { podSelector: {} },
    { namespaceSelector: {} },
    {
      podSelector: { matchLabels: { a: 'b' } },
      namespaceSelector: { matchExpressions: [{ key: 'k', operator: 'NotIn', values: ['v'] }] },
    },
  ),
  'no types': { podSelector: {}, policyTypes: [] },
  'egress type without rules': { podSelector: {}, policyTypes: ['Egress'] },
  'empty lists': { podSelector: {}, ingress: [{ from: [], ports: [] }] },
  'null lists': { podSelector: {}, ingress: null, egress: null },
  'version 6': from({ ipBlock: { cidr: 'fd00::/8', except: ['fd00:1::/32'] } }),
};

export const policies: readonly Case[] = [
  {
    name: 'network policies that are taken',
    run: async (api) => {
      const all = api.at(GROUP, 'networkpolicies');
      for (const [note, spec] of Object.entries(TAKEN)) {
        const name = note.replaceAll(' ', '-');
        await api.post(all, policy(name, spec), {
          note,
          pick: some('spec', 'metadata.generation', 'metadata.managedFields'),
        });
      }
    },
  },
  {
    name: 'network policies that are refused',
    run: async (api) => {
      const all = api.at(GROUP, 'networkpolicies');
      for (const [note, spec] of Object.entries(REFUSED))
        await api.post(all, policy('refused', spec), { note, query: { dryRun: 'All' }, pick: some('spec') });
    },
  },
  {
    name: 'changes of a network policy',
    run: async (api) => {
      const one = api.at(GROUP, 'networkpolicies', 'np');
      const shape = some('spec', 'metadata.generation');
      await api.quiet('POST', api.at(GROUP, 'networkpolicies'), { body: policy('np', from({ podSelector: {} })) });
      await api.patch(one, 'merge', { spec: { podSelector: { matchLabels: { a: 'b' } } } }, { pick: shape });
      await api.patch(one, 'merge', { metadata: { labels: { l: 'x' } } }, { pick: shape });
      await api.patch(one, 'strategic', { spec: { ingress: [{ ports: [{ port: 80 }] }] } }, { pick: shape });
      await api.patch(one, 'json', [{ op: 'add', path: '/spec/ingress/0/ports/-', value: { port: 0 } }]);
      await api.patch(one, 'apply', policy('np', { podSelector: {}, ingress: [{ ports: [{ port: 81 }] }] }), {
        query: { fieldManager: 'gitops', force: 'true' },
        pick: some('spec', 'metadata.managedFields'),
      });
      await api.patch(
        one,
        'merge',
        { spec: { egress: [{ to: [{ ipBlock: { cidr: '10.0.0.0/8' } }] }] } },
        { note: 'egress rules, types stay', pick: shape },
      );
      await api.put(one, policy('np', { podSelector: {} }), { pick: shape });
      await api.patch(`${one}/status`, 'merge', { status: { conditions: [] } });
      await api.post(
        api.at(GROUP, 'networkpolicies'),
        { ...policy('strict', { podSelector: {}, ingres: [] }) },
        { query: { fieldValidation: 'Strict' } },
      );
      await api.post(
        api.at(GROUP, 'networkpolicies'),
        { ...policy('v1beta1', {}), apiVersion: 'networking.k8s.io/v1beta1' },
        { note: 'old version' },
      );
    },
  },
];
