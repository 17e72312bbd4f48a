/**
 * The rule language of CNP and CCNP as a structural schema. It types and explains every field, and keeps what it does not
 * know: a pruned field could widen a policy silently (a misspelt peer would become "any peer"), so the operator must see
 * it and say so. For the same reason there are no patterns, enums or required fields here.
 */
import { fields, flag, list, map, open, type Schema, text, whole } from './schema.ts';

const selector = (description: string): Schema =>
  open(
    {
      matchLabels: map(
        text(),
        'Labels that must all be there with exactly this value. A key may carry its source: k8s:app.',
      ),
      matchExpressions: list(
        open({
          key: text('Label key, with or without a source.'),
          operator: text('In, NotIn, Exists or DoesNotExist.'),
          values: list(text(), 'Values for In and NotIn; must be absent for Exists and DoesNotExist.'),
        }),
        'Requirements that must all hold.',
      ),
    },
    description,
  );

const secret = open({ namespace: text('Namespace of the secret.'), name: text('Name of the secret.') }, 'A Secret.');

const tls = (description: string): Schema =>
  open(
    {
      secret,
      trustedCA: text('Item of the secret with the trusted authorities. Default ca.crt.'),
      certificate: text('Item of the secret with the certificate. Default tls.crt.'),
      privateKey: text('Item of the secret with the private key. Default tls.key.'),
    },
    description,
  );

const portProtocol = open({
  port: text('A decimal number 0..65535 (0: every port), or the name of a port. None for a protocol without ports.'),
  endPort: whole('Last port of a range that begins at port.'),
  protocol: text(
    'TCP, UDP, SCTP or ANY; without ports: VRRP, IGMP, GRE, IPIP, IPv6, ESP, AH. Default ANY: TCP, UDP and SCTP.',
  ),
});

const httpRule = open({
  path: text('Regular expression that the whole path must match.'),
  method: text('Regular expression that the whole method must match.'),
  host: text('Regular expression that the whole host must match.'),
  headers: list(text(), 'Headers that must be there, as "Name: value" or "Name".'),
  headerMatches: list(
    open({
      name: text('Header name.'),
      value: text('Value that the header must have.'),
      secret,
      mismatch: text('What to do when it differs: LOG, ADD, DELETE or REPLACE.'),
    }),
    'Header requirements.',
  ),
});

const fqdn = open({
  matchName: text('A full domain name.'),
  matchPattern: text('A domain name in which * stands for any letters of one label.'),
});

const portRule = (deny: boolean): Schema =>
  open({
    ports: list(portProtocol, 'At most 40 ports. An empty list matches no port.'),
    ...(deny
      ? {}
      : {
          rules: open(
            {
              http: list(httpRule, 'HTTP requests that are allowed.'),
              dns: list(fqdn, 'DNS names that may be looked up (egress).'),
              kafka: list(open({}), 'Kafka requests that are allowed.'),
              l7proto: text('Name of another application protocol.'),
              l7: list(map(text()), 'Rules of that protocol.'),
            },
            'What is allowed inside the connection; at most one kind.',
          ),
          terminatingTLS: tls('How to end TLS from the client.'),
          originatingTLS: tls('How to begin TLS to the server.'),
          serverNames: list(text(), 'TLS server names that are allowed.'),
          listener: open(
            {
              envoyConfig: open(
                { kind: text('Kind of the configuration.'), name: text('Its name.') },
                'Envoy configuration.',
              ),
              name: text('Listener in that configuration.'),
              priority: whole('Rank among listeners, 1..100.'),
            },
            'Envoy listener that gets the traffic.',
          ),
        }),
  });

const cidrRule = open({
  cidr: text('A prefix: 10.0.0.0/8.'),
  cidrGroupRef: text('Name of a CiliumCIDRGroup.'),
  cidrGroupSelector: selector('CiliumCIDRGroups by their labels.'),
  except: list(text(), 'Prefixes inside that are left out.'),
});

const service = open({
  k8sService: open({ serviceName: text('Service name.'), namespace: text('Its namespace.') }, 'One service.'),
  k8sServiceSelector: open(
    { selector: selector('Services by their labels.'), namespace: text('Their namespace.') },
    'Services by labels.',
  ),
});

const group = open({
  aws: open(
    {
      labels: map(text()),
      region: text('AWS region.'),
      securityGroupsIds: list(text()),
      securityGroupsNames: list(text()),
    },
    'Addresses of AWS instances.',
  ),
});

