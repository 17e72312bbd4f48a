/**
 * What each component may do with the API, and why: the reviewed list. The chart's roles grant this and nothing else
 * (test/chart/access.test.ts compares in both directions), and a real API server agrees (test/real/rbac.test.ts).
 */

export interface Access {
  /** ServiceAccount in the namespace of the release. */
  readonly component: 'weir-operator' | 'weir-agent' | 'weir-uninstall' | 'weir-test';
  /** `resource.group`, with `/subresource` after the resource; a core resource has no group. */
  readonly resource: string;
  readonly verbs: readonly string[];
  /** Absent: in the whole cluster. `release`: the namespace of the release. */
  readonly namespace?: 'release' | 'default';
  /** Objects of these names only. */
  readonly names?: readonly string[];
  readonly why: string;
}

const WATCH = ['list', 'watch'];
const OWN = ['list', 'watch', 'create', 'patch', 'delete'];

export const ACCESS: readonly Access[] = [
  ...operator(),
  ...agent(),
  ...uninstall(),
  {
    component: 'weir-test',
    resource: 'pods',
    verbs: ['list'],
    namespace: 'release',
    why: "the addresses of the test's pods",
  },
];

function operator(): Access[] {
  const of = (resource: string, verbs: readonly string[], why: string, more: Partial<Access> = {}): Access => ({
    component: 'weir-operator',
    resource,
    verbs,
    why,
    ...more,
  });
  return [
    of(
      'pods',
      ['get', ...WATCH],
      'labels, addresses and ports of pods; before an orphan goes, whether its pod is gone',
    ),
    of('nodes', ['get', ...WATCH], 'which nodes are alive; before a report goes, whether its node is gone'),
    of('namespaces', WATCH, 'labels of namespaces are part of identities'),
    of('services', WATCH, 'toServices: which pods a Service selects'),
    of('endpointslices.discovery.k8s.io', WATCH, 'toServices: addresses of a Service that selects no pods'),
    of('events', ['create', 'patch'], 'events on policies: errors and, for NetworkPolicy, success'),
    of('daemonsets.apps', ['list'], 'preflight: whether Cilium runs here'),
    of('deployments.apps', ['list'], 'preflight: whether Cilium runs here'),
    of('customresourcedefinitions.apiextensions.k8s.io', ['get'], 'preflight: whether all CRDs are there'),
    of('networkpolicies.networking.k8s.io', WATCH, 'policies'),
    of('ciliumnetworkpolicies.cilium.io', WATCH, 'policies'),
    of('ciliumclusterwidenetworkpolicies.cilium.io', WATCH, 'policies'),
    of('ciliumnetworkpolicies/status.cilium.io', ['patch', 'update'], 'status: applied; replaced where others wrote'),
    of('ciliumclusterwidenetworkpolicies/status.cilium.io', ['patch', 'update'], 'status, as of CNPs'),
    of('resolvedpolicies/status.weir.dev', ['patch', 'update'], 'status of NetworkPolicies, which have none'),
    of('ciliumcidrgroups.cilium.io', WATCH, 'cidrGroupRef, cidrGroupSelector: addresses that policies name together'),
    of('ciliumidentities.cilium.io', OWN, 'its own objects: a number for each set of labels'),
    of('ciliumendpointslices.cilium.io', OWN, 'its own objects: which address has which identity'),
    of('resolvedpolicies.weir.dev', OWN, 'its own objects: policies as nodes read them'),
    of('peersets.weir.dev', OWN, 'its own objects: identities that a selector matches'),
    of('ciliumendpoints.cilium.io', ['list', 'delete'], 'removes those of pods that are gone, with their node'),
    of('nodepolicystatuses.weir.dev', [...WATCH, 'delete'], 'what nodes report; removes those of nodes that are gone'),
    of(
      'validatingwebhookconfigurations.admissionregistration.k8s.io',
      ['get', 'update'],
      'adds its certificate; not with policyWebhook.enabled=false',
      { names: ['weir-webhooks'] },
    ),
    of('leases.coordination.k8s.io', ['create'], 'leader election', { namespace: 'release' }),
    of('leases.coordination.k8s.io', ['get', 'update'], 'leader election', {
      namespace: 'release',
      names: ['weir-operator'],
    }),
    of('leases.coordination.k8s.io', ['patch'], 'tells agents that it leads', {
      namespace: 'release',
      names: ['weir-operator-heartbeat'],
    }),
  ];
}

