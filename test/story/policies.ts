/** The policies of the story, as a user would write them. */

const cnp = (name: string, spec: string): string => `apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata:
  name: ${name}
spec:
${spec
  .trim()
  .split('\n')
  .map((line) => `  ${line}`)
  .join('\n')}
`;

export const policy = {
  l3: cnp(
    'l3-rule',
    `
endpointSelector:
  matchLabels:
    id: app1
ingress:
- fromEndpoints:
  - matchLabels:
      id: app2`,
  ),

  l3l4: cnp(
    'l3-rule',
    `
endpointSelector:
  matchLabels:
    id: app1
ingress:
- fromEndpoints:
  - matchLabels:
      id: app2
  toPorts:
  - ports:
    - port: "80"
      protocol: TCP`,
  ),

  /** The policy of Cilium's Docker getting-started demo, in its old form. */
  bareRules: JSON.stringify([
    {
      labels: [{ key: 'name', value: 'l3-rule' }],
      endpointSelector: { matchLabels: { id: 'app1' } },
      ingress: [
        { fromEndpoints: [{ matchLabels: { id: 'app2' } }], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }] },
      ],
    },
  ]),

  /** app3 sends to app2 alone. */
  toApp2: cnp(
    'to-app2',
    `
endpointSelector:
  matchLabels:
    id: app3
egress:
- toEndpoints:
  - matchLabels:
      id: app2`,
  ),

  /** app1 accepts from app3 always; from app2 and from outside as told. */
  traffic: ({ app2, outside }: { readonly app2: boolean; readonly outside: boolean }): string =>
    cnp(
      'traffic',
      `
endpointSelector:
  matchLabels:
    id: app1
ingress:
- fromEndpoints:
  - matchLabels:
      id: app3${
        app2
          ? `
  - matchLabels:
      id: app2`
          : ''
      }${
        outside
          ? `
- fromEntities:
  - world
  toPorts:
  - ports:
    - port: "80"
      protocol: TCP`
          : ''
      }`,
    ),

  deny: cnp(
    'no-app3',
    `
endpointSelector:
  matchLabels:
    id: app1
ingress:
- fromEntities:
  - all
ingressDeny:
- fromEndpoints:
  - matchLabels:
      id: app3`,
  ),

  cidr: cnp(
    'only-ten',
    `
endpointSelector:
  matchLabels:
    id: app3
egress:
- toCIDRSet:
  - cidr: 10.0.0.0/8
    except:
    - 10.1.0.0/16`,
  ),

  names: cnp(
    'by-name',
    `
endpointSelector:
  matchLabels:
    id: app3
egress:
- toEndpoints:
  - matchLabels:
      id: app2
  toPorts:
  - ports:
    - {port: "53", protocol: ANY}
    rules:
      dns:
      - matchPattern: "*.example.com"
- toFQDNs:
  - matchName: api.example.com
  toPorts:
  - ports:
    - {port: "80", protocol: TCP}`,
  ),

  denyAll: cnp(
    'deny-all',
    `
endpointSelector: {}
ingress:
- {}
egress:
- {}`,
  ),

  world: cnp(
    'world-in',
    `
endpointSelector:
  matchLabels:
    id: app1
ingress:
- fromEntities:
  - world`,
  ),

  host: cnp(
    'host-out',
    `
endpointSelector:
  matchLabels:
    id: app2
egress:
- toEntities:
  - host`,
  ),

  cluster: cnp(
    'cluster',
    `
endpointSelector: {}
ingress:
- fromEntities:
  - cluster
egress:
- toEntities:
  - cluster`,
  ),

  broken: cnp(
    'deny-all',
    `
endpointSelector: {}
ingress:
- fromCIDRs:
  - 10.0.0.0/8
egress:
- {}`,
  ),
};