const icmps = list(
  open({
    fields: list(
      open({
        family: text('IPv4 (default) or IPv6.'),
        type: {
          'x-kubernetes-int-or-string': true,
          description: 'ICMP type as a number 0..255 or by its name: EchoRequest.',
        },
      }),
      'At most 40 types.',
    ),
  }),
  'ICMP types. Not together with toPorts.',
);

const PORTS = 'Ports of the traffic. Absent: every protocol and port.';

function element(direction: 'ingress' | 'egress', deny: boolean): Schema {
  const to = direction === 'egress';
  const word = to ? 'to' : 'from';
  const side = to ? 'Destinations' : 'Sources';
  return open({
    [`${word}Endpoints`]: list(
      selector('Pods by their labels.'),
      `${side}: pods. Own namespace unless the selector names one.`,
    ),
    [`${word}CIDR`]: list(text(), `${side}: prefixes outside of the cluster.`),
    [`${word}CIDRSet`]: list(cidrRule, `${side}: prefixes outside of the cluster, with exceptions.`),
    [`${word}Entities`]: list(text(), `${side}: named scopes such as world, cluster, host or kube-apiserver.`),
    [`${word}Groups`]: list(group, `${side}: instances of a cloud provider.`),
    [`${word}Nodes`]: list(selector('Nodes by their labels.'), `${side}: nodes.`),
    [`${word}Requires`]: list(selector('Further requirement.'), 'Removed from the language; refused.'),
    ...(to ? { toServices: list(service, 'Destinations: backends of services.') } : {}),
    ...(to && !deny ? { toFQDNs: list(fqdn, 'Destinations: addresses that DNS names resolve to.') } : {}),
    toPorts: list(portRule(deny), PORTS),
    icmps,
    ...(deny
      ? {}
      : {
          authentication: open({ mode: text('disabled, required or test-always-fail.') }, 'Mutual authentication.'),
        }),
  });
}

/** One rule: `spec`, or an item of `specs`. */
export const ruleSchema = (description: string): Schema =>
  open(
    {
      endpointSelector: selector('Pods that this rule is for. {} selects every pod in scope.'),
      nodeSelector: selector('Nodes that this rule is for (cluster-wide policies only).'),
      ingress: list(element('ingress', false), 'What may come in.'),
      ingressDeny: list(element('ingress', true), 'What may not come in, whatever allows it.'),
      egress: list(element('egress', false), 'What may go out.'),
      egressDeny: list(element('egress', true), 'What may not go out, whatever allows it.'),
      enableDefaultDeny: open(
        {
          ingress: flag('Whether selected pods refuse incoming traffic that nothing allows.'),
          egress: flag('Whether selected pods refuse outgoing traffic that nothing allows.'),
        },
        'Default deny by direction; unset: on where the rule has any element.',
      ),
      labels: list(
        open({ key: text(), value: text(), source: text() }),
        'Labels of the rule itself, for identification.',
      ),
      description: text('Free text.'),
      log: open({ value: text('At most 32 printable characters.') }, 'Text shown with flows that this rule decides.'),
    },
    description,
  );

/** Status of a policy (design section 7). */
export const policyStatusSchema: Schema = fields(
  {
    observedGeneration: whole('Generation that this status is about.'),
    summary: fields(
      {
        nodes: text('Nodes that enforce this generation, of those that must: "5/5".'),
        endpoints: whole('Pods that the policy selects.'),
        rules: whole('Rule elements that are enforced.'),
      },
      'Reach of the policy.',
    ),
    conditions: {
      type: 'array',
      description: 'Valid, ResolvedRefs, Programmed and Ready.',
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['type'],
      items: fields(
        {
          type: text(
            'Valid: the policy can be read. ResolvedRefs: what it names exists. Programmed: it is in the kernel of every node that must enforce it. Ready: all three.',
          ),
          status: text('True, False or Unknown.'),
          reason: text('One word for the cause.'),
          message: text('What is wrong, where, and what stays enforced.'),
          observedGeneration: whole('Generation that this condition is about.'),
          lastTransitionTime: { type: 'string', format: 'date-time', description: 'When the status last changed.' },
        },
        undefined,
        ['type', 'status'],
      ),
    },
    failures: list(
      fields({ node: text('Node that failed.'), reason: text(), message: text() }),
      'At most five failures, by node.',
    ),
    failureCount: whole('How many failures there are.'),
  },
  'How far the policy is enforced. Written by the operator.',
);