function agent(): Access[] {
  const of = (resource: string, verbs: readonly string[], why: string, more: Partial<Access> = {}): Access => ({
    component: 'weir-agent',
    resource,
    verbs,
    why,
    ...more,
  });
  return [
    of('nodes', ['get', ...WATCH], 'addresses of nodes and their pods; its own uid, as owner of its report'),
    of(
      'nodes/status',
      ['patch'],
      'condition WeirProblem and annotation weir.dev/addresses of its own node; not before Kubernetes 1.30',
    ),
    of('pods', WATCH, "its node's pods: labels, ports, addresses, uid"),
    of('namespaces', WATCH, 'labels of namespaces are part of identities'),
    of('services', WATCH, 'frontends of Services, and their names in events'),
    of('endpointslices.discovery.k8s.io', WATCH, 'backends of Services; where the API servers are'),
    of('ciliumidentities.cilium.io', WATCH, 'identities'),
    of('ciliumendpointslices.cilium.io', WATCH, "identities of other nodes' pods"),
    of('resolvedpolicies.weir.dev', WATCH, 'the policies that it enforces'),
    of('peersets.weir.dev', WATCH, 'the peers that they name'),
    of(
      'events',
      ['create', 'patch'],
      'events on pods: an address that two have, a hostPort that nobody maps; on its node: enforcement that somebody removed',
    ),
    of('ciliumendpoints.cilium.io', ['create', 'patch', 'delete'], "its own objects: its node's pods as enforced"),
    of('nodepolicystatuses.weir.dev', ['create', 'patch'], 'its own object: what its kernel has'),
    of('daemonsets.apps', WATCH, 'whether Weir is being uninstalled', {
      namespace: 'release',
      names: ['weir-agent'],
    }),
    of('leases.coordination.k8s.io', WATCH, 'whether an operator leads', {
      namespace: 'release',
      names: ['weir-operator-heartbeat'],
    }),
  ];
}

function uninstall(): Access[] {
  const of = (resource: string, verbs: readonly string[], why: string, more: Partial<Access> = {}): Access => ({
    component: 'weir-uninstall',
    resource,
    verbs,
    why,
    ...more,
  });
  const release = { namespace: 'release' } as const;
  return [
    of('deployments.apps', ['get', 'patch'], 'ends the operator', { ...release, names: ['weir-operator'] }),
    of('daemonsets.apps', ['get', 'patch'], 'tells agents to leave', { ...release, names: ['weir-agent'] }),
    of('pods', ['list'], 'whether an operator still runs', release),
    of('leases.coordination.k8s.io', ['delete'], "the operator's leases, which helm does not know", {
      ...release,
      names: ['weir-operator', 'weir-operator-heartbeat'],
    }),
    of('nodes', ['list'], 'which agents must have left: those of Ready nodes'),
    of('nodepolicystatuses.weir.dev', ['list', 'delete'], 'which agents have left; then removed'),
    of('resolvedpolicies.weir.dev', ['list', 'delete'], "Weir's own objects go"),
    of('peersets.weir.dev', ['list', 'delete'], "Weir's own objects go"),
    of('ciliumidentities.cilium.io', ['list', 'delete'], "Weir's own objects go"),
    of('ciliumendpointslices.cilium.io', ['list', 'delete'], "Weir's own objects go"),
    of('ciliumendpoints.cilium.io', ['list', 'delete'], "Weir's own objects go"),
    of('ciliumnetworkpolicies.cilium.io', ['list'], 'policies whose status is taken back'),
    of('ciliumclusterwidenetworkpolicies.cilium.io', ['list'], 'policies whose status is taken back'),
    of('ciliumnetworkpolicies/status.cilium.io', ['update'], 'a status must not go on claiming enforcement'),
    of('ciliumclusterwidenetworkpolicies/status.cilium.io', ['update'], 'as of CNPs'),
  ];
}

/** What agents and operator may beside, each of them, with `metrics.secure.enabled`. */
export const SECURE_METRICS: readonly Access[] = (['weir-agent', 'weir-operator'] as const).flatMap((component) => [
  {
    component,
    resource: 'tokenreviews.authentication.k8s.io',
    verbs: ['create'],
    why: 'whose token it is that a scrape comes with',
  },
  {
    component,
    resource: 'subjectaccessreviews.authorization.k8s.io',
    verbs: ['create'],
    why: 'whether that account may get /metrics',
  },
]);

/** One line for each verb on each resource, as access.test.ts compares them. */
export function lines(access: readonly Omit<Access, 'why'>[]): string[] {
  return access
    .flatMap(({ component, resource, verbs, namespace, names }) =>
      verbs.map((verb) => `${component}: ${verb} ${resource} ${names?.join(',') ?? '*'} in ${namespace ?? '*'}`),
    )
    .sort();
}
