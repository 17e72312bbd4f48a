/** Where the embedded server differs from the real one and may, each with its reason. */
import type { Accepted } from './types.ts';

/** Case, step (`*` for any text) and path (likewise) of differences that one reason covers. */
type Places = readonly (readonly [name: string, step: string, path: string])[];

const REASONS: readonly (readonly [reason: string, places: Places])[] = [
  [
    'The review groups (authentication, authorization) answer reviews but have no schema document.',
    [['OpenAPI of built-in kinds', 'GET /openapi/v3', '*']],
  ],
  [
    'The wording of Go and its libraries, or of a value as Go prints it; status, reason, fields and kinds of mistakes are equal.',
    [
      ['what only the server sets', 'PUT /api/v1/namespaces/NS/configmaps/set (other uid)', '*message'],
      ['metadata rules', 'POST /api/v1/namespaces/NS/configmaps (a number)', '*message'],
      ['bodies that cannot be read', 'POST /api/v1/namespaces/NS/configmaps (half)', '*message'],
      ['bodies that cannot be read', 'POST /api/v1/namespaces/NS/configmaps (a list)', '*message'],
      ['bodies that cannot be read', 'POST /api/v1/namespaces/NS/configmaps (empty)', '*message'],
      ['bodies that cannot be read', 'POST /api/v1/namespaces/NS/configmaps', '*message'],
      ['bodies that cannot be read', 'POST /api/v1/namespaces/NS/configmaps (other kind)', '*message'],
      ['bodies that cannot be read', 'POST /api/v1/namespaces/NS/configmaps (other version)', '*message'],
      ['bodies that cannot be read', 'POST /api/v1/namespaces/NS/configmaps (wrong type)', '*message'],
      ['bodies that cannot be read', 'POST /api/v1/namespaces/NS/configmaps (wrong value type)', '*message'],
      ['bodies that cannot be read', 'POST /api/v1/namespaces/NS/services (text for a number)', '*message'],
      ['config maps and secrets', 'POST /api/v1/namespaces/NS/configmaps (bad base64)', '*message'],
      ['config maps and secrets', 'POST /api/v1/namespaces/NS/secrets (bad base64)', '*message'],
      ['leases', 'PUT /apis/coordination.k8s.io/v1/namespaces/NS/leases/leader (bad time)', '*message'],
      ['merge patch', 'PATCH /api/v1/namespaces/NS/configmaps/a (merge: a list)', '*message'],
      ['merge patch', 'PATCH /api/v1/namespaces/NS/configmaps/a?fieldValidation=Strict (merge)', '*message'],
      ['merge patch', 'PATCH /api/v1/namespaces/NS/configmaps/a (empty)', '*message'],
      ['patches of a pod', 'PATCH /api/v1/namespaces/NS/pods/p (strategic) #3', '*message'],
      ['patches of a pod', 'PATCH /api/v1/namespaces/NS/pods/p (merge)', '*message'],
      [
        'patches of custom objects',
        'PATCH /apis/RUN.example.com/v1/namespaces/NS/widgets/w?fieldValidation=Strict (merge)',
        '*message',
      ],
      [
        'apply that is refused',
        'PATCH /api/v1/namespaces/NS/configmaps/a?fieldManager=one (apply: no kind)',
        '*message',
      ],
      [
        'apply that is refused',
        'PATCH /api/v1/namespaces/NS/configmaps/a?fieldManager=one (apply: other kind)',
        '*message',
      ],
      ['apply that is refused', 'PATCH /api/v1/namespaces/NS/configmaps/a?fieldManager=one (bad YAML)', '*message'],
      ['pages', 'GET /api/v1/namespaces/NS/secrets?limit=2&continue=CONTINUE (bad token)', '*message'],
      ['pages', 'GET /api/v1/namespaces/NS/secrets?limit=x (bad limit)', '*message'],
      ['eviction and disruption budgets', 'POST /apis/policy/v1/namespaces/NS/poddisruptionbudgets (both)', '*message'],
      ['services', 'POST /api/v1/namespaces/NS/services?dryRun=All (one port twice)', '*message'],
      ['workloads', 'POST /apis/apps/v1/namespaces/NS/deployments?dryRun=All (strategy)', '*message'],
      [
        'network policies that are refused',
        'POST /apis/networking.k8s.io/v1/namespaces/NS/networkpolicies?dryRun=All (port of another type)',
        '*message',
      ],
      [
        'network policies that are refused',
        'POST /apis/networking.k8s.io/v1/namespaces/NS/networkpolicies?dryRun=All (cidr of another type)',
        '*message',
      ],
      [
        'network policies that are refused',
        'POST /apis/networking.k8s.io/v1/namespaces/NS/networkpolicies?dryRun=All (ingress no list)',
        '*message',
      ],
      [
        'changes of a network policy',
        'POST /apis/networking.k8s.io/v1/namespaces/NS/networkpolicies (old version)',
        '*message',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (no schema)',
        '*message',
      ],
      [
        'custom objects and their schema',
        'POST /apis/RUN.example.com/v1/namespaces/NS/widgets?dryRun=All (embedded without kind)',
        '*message',
      ],
      [
        'custom objects and their schema',
        'POST /apis/RUN.example.com/v1/namespaces/NS/widgets?fieldValidation=Strict',
        '*message',
      ],
      [
        'custom objects and their schema',
        'POST /apis/RUN.example.com/v1/namespaces/NS/widgets?fieldValidation=Strict #2',
        '*message',
      ],
      ['custom objects and their schema', 'POST /apis/RUN.example.com/v1/namespaces/NS/widgets (no kind)', '*message'],
    ],
  ],
  [
    'Rare and used by no program or test of this project; kept as it was.',
    [
      ['what only the server sets', 'PUT /api/v1/namespaces/NS/configmaps/set (odd resourceVersion)', '*'],
      ['preconditions', 'DELETE /api/v1/namespaces/NS/configmaps/b (odd kind)', '*'],
      ['binding, eviction and status of pods', 'POST /api/v1/namespaces/NS/pods/p/binding (no target)', '*'],
      ['nodes', 'PATCH /api/v1/nodes/node-RUN (merge) #3', 'body.*'],
      ['services', 'POST /api/v1/namespaces/NS/services?dryRun=All (target port)', '*'],
      [
        'endpoint slices and endpoints',
        'PATCH /apis/discovery.k8s.io/v1/namespaces/NS/endpointslices/s (merge)',
        'body.endpoints',
      ],
      ['workloads', 'POST /apis/batch/v1/namespaces/NS/jobs', '*'],
      ['workloads', 'POST /apis/apps/v1/namespaces/NS/deployments?dryRun=All (no selector)', 'body.*'],
      ['workloads', 'POST /apis/apps/v1/namespaces/NS/deployments?dryRun=All (no template)', 'body.*'],
    ],
  ],
  [
    'JSON is read by JSON.parse: the last of duplicate fields counts, and none is reported. Answers are JSON whatever Accept asks for.',
    [
      ['methods', 'GET /api/v1/namespaces/NS/configmaps/a as text/html', '*'],
      ['methods', 'GET /api/v1/namespaces/NS/configmaps/a as application/yaml', '*'],
      ['field validation', 'POST /api/v1/namespaces/NS/configmaps?fieldValidation=Strict&dryRun=All (duplicate)', '*'],
      ['field validation', 'POST /api/v1/namespaces/NS/configmaps?fieldValidation=Warn&dryRun=All (duplicate)', '*'],
      [
        'field validation',
        'POST /api/v1/namespaces/NS/configmaps?fieldValidation=Ignore&dryRun=All (duplicate)',
        'body.data.a',
      ],
      ['field validation', 'POST /api/v1/namespaces/NS/configmaps?fieldValidation=&dryRun=All (duplicate)', '*'],
    ],
  ],
  [
    'A patch that cannot be applied is refused by an earlier check, and a mistake is told once; the real server looks twice and quotes the object.',
    [
      ['json patch', 'PATCH /api/v1/namespaces/NS/configmaps/a (half)', '*'],
      ['merge patch', 'PATCH /api/v1/namespaces/NS/configmaps/a (merge: uid)', 'body.*'],
      ['merge patch', 'PATCH /api/v1/namespaces/NS/configmaps/a (merge: kind)', '*'],
      ['merge patch', 'PATCH /api/v1/namespaces/NS/configmaps/a', '*'],
      ['strategic merge patch', 'PATCH /apis/apps/v1/namespaces/NS/replicasets/r (strategic: no key)', '*'],
      ['strategic merge patch', 'PATCH /apis/apps/v1/namespaces/NS/replicasets/r (strategic: unknown directive)', '*'],
      [
        'strategic merge patch',
        'PATCH /apis/apps/v1/namespaces/NS/replicasets/r (strategic) #3',
        'body.metadata.finalizers',
      ],
      ['patches of a pod', 'PATCH /api/v1/namespaces/NS/pods/p/status (strategic)', '*'],
      ['finalizers', 'PATCH /api/v1/namespaces/NS/configmaps/f (merge: adds one)', 'body.*'],
      [
        'changes of a network policy',
        'PATCH /apis/networking.k8s.io/v1/namespaces/NS/networkpolicies/np (json)',
        'body.*',
      ],
    ],
  ],
  [
    'A configuration that apply cannot type is refused, but as a bad request or by the schema, not as an internal error (500).',
    [
      [
        'apply that is refused',
        'PATCH /api/v1/namespaces/NS/configmaps/a?fieldManager=one (apply: uid of nothing)',
        '*',
      ],
      ['apply that is refused', 'PATCH /api/v1/namespaces/NS/configmaps/a?fieldManager=one (apply: wrong type)', '*'],
      [
        'apply that is refused',
        'PATCH /api/v1/namespaces/NS/configmaps/a?fieldManager=yaml&force=true&dryRun=All',
        '*',
      ],
      [
        'apply of custom objects',
        'PATCH /apis/RUN.example.com/v1/namespaces/NS/widgets/w?fieldManager=three (apply: conflicts)',
        'body.*',
      ],
      [
        'apply of custom objects',
        'PATCH /apis/RUN.example.com/v1/namespaces/NS/widgets/w?fieldManager=four (apply: duplicate key)',
        '*',
      ],
      [
        'apply of custom objects',
        'PATCH /apis/RUN.example.com/v1/namespaces/NS/widgets/w?fieldManager=four (apply: duplicate in set)',
        '*',
      ],
      [
        'apply of custom objects',
        'PATCH /apis/RUN.example.com/v1/namespaces/NS/widgets/w?fieldManager=four (apply: wrong type)',
        '*',
      ],
    ],
  ],
  [
    'No admission by service account, and quantities are kept as they were written: neither is compared nor computed with.',
    [
      ['pods', 'POST /api/v1/namespaces/NS/pods #2', 'body.spec.containers[0].resources.requests.cpu'],
      ['pods', 'POST /api/v1/namespaces/NS/pods #3', '*'],
      ['pods', 'POST /api/v1/namespaces/NS/pods?dryRun=All (quantity)', '*'],
      ['pods', 'POST /api/v1/namespaces/NS/pods?dryRun=All (limit below request)', '*'],
      ['pods', 'POST /api/v1/namespaces/NS/pods?dryRun=All (grace)', 'body.metadata.uid'],
    ],
  ],
  [
    'Times that were not given are left out instead of null, ownership of an empty struct is named, and refusals by the new API name its group.',
    [
      ['events', 'POST /api/v1/namespaces/NS/events', '*'],
      ['events', 'POST /api/v1/namespaces/NS/events #2', '*'],
      ['events', 'GET /apis/events.k8s.io/v1/namespaces/NS/events/one', '*'],
      ['events', 'POST /apis/events.k8s.io/v1/namespaces/NS/events', 'body.deprecated*'],
      ['events', 'GET /api/v1/namespaces/NS/events/new', 'body.*Timestamp'],
      ['events', 'POST /apis/events.k8s.io/v1/namespaces/NS/events (*', 'body.message'],
      ['events', 'POST /apis/events.k8s.io/v1/namespaces/NS/events (*', 'body.details.group'],
      ['events', 'PATCH /apis/events.k8s.io/v1/namespaces/NS/events/new (strategic) #2', 'body.message'],
      ['events', 'PATCH /apis/events.k8s.io/v1/namespaces/NS/events/new (strategic) #2', 'body.details.group'],
    ],
  ],
  [
    'Definitions go at once, so no condition Terminating is ever seen, and an empty continue token is left out.',
    [
      ['a life of a definition', 'GET /apis/RUN.example.com/v1/namespaces/NS/widgets', 'body.metadata.continue'],
      [
        'a life of a definition',
        'DELETE /apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.RUN.example.com',
        '*',
      ],
    ],
  ],
  [
    'Definitions are refused as well, for the same mistake or not at all where only the author of a definition makes it; the paths name the version.',
    [
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (no versions)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (no storage)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (two storages)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (root type)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (field without type)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (array without items)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (unknown type)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (bad pattern)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (map without keys)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (default of another type)',
        '*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (closed and open)',
        '*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (bad column)',
        '*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (group empty)',
        'body.*',
      ],
      [
        'definitions that are refused',
        'POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All (kind in lower case)',
        '*',
      ],
    ],
  ],
  [
    'All violations of a schema are told at once and in its order, with the field of a failed alternative named; the real server stops at type errors and orders by name.',
    [
      ['custom objects and their schema', 'POST /apis/RUN.example.com/v1/namespaces/NS/widgets', '*'],
      [
        'custom objects and their schema',
        'POST /apis/RUN.example.com/v1/namespaces/NS/widgets?dryRun=All (time)',
        'body.details.causes[0].reason',
      ],
      [
        'custom objects and their schema',
        'POST /apis/RUN.example.com/v1/namespaces/NS/widgets?dryRun=All (one of none)',
        'body.*',
      ],
      [
        'custom objects and their schema',
        'POST /apis/RUN.example.com/v1/namespaces/NS/widgets?dryRun=All (one of both)',
        'body.*',
      ],
      [
        'custom objects and their schema',
        'POST /apis/RUN.example.com/v1/namespaces/NS/widgets?dryRun=All (any of none)',
        'body.*',
      ],
      [
        'custom objects and their schema',
        'POST /apis/RUN.example.com/v1/namespaces/NS/widgets?dryRun=All (not)',
        'body.*',
      ],
    ],
  ],
  [
    "A custom object's status endpoint records no ownership of metadata that it ignores; a subresource that is not there is a path that is not there.",
    [
      [
        'status and generation',
        'PATCH /apis/RUN.example.com/v1/namespaces/NS/widgets/w/status (merge)',
        'body.metadata.managedFields*',
      ],
      [
        'status and generation',
        'PATCH /apis/RUN.example.com/v1/namespaces/NS/widgets/w (merge: status by the main door)',
        'body.metadata.resourceVersion',
      ],
      [
        'status and generation',
        'GET /apis/RUN.example.com/v1/namespaces/NS/widgets/w/status',
        'body.metadata.resourceVersion',
      ],
      [
        'status and generation',
        'PUT /apis/RUN.example.com/v1/namespaces/NS/widgets/w/status',
        'body.metadata.resourceVersion',
      ],
      ['status and generation', 'DELETE /apis/RUN.example.com/v1/namespaces/NS/widgets/w/status', '*'],
      ['without a status subresource', 'GET /apis/RUN.example.com/v1/namespaces/NS/widgets/w/status', '*'],
      ['without a status subresource', 'PATCH /apis/RUN.example.com/v1/namespaces/NS/widgets/w/status (merge)', '*'],
    ],
  ],
  [
    'Descriptions of columns are documentation; `kubectl get` does not show them. Details of column declarations that it does not show either.',
    [
      ['tables of custom objects', 'GET /apis/RUN.example.com/v1/namespaces/NS/widgets as Table', '*'],
      ['tables of custom objects', 'GET /apis/RUN.example.com/v1/namespaces/NS/widgets/b as Table', '*'],
      [
        'tables of custom objects',
        'GET /apis/RUN.example.com/v1/namespaces/NS/gadgets as Table',
        'body.columnDefinitions*',
      ],
      [
        'tables of config maps',
        'GET /api/v1/namespaces/NS/configmaps?labelSelector=x=y&includeObject=Odd as Table',
        '*',
      ],
      ['tables of config maps', 'GET /api/v1/namespaces/NS/configmaps/a as Nonsense', '*'],
      ['tables of config maps', 'GET /api/v1/namespaces/NS/configmaps/a as Table #2', 'body.kind'],
      ['tables of the kinds in use', 'GET /api/v1/namespaces/NS/events?fieldSelector=reason=R as Table', '*'],
      [
        'tables of the kinds in use',
        'GET /apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles as Table',
        'body.columnDefinitions[1].type',
      ],
    ],
  ],
];

export const ACCEPTED: readonly Accepted[] = REASONS.flatMap(([reason, places]) =>
  places.map(([name, step, path]) => ({ case: name, step, path, reason })),
);
