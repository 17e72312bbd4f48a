/** Verdicts of NetworkPolicies by hand, from what the Kubernetes API says that they mean. Oracle and compiled policy must both agree. */
import { describe, expect, it } from '@jest/globals';
import { judgeFlow, parseObjects } from './testing/flows.ts';

type Json = Readonly<Record<string, unknown>>;

const app = (name: string) => ({ podSelector: { matchLabels: { app: name } } });
const inTeam = (team: string) => ({ namespaceSelector: { matchLabels: { team } } });
const block = (cidr: string, ...except: string[]) => ({ ipBlock: { cidr, ...(except.length > 0 ? { except } : {}) } });
const knp = (spec: Json): Json => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: { name: 'p', namespace: 'a' },
  spec,
});
/** For app=web of namespace a. */
const web = (spec: Json) => knp({ ...app('web'), ...spec });
const cnp = (spec: Json): Json => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'c', namespace: 'a' },
  spec: { endpointSelector: { matchLabels: { app: 'web' } }, ...spec },
});
const fromApp = (name: string) => ({ fromEndpoints: [{ matchLabels: { app: name } }] });
const expression = (key: string, operator: string, ...values: string[]) => ({
  matchExpressions: [{ key, operator, ...(values.length > 0 ? { values } : {}) }],
});

