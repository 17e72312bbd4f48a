import { describe, expect, it } from '@jest/globals';
import { parseBareRules, parsePolicy } from './index.ts';
import { allowing, cnp, deny, E0, egress, found, ingress, type Json, WEB } from './testing/parsed.ts';

describe('the object', () => {
  const rule = { endpointSelector: {}, ingress: [{}] };
  const named = (metadata: Json, more: Json, kind: 'CiliumNetworkPolicy' | 'CiliumClusterwideNetworkPolicy') =>
    found(parsePolicy({ metadata, ...more }, kind));

  it('needs a name, a namespace by its kind, and a rule', () => {
    expect(named({ namespace: 'a' }, { spec: rule }, 'CiliumNetworkPolicy')).toEqual(['InvalidSpec metadata.name']);
    expect(named({ name: 'p' }, { spec: rule }, 'CiliumNetworkPolicy')).toEqual(['InvalidSpec metadata.namespace']);
    expect(named({ name: 'p', namespace: 'a' }, { spec: rule }, 'CiliumClusterwideNetworkPolicy')).toEqual([
      'InvalidSpec metadata.namespace',
    ]);
    expect(found(cnp(undefined))).toEqual(['InvalidSpec spec']);
    expect(found(cnp(null))).toEqual(['InvalidSpec spec']);
    expect(found(cnp(undefined, { specs: [] }))).toEqual(['InvalidSpec specs']);
    expect(found(cnp(undefined, { specs: [null] }))).toEqual(['InvalidSpec specs[0]']);
    expect(found(cnp(undefined, { specs: {} }))).toEqual(['InvalidSpec specs']);
    expect(found(cnp(rule, { description: 'x' }))).toEqual(['InvalidSpec description']);
    expect(found(cnp(rule, { kind: 'NetworkPolicy', apiVersion: 'cilium.io/v1' }))).toEqual([
      'InvalidSpec kind',
      'InvalidSpec apiVersion',
    ]);
    expect(found(parsePolicy(null, 'CiliumNetworkPolicy'))).toEqual(['InvalidSpec $']);
  });

  it('is the union of spec and specs', () => {
    const { rules, problems } = cnp(rule, { specs: [rule, rule] });
    expect(problems).toEqual([]);
    expect(rules.map(({ path }) => path)).toEqual(['spec', 'specs[0]', 'specs[1]']);
  });

  it('has every problem of a rule told', () => {
    const result = cnp(rule, {
      specs: [{ endpointSelector: {}, ingress: [{ fromEntities: ['wrold'] }], egress: [{ to: 1 }] }],
    });
    expect(allowing(result)).toEqual([]);
    expect(found(result)).toEqual([
      'InvalidSpec specs[0].ingress[0].fromEntities[0]',
      'InvalidSpec specs[0].egress[0].to',
    ]);
    expect(result.problems[0]?.message).toContain('did you mean world?');
  });
});

describe('the rule', () => {
  it('injects the namespace into the subject, and refuses another', () => {
    const subject = (selector: unknown) => cnp({ endpointSelector: selector, ingress: [{}] });
    expect(subject({}).rules[0]?.subject.requirements).toEqual([
      { key: 'k8s:io.kubernetes.pod.namespace', operator: 'In', values: ['a'] },
    ]);
    const expression = (operator: string, values: string[]) =>
      subject({ matchExpressions: [{ key: 'io.kubernetes.pod.namespace', operator, values }] });
    expect(found(expression('In', ['a', 'b']))).toEqual(['Warning spec.endpointSelector']);
    expect(found(expression('NotIn', ['b']))).toEqual([]);
    for (const [operator, values] of [
      ['In', ['b']],
      ['NotIn', ['a']],
      ['DoesNotExist', []],
    ] as const) {
      expect(found(expression(operator, [...values]))).toEqual(['InvalidSpec spec.endpointSelector']);
    }
    const wide = parsePolicy(
      { metadata: { name: 'p' }, spec: { endpointSelector: {}, ingress: [{}] } },
      'CiliumClusterwideNetworkPolicy',
    );
    expect(wide.rules[0]?.subject.requirements).toEqual([]);
  });

  it('has one subject, and at least one element', () => {
    expect(found(cnp({ ingress: [{}] }))).toEqual(['InvalidSpec spec.endpointSelector']);
    expect(found(cnp({ endpointSelector: {} }))).toEqual(['InvalidSpec spec']);
    expect(found(cnp({ endpointSelector: {}, ingress: null, egressDeny: [] }))).toEqual(['InvalidSpec spec']);
    const both = parsePolicy(
      { metadata: { name: 'p' }, spec: { endpointSelector: {}, nodeSelector: {}, ingress: [{}] } },
      'CiliumClusterwideNetworkPolicy',
    );
    expect(found(both)).toContain('InvalidSpec spec.nodeSelector');
  });

  it('has default deny in the directions with elements, unless switched off', () => {
    const flags = (enableDefaultDeny: unknown) =>
      cnp({ endpointSelector: {}, ingress: [{}], egressDeny: [{}], enableDefaultDeny }).rules[0]?.defaultDeny;
    expect(flags(undefined)).toEqual({ ingress: true, egress: true });
    expect(flags(null)).toEqual({ ingress: true, egress: true });
    expect(flags({ ingress: false })).toEqual({ ingress: false, egress: true });
    const one = cnp({ endpointSelector: {}, ingress: [{}], enableDefaultDeny: { egress: true } }).rules[0];
    expect([one?.defaultDeny, one?.has]).toEqual([
      { ingress: true, egress: false },
      { ingress: true, egress: false },
    ]);
    expect(found(cnp({ endpointSelector: {}, ingress: [{}], enableDefaultDeny: { ingress: 'no', x: 1 } }))).toEqual([
      'InvalidSpec spec.enableDefaultDeny.x',
      'InvalidSpec spec.enableDefaultDeny.ingress',
    ]);
  });

  it('keeps labels and log', () => {
    const labels = [
      { key: 'b', value: '1' },
      { key: 'a', source: 'k8s' },
    ];
    const { rules } = cnp({
      endpointSelector: {},
      ingress: [{}],
      labels,
      log: { value: 'audit me' },
      description: 'x',
    });
    expect(rules[0]).toMatchObject({ labels: ['k8s:a=', 'unspec:b=1'], log: 'audit me' });
    expect(found(cnp({ endpointSelector: {}, ingress: [{}], log: { value: 'x'.repeat(33) }, labels: [{}] }))).toEqual([
      'InvalidSpec spec.labels[0].key',
      'InvalidSpec spec.log.value',
    ]);
  });
});