const TABLE: readonly (readonly [title: string, objects: readonly Json[], flows: readonly string[]])[] = [
  [
    'a podSelector alone: pods of the own namespace, every port and protocol',
    [web({ ingress: [{ from: [app('api')] }] })],
    [
      'api -> web tcp/80: allow',
      'api -> web udp/9: allow',
      'api -> web icmp/8: allow',
      'db -> web tcp/80: deny',
      'b/api -> web tcp/80: deny',
      'X -> web tcp/80: deny',
      'n1 -> web tcp/80: allow',
      'n2 -> web tcp/80: deny',
      'web -> X tcp/80: allow',
    ],
  ],
  [
    'an empty podSelector: every pod of the own namespace',
    [web({ ingress: [{ from: [{ podSelector: {} }] }] })],
    ['db -> web tcp/80: allow', 'b/cli -> web tcp/80: deny', 'X -> web tcp/80: deny', 'health -> web tcp/80: deny'],
  ],
  [
    'a namespaceSelector alone: every pod of the namespaces',
    [web({ ingress: [{ from: [inTeam('blue')] }] })],
    ['b/cli -> web tcp/80: allow', 'b/api -> web tcp/80: allow', 'api -> web tcp/80: deny', 'dns -> web tcp/80: deny'],
  ],
  [
    'both selectors in one peer: and',
    [web({ ingress: [{ from: [{ ...app('api'), ...inTeam('blue') }] }] })],
    ['b/api -> web tcp/80: allow', 'api -> web tcp/80: deny', 'b/cli -> web tcp/80: deny'],
  ],
  [
    'the selectors in two peers: or',
    [web({ ingress: [{ from: [app('api'), inTeam('blue')] }] })],
    ['b/api -> web tcp/80: allow', 'api -> web tcp/80: allow', 'b/cli -> web tcp/80: allow', 'db -> web tcp/80: deny'],
  ],
  [
    'pods by label in every namespace',
    [web({ ingress: [{ from: [{ ...app('api'), namespaceSelector: {} }] }] })],
    ['api -> web tcp/80: allow', 'b/api -> web tcp/80: allow', 'b/cli -> web tcp/80: deny', 'X -> web tcp/80: deny'],
  ],
  [
    'a namespace by the label of its name',
    [
      web({
        policyTypes: ['Egress'],
        egress: [
          {
            to: [
              {
                namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'kube-system' } },
                podSelector: { matchLabels: { 'k8s-app': 'kube-dns' } },
              },
            ],
            ports: [
              { protocol: 'UDP', port: 53 },
              { protocol: 'TCP', port: 53 },
            ],
          },
        ],
      }),
    ],
    [
      'web -> dns udp/53: allow',
      'web -> dns tcp/53: allow',
      'web -> dns tcp/80: deny',
      'web -> api udp/53: deny',
      'web -> X udp/53: deny',
      'api -> web tcp/80: allow',
    ],
  ],
  [
    'a namespace that is only excluded: pods, never the world',
    [web({ ingress: [{ from: [{ namespaceSelector: expression('team', 'DoesNotExist') }] }] })],
    ['api -> web tcp/80: deny', 'X -> web tcp/80: deny', 'n2 -> web tcp/80: deny', 'unknown -> web tcp/80: deny'],
  ],
  [
    'excluded namespaces and required pods',
    [web({ ingress: [{ from: [{ namespaceSelector: expression('team', 'NotIn', 'red'), ...app('cli') }] }] })],
    ['b/cli -> web tcp/80: allow', 'a/cli -> web tcp/80: deny', 'b/api -> web tcp/80: deny', 'dns -> web tcp/80: deny'],
  ],
  [
    'every namespace: known pods only',
    [web({ ingress: [{ from: [{ namespaceSelector: {} }] }] })],
    ['dns -> web tcp/80: allow', 'unknown -> web tcp/80: deny', 'health -> web tcp/80: deny'],
  ],
  [
    'an empty list of peers: everyone, on the ports',
    [web({ ingress: [{ from: [], ports: [{ port: 80 }] }] })],
    [
      'X -> web tcp/80: allow',
      'n2 -> web tcp/80: allow',
      'b/cli -> web tcp/80: allow',
      'unknown -> web tcp/80: allow',
      'X -> web tcp/81: deny',
      'X -> web udp/80: deny',
    ],
  ],
  [
    'an empty list of ports: every one',
    [web({ ingress: [{ from: [app('api')], ports: [] }] })],
    ['api -> web tcp/80: allow', 'api -> web gre: allow', 'db -> web tcp/80: deny'],
  ],
  [
    'a port without a number: all of its protocol',
    [web({ ingress: [{ ports: [{ protocol: 'SCTP' }] }] })],
    ['X -> web sctp/1: allow', 'X -> web sctp/65535: allow', 'X -> web tcp/1: deny', 'X -> web icmp/8: deny'],
  ],
  [
    'an empty port: all of TCP',
    [web({ ingress: [{ ports: [{}] }] })],
    ['X -> web tcp/1: allow', 'X -> web tcp/65535: allow', 'X -> web udp/1: deny', 'X -> web icmp/8: deny'],
  ],
  [
    'a range of ports',
    [web({ ingress: [{ ports: [{ port: 8080, endPort: 8090 }] }] })],
    [
      'X -> web tcp/8079: deny',
      'X -> web tcp/8080: allow',
      'X -> web tcp/8090: allow',
      'X -> web tcp/8091: deny',
      'X -> web udp/8080: deny',
    ],
  ],
  [
    'a port name on ingress: each pod by its own number',
    [knp({ ...app('db'), ingress: [{ ports: [{ port: 'pg' }] }] })],
    ['X -> db tcp/5432: allow', 'X -> db tcp/6432: deny', 'X -> db2 tcp/6432: allow', 'X -> db2 tcp/5432: deny'],
  ],
  [
    'a port name of another case or protocol is another name',
    [knp({ ...app('db'), ingress: [{ ports: [{ port: 'PG' }, { port: 'pg', protocol: 'UDP' }] }] })],
    ['X -> db tcp/5432: deny', 'X -> db udp/5432: deny', 'X -> db2 tcp/6432: deny'],
  ],
  [
    'a port name on egress: each peer by its number',
    [web({ policyTypes: ['Egress'], egress: [{ to: [app('pool')], ports: [{ port: 'pg' }] }] })],
    [
      'web -> pool tcp/5432: allow',
      'web -> pool2 tcp/6432: allow',
      'web -> pool tcp/6432: deny',
      'web -> db tcp/5432: deny',
      'web -> X tcp/5432: deny',
    ],
  ],
  [
    'a port name on egress without peers: whoever has the name',
    [web({ policyTypes: ['Egress'], egress: [{ ports: [{ port: 'pg' }] }] })],
    [
      'web -> pool tcp/5432: allow',
      'web -> pool2 tcp/6432: allow',
      'web -> api tcp/5432: deny',
      'web -> X tcp/5432: deny',
    ],
  ],
  [
    'an IP block with an exception',
    [web({ ingress: [{ from: [block('10.0.0.0/8', '10.1.0.0/16')] }] })],
    ['Z -> web tcp/80: allow', 'Y -> web tcp/80: deny', 'X -> web tcp/80: deny', 'api -> web tcp/80: allow'],
  ],
  [
    'an exception is not a deny: another peer may allow it',
    [web({ ingress: [{ from: [block('10.0.0.0/8', '10.1.0.0/16'), block('10.1.2.0/24')] }] })],
    ['Y -> web tcp/80: allow', 'Y2 -> web tcp/80: deny', 'Z -> web tcp/80: allow'],
  ],
  [
    'an IP block selects whoever has an address in it, of one family only',
    [web({ ingress: [{ from: [block('0.0.0.0/0')] }] })],
    ['X -> web tcp/80: allow', 'W -> web tcp/80: deny', 'api -> web tcp/80: allow', 'n2 -> web tcp/80: allow'],
  ],
  [
    'an exception of an IP block leaves pods out, as addresses',
    [web({ policyTypes: ['Egress'], egress: [{ to: [block('10.0.0.0/8', '10.244.0.0/16')] }] })],
    ['web -> Y tcp/80: allow', 'web -> api tcp/80: deny', 'web -> b/cli tcp/80: deny'],
  ],
  [
    'a Cilium deny beats what an IP block allows, a CIDR of a Cilium policy selects no pods',
    [
      web({ ingress: [{ from: [block('0.0.0.0/0')] }] }),
      cnp({ ingressDeny: [fromApp('api'), { fromCIDR: ['10.0.0.0/8'] }] }),
    ],
    ['api -> web tcp/80: deny', 'db -> web tcp/80: allow', 'Y -> web tcp/80: deny', 'X -> web tcp/80: allow'],
  ],
  [
    'an IP block on egress',
    [web({ policyTypes: ['Egress'], egress: [{ to: [block('10.0.0.0/8')], ports: [{ port: 443 }] }] })],
    [
      'web -> Y tcp/443: allow',
      'web -> Y tcp/80: deny',
      'web -> X tcp/443: deny',
      'web -> api tcp/443: allow',
      'web -> api tcp/80: deny',
    ],
  ],
  [
    'policyTypes left out, with egress rules: both directions',
    [web({ egress: [{ to: [app('api')] }] })],
    ['web -> api tcp/80: allow', 'web -> db tcp/80: deny', 'api -> web tcp/80: deny'],
  ],
  [
    'policyTypes left out, without rules: ingress only',
    [web({})],
    ['api -> web tcp/80: deny', 'n1 -> web tcp/80: allow', 'web -> X tcp/80: allow'],
  ],
  [
    'policyTypes left out, with an empty egress: ingress only',
    [web({ egress: [] })],
    ['api -> web tcp/80: deny', 'web -> X tcp/80: allow'],
  ],
  [
    'both types, rules for one: the other is denied',
    [web({ policyTypes: ['Ingress', 'Egress'], ingress: [{ from: [app('api')] }] })],
    ['api -> web tcp/80: allow', 'web -> api tcp/80: deny', 'web -> n1 tcp/80: deny'],
  ],
  [
    'Egress alone leaves ingress open',
    [web({ policyTypes: ['Egress'], egress: [{}] })],
    ['web -> X icmp/8: allow', 'X -> web tcp/80: allow'],
  ],
  [
    'an empty subject: every pod of the namespace, none of another',
    [knp({ podSelector: {}, policyTypes: ['Ingress'] })],
    ['api -> db tcp/80: deny', 'X -> h tcp/80: deny', 'X -> b/cli tcp/80: allow'],
  ],
  [
    'a subject by expressions',
    [knp({ podSelector: expression('app', 'NotIn', 'web', 'api') })],
    ['X -> web tcp/80: allow', 'X -> api tcp/80: allow', 'X -> db tcp/80: deny', 'X -> b/cli tcp/80: allow'],
  ],
  [
    'a subject by a label that exists',
    [knp({ podSelector: expression('host', 'Exists') }), knp({ podSelector: expression('no', 'Exists') })],
    ['X -> h tcp/80: deny', 'X -> pool tcp/80: deny', 'X -> web tcp/80: allow'],
  ],
  [
    'two policies of one pod add up',
    [web({ ingress: [{ from: [app('api')] }] }), web({ ingress: [{ from: [app('db')], ports: [{ port: 80 }] }] })],
    ['api -> web tcp/81: allow', 'db -> web tcp/80: allow', 'db -> web tcp/81: deny', 'a/cli -> web tcp/80: deny'],
  ],
  [
    'both ends must allow',
    [
      web({ policyTypes: ['Egress'], egress: [{ to: [app('db')], ports: [{ port: 5432 }] }] }),
      knp({ ...app('db'), ingress: [{ from: [app('api')] }] }),
    ],
    ['web -> db tcp/5432: deny ingress', 'web -> db tcp/80: deny egress', 'api -> db tcp/5432: allow'],
  ],
  [
    'a Cilium policy adds to what a NetworkPolicy allows',
    [web({ ingress: [{ from: [app('api')] }] }), cnp({ ingress: [fromApp('db')] })],
    ['api -> web tcp/80: allow', 'db -> web tcp/80: allow', 'a/cli -> web tcp/80: deny'],
  ],
  [
    'a Cilium deny beats what a NetworkPolicy allows',
    [web({ ingress: [{}] }), cnp({ ingressDeny: [fromApp('api')] })],
    ['api -> web tcp/80: deny', 'db -> web tcp/80: allow', 'X -> web tcp/80: allow'],
  ],
  [
    'a Cilium policy that denies nothing by default leaves the default deny of a NetworkPolicy',
    [web({}), cnp({ ingress: [fromApp('api')], enableDefaultDeny: { ingress: false } })],
    ['api -> web tcp/80: allow', 'db -> web tcp/80: deny'],
  ],
];

describe('NetworkPolicy', () => {
  it.each(TABLE)('%s', (_, objects, flows) => {
    const { rules, problems } = parseObjects(objects);
    expect(problems).toEqual([]);
    for (const flow of flows) {
      const { expected, oracle, compiled } = judgeFlow(rules, flow, {});
      expect({ flow, oracle, compiled }).toEqual({ flow, oracle: expected, compiled: expected });
    }
  });
});