describe('peers', () => {
  it('tell absent, null, empty and wildcard apart', () => {
    const peers = (element: unknown) => ingress(element).rules[0]?.elements[0]?.peers;
    const P = { toPorts: [{ ports: [{ port: '80' }] }] };
    expect(peers({})).toEqual([]);
    expect(peers(P)).toBe('any');
    expect(peers({ ...P, fromCIDR: null })).toBe('any');
    expect(peers({ ...P, toPorts: [] })).toEqual([]);
    for (const member of ['fromEndpoints', 'fromCIDR', 'fromCIDRSet', 'fromEntities', 'fromNodes']) {
      expect(peers({ [member]: [], ...P })).toEqual([]);
    }
    expect(peers({ fromEndpoints: [{}], fromCIDR: [] })).toEqual([]);
    expect(peers({ fromEndpoints: [{}] })).toHaveLength(1);
    expect(found(ingress({ fromEndpoints: [null] }))).toEqual([`InvalidSpec ${E0}.fromEndpoints[0]`]);
    expect(found(ingress(null))).toEqual([`InvalidSpec ${E0}`]);
  });

  it('in endpoints get the scope that the kind gives', () => {
    const NS = 'k8s:io.kubernetes.pod.namespace';
    const requirements = (peer: unknown, kind: 'CiliumNetworkPolicy' | 'CiliumClusterwideNetworkPolicy') => {
      const metadata = kind === 'CiliumNetworkPolicy' ? { name: 'p', namespace: 'a' } : { name: 'p' };
      const { rules, problems } = parsePolicy(
        { metadata, spec: { endpointSelector: {}, ingress: [{ fromEndpoints: [peer] }] } },
        kind,
      );
      expect(problems).toEqual([]);
      const peers = rules[0]?.elements[0]?.peers;
      const first = peers === 'any' ? undefined : peers?.[0];
      return first?.kind === 'endpoints'
        ? first.selector.requirements.map(({ key, operator }) => `${key} ${operator}`)
        : first;
    };
    const wide = 'CiliumClusterwideNetworkPolicy';
    expect(requirements({}, 'CiliumNetworkPolicy')).toEqual([`${NS} In`]);
    expect(requirements({}, wide)).toEqual([`${NS} Exists`]);
    expect(requirements({ matchLabels: { [NS]: 'b' } }, wide)).toEqual([`${NS} In`]);
    const team = 'k8s:io.cilium.k8s.namespace.labels.team';
    expect(requirements({ matchLabels: { [team]: 'x' } }, 'CiliumNetworkPolicy')).toEqual([`${team} In`]);
    expect(requirements({ matchLabels: { [team]: 'x' } }, wide)).toEqual([`${team} In`, `${NS} Exists`]);
    const not = (key: string) => ({ matchExpressions: [{ key, operator: 'DoesNotExist' }] });
    expect(requirements(not(team), 'CiliumNetworkPolicy')).toEqual([`${team} DoesNotExist`, `${NS} Exists`]);
    expect(requirements(not(NS), wide)).toEqual([`${NS} DoesNotExist`, `${NS} Exists`]);
    expect(requirements({ matchLabels: { 'reserved:host': '' } }, wide)).toEqual({ kind: 'entity', entity: 'host' });
    expect(requirements({ matchLabels: { 'reserved:host': 'x' } }, wide)).toEqual({ kind: 'entity', entity: 'none' });
  });

  it('of two members are refused, an empty one beside is not', () => {
    expect(found(ingress({ fromCIDR: ['10.0.0.0/8'], fromEntities: ['all'] }))).toEqual([
      `InvalidSpec ${E0}.fromEntities`,
    ]);
    expect(found(ingress({ fromCIDR: ['10.0.0.0/8'], fromEntities: [] }))).toEqual([]);
  });

  it.each([
    [{ fromCIDR: ['10.0.0.0/33'] }, 'fromCIDR[0]'],
    [{ fromCIDR: ['010.0.0.0/8'] }, 'fromCIDR[0]'],
    [{ fromCIDR: ['fe80::1%eth0'] }, 'fromCIDR[0]'],
    [{ fromCIDR: ['::ffff:10.0.0.1'] }, 'fromCIDR[0]'],
    [{ fromCIDR: [null] }, 'fromCIDR[0]'],
    [{ fromCIDR: '10.0.0.0/8' }, 'fromCIDR'],
    [{ fromCIDRSet: ['10.0.0.0/8'] }, 'fromCIDRSet[0]'],
    [{ fromCIDRSet: [{ cidr: '10.0.0.1' }] }, 'fromCIDRSet[0].cidr'],
    [{ fromCIDRSet: [{}] }, 'fromCIDRSet[0]'],
    [{ fromCIDRSet: [{ cidr: '10.0.0.0/8', cidrGroupRef: 'g' }] }, 'fromCIDRSet[0]'],
    [{ fromCIDRSet: [{ cidrGroupSelector: null }] }, 'fromCIDRSet[0].cidrGroupSelector'],
    [{ fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.0.0.0/7'] }] }, 'fromCIDRSet[0].except[0]'],
    [{ fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['11.0.0.0/16'] }] }, 'fromCIDRSet[0].except[0]'],
    [{ fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['fd00::/16'] }] }, 'fromCIDRSet[0].except[0]'],
    [{ fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.0.0.1'] }] }, 'fromCIDRSet[0].except[0]'],
    [{ fromCIDRSet: [{ cidr: '10.0.0.0/8', excepts: [] }] }, 'fromCIDRSet[0].excepts'],
    [{ fromEntities: ['World'] }, 'fromEntities[0]'],
    [{ fromEntities: [''] }, 'fromEntities[0]'],
    [{ fromGroups: [] }, 'fromGroups'],
    [{ fromEndpoints: [{ app: 'x' }] }, 'fromEndpoints[0].app'],
    [{ toEndpoints: [{}] }, 'toEndpoints'],
    [{ authentication: { mode: 'Required' } }, 'authentication.mode'],
  ])('%j is invalid at %s', (element, path) => {
    const result = ingress(element);
    expect(found(result)).toEqual([`InvalidSpec ${E0}.${path}`]);
    expect(allowing(result)).toEqual([]);
  });

  it('are canonical', () => {
    const { rules } = ingress({
      fromCIDRSet: [{ cidr: '10.1.2.3/8', except: ['10.9.0.0/16', '10.1.2.3/16', '10.1.0.0/16'] }],
    });
    expect(rules[0]?.elements[0]?.peers).toEqual([
      { kind: 'cidr', cidr: { cidr: '10.0.0.0/8', except: ['10.1.0.0/16', '10.9.0.0/16'] } },
    ]);
    const bare = ingress({ fromCIDR: ['10.1.2.3', '2001:DB8::1'] }).rules[0]?.elements[0]?.peers;
    expect(bare).toMatchObject([{ cidr: { cidr: '10.1.2.3/32' } }, { cidr: { cidr: '2001:db8::1/128' } }]);
  });
});

describe('what is not supported', () => {
  const api = [{ matchLabels: { app: 'api' } }];
  const ports = { toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }] };
  const l7 = (member: Json) => ({ toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], ...member }] });
  const cases: [string, Json, string][] = [
    ['egress', { toGroups: [{ aws: {} }], ...ports }, 'toGroups'],
    ['ingress', { fromGroups: [{}], ...ports }, 'fromGroups'],
    ['ingress', { fromGroups: [{}] }, 'fromGroups'],
    ['ingress', { fromRequires: [{}], fromEndpoints: api }, 'fromRequires'],
    ['ingress', { fromEndpoints: api, authentication: { mode: 'required' } }, 'authentication.mode'],
    ['ingress', { fromEndpoints: api, ...l7({ rules: { http: [{}] } }) }, 'toPorts[0].rules'],
    ['ingress', { fromEndpoints: api, ...l7({ rules: { l7proto: 'x' } }) }, 'toPorts[0].rules'],
    ['egress', l7({ serverNames: ['x.org'] }), 'toPorts[0].serverNames'],
    ['egress', l7({ listener: { name: 'x', envoyConfig: { name: 'y' } } }), 'toPorts[0].listener'],
    ['egress', l7({ terminatingTLS: { secret: { name: 'x' } } }), 'toPorts[0].terminatingTLS'],
    ['egress', l7({ originatingTLS: { secret: { name: 'x' } } }), 'toPorts[0].originatingTLS'],
    ['ingress', { fromEndpoints: [{ matchLabels: { 'reserved:host': '', app: 'x' } }] }, 'fromEndpoints[0]'],
    ['ingress', { fromEndpoints: [{ matchLabels: { 'cidr:10.0.0.0/8': '' } }] }, 'fromEndpoints[0]'],
  ];

  it.each(cases)('in an allow of %s, %j, allows nothing and keeps default deny', (list, element, path) => {
    const result = list === 'ingress' ? ingress(element) : egress(element);
    expect(found(result)).toEqual([`UnsupportedField spec.${list}[0].${path}`]);
    expect(allowing(result)).toEqual([]);
    expect(result.rules[0]?.defaultDeny[list === 'ingress' ? 'ingress' : 'egress']).toBe(true);
  });

  it('leaves the other peers of an allow as they are', () => {
    const odd = { matchLabels: { 'reserved:host': '', app: 'x' } };
    const result = ingress({ fromEndpoints: [...api, odd] });
    expect(found(result)).toEqual([`UnsupportedField ${E0}.fromEndpoints[1]`]);
    expect(result.rules[0]?.elements[0]?.peers).toMatchObject([{ kind: 'endpoints' }]);
  });

  it('in a deny is taken at its widest', () => {
    const element = (json: unknown) => {
      const result = deny(json);
      expect(result.problems.map(({ code }) => code)).toEqual(['UnsupportedField']);
      const { peers, ports } = result.rules[0]?.elements[0] ?? {};
      return { peers, ports };
    };
    const tcp80 = [{ protocol: 'TCP', from: 80, to: 80 }];
    const world = { kind: 'entity', entity: 'world' };
    expect(element({ fromGroups: [{}], ...ports })).toEqual({ peers: [world], ports: tcp80 });
    expect(element({ fromRequires: [{}], fromEndpoints: api, ...ports })).toMatchObject({
      peers: [{ kind: 'endpoints' }],
      ports: tcp80,
    });
    expect(element({ fromRequires: [{}], ...ports })).toEqual({ peers: 'any', ports: tcp80 });
  });

  it('leaves the other elements and rules as they are', () => {
    const result = ingress({ fromGroups: [{}] }, { fromEntities: ['world'] });
    expect(result.rules[0]?.elements.map(({ peers }) => peers)).toEqual([[], [{ kind: 'entity', entity: 'world' }]]);
  });

  it('does not hide what is invalid', () => {
    const result = ingress({ fromGroups: [{}] }, { fromEntities: ['x'] });
    expect(allowing(result)).toEqual([]);
    expect(found(result)).toEqual([`UnsupportedField ${E0}.fromGroups`, 'InvalidSpec spec.ingress[1].fromEntities[0]']);
  });

  it('yields no rule for nodes, but says so', () => {
    const result = parsePolicy(
      {
        metadata: { name: 'p' },
        specs: [
          { nodeSelector: {}, ingress: [{}] },
          { endpointSelector: {}, ingress: [{}] },
        ],
      },
      'CiliumClusterwideNetworkPolicy',
    );
    expect(found(result)).toEqual(['UnsupportedField specs[0].nodeSelector']);
    expect(result.rules.map(({ path }) => path)).toEqual(['specs[1]']);
  });

  it('does not include what is empty or disabled', () => {
    const element = {
      fromEndpoints: api,
      authentication: { mode: 'disabled' },
      icmps: [],
      toPorts: [{ ports: [{ port: '80' }], rules: { http: [] }, serverNames: [] }],
    };
    expect(found(ingress(element))).toEqual([]);
  });
});

describe('labels that are part of no identity', () => {
  const hash = { 'pod-template-hash': 'abc' };

  it('are warned of wherever they are asked for: nobody has them', () => {
    const name = { 'any:statefulset.kubernetes.io/pod-name': 'db-0' };
    const spec = {
      endpointSelector: { matchLabels: { 'k8s:controller-uid': 'u' } },
      ingressDeny: [{ fromEndpoints: [{ matchLabels: hash }] }],
      egress: [{ toEndpoints: [{ matchLabels: { app: 'a' } }, { matchLabels: name }] }],
    };
    const { rules, problems } = cnp(spec);
    expect(rules).toHaveLength(1);
    expect(problems.map(({ code, path, message }) => `${code} ${path}: ${message.split(' is ')[0]}`)).toEqual([
      'Warning spec.endpointSelector: the label "controller-uid"',
      'Warning spec.ingressDeny[0].fromEndpoints[0]: the label "pod-template-hash"',
      'UnsupportedField spec.egress[0].toEndpoints[1]: the label "statefulset.kubernetes.io/pod-name"',
    ]);
  });

  it('are also those that only the cluster gives, and never does', () => {
    const keys = ['io.cilium.k8s.team', 'io.kubernetes.pod.namespacex', 'io.cilium.k8s.policy.clusters'];
    const peers = keys.map((key) => ({ matchLabels: { [key]: 'x' } }));
    const { problems } = cnp({ endpointSelector: {}, ingress: [{ fromEndpoints: peers }] });
    expect(problems.map(({ message }) => message.split(' is ')[0])).toEqual(keys.map((key) => `the label "${key}"`));
  });

  it('are not those of namespaces, service accounts and clusters', () => {
    const matchLabels = {
      'k8s:io.kubernetes.pod.namespace': 'a',
      'k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name': 'a',
      'io.cilium.k8s.policy.serviceaccount': 'default',
      'io.cilium.k8s.policy.cluster': 'default',
      'app.kubernetes.io/name': 'web',
    };
    const spec = { endpointSelector: {}, ingress: [{ fromEndpoints: [{ matchLabels }] }] };
    expect(cnp(spec).problems).toEqual([]);
  });
});

describe('bare rules', () => {
  it('take selectors as written', () => {
    const result = parseBareRules([
      {
        labels: [{ key: 'name', value: 'r' }, 'k8s:x=y'],
        endpointSelector: WEB,
        ingress: [{ fromEndpoints: [{ matchLabels: { app: 'api' } }, {}] }],
      },
    ]);
    expect(result.problems).toEqual([]);
    expect(result.rules).toEqual([
      {
        subject: { requirements: [{ key: 'any:app', operator: 'In', values: ['web'] }] },
        elements: [
          {
            direction: 'ingress',
            verdict: 'allow',
            peers: [
              { kind: 'endpoints', selector: { requirements: [{ key: 'any:app', operator: 'In', values: ['api'] }] } },
              { kind: 'entity', entity: 'all' },
            ],
            ports: 'any',
            path: '[0].ingress[0]',
          },
        ],
        defaultDeny: { ingress: true, egress: false },
        has: { ingress: true, egress: false },
        labels: ['k8s:x=y', 'unspec:name=r'],
        path: '[0]',
      },
    ]);
    const negative = { fromEndpoints: [{ matchExpressions: [{ key: 'app', operator: 'DoesNotExist' }] }] };
    expect(found(parseBareRules([{ endpointSelector: {}, ingress: [negative] }]))).toEqual([
      'UnsupportedField [0].ingress[0].fromEndpoints[0]',
    ]);
    expect(found(parseBareRules([]))).toEqual(['InvalidSpec $']);
    expect(found(parseBareRules({}))).toEqual(['InvalidSpec $']);
    expect(found(parseBareRules([null]))).toEqual(['InvalidSpec [0]']);
  });
});
