import { describe, expect, it } from '@jest/globals';
import { createApiServer, StatusError } from './index.ts';
import { at, copy, type JsonObject, list, object, text } from './json.ts';
import { core, named, WIDGETS, widget, widgetDefinition } from './test-support.ts';

const CRDS = { group: 'apiextensions.k8s.io', version: 'v1', plural: 'customresourcedefinitions' };

async function causesOf(promise: Promise<unknown>): Promise<string[]> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof StatusError)) throw new Error(`expected a refusal, got ${String(error)}`);
  return (error.details?.causes ?? []).map((cause) => `${cause.field}: ${cause.message}`);
}

/** The widget definition with `change` applied to the properties of its spec. */
function definition(change: (properties: JsonObject) => void): JsonObject {
  const crd = widgetDefinition();
  change(object(list(crd, 'spec', 'versions')[0], 'schema', 'openAPIV3Schema', 'properties', 'spec', 'properties'));
  return crd;
}

describe('a custom resource definition', () => {
  it('serves its resource at once, tells so, and takes the objects along when it goes', async () => {
    const { client } = createApiServer();
    const refused = await client
      .create(WIDGETS, widget('early'))
      .catch((reason: unknown) => (reason as StatusError).httpStatus);
    expect(refused).toBe(404);
    const crd = await client.create(CRDS, widgetDefinition());
    const conditions = list(crd, 'status', 'conditions').map((c) => `${text(c, 'type')}=${text(c, 'status')}`);
    expect(conditions).toEqual(['NamesAccepted=True', 'Established=True']);
    expect(at(await client.create(WIDGETS, widget('w')), 'spec', 'color')).toBe('red');
    await client.delete(named(CRDS, 'widgets.example.com'));
    await client.create(CRDS, widgetDefinition());
    expect(list(await client.list(WIDGETS), 'items')).toEqual([]);
  });

  it('can be changed: new fields are kept, stored objects stay', async () => {
    const { client } = createApiServer({ crds: [widgetDefinition()] });
    await client.create(WIDGETS, widget('w'));
    const wider = definition((properties) => {
      properties.weight = { type: 'integer', default: 7 };
    });
    await client.patch(named(CRDS, 'widgets.example.com'), 'merge', { spec: object(wider, 'spec') });
    const grown = await client.patch(named(WIDGETS, 'w'), 'merge', { spec: { size: 4 } });
    expect(at(grown, 'spec')).toEqual({ size: 4, color: 'red', weight: 7 });
  });

  it('is refused when its rules cannot be kept, with the path of the reason', async () => {
    const { client } = createApiServer();
    const cel = definition((properties) => {
      object(properties, 'size')['x-kubernetes-validations'] = [
        { rule: 'self >' },
        { rule: 'self >= oldSelf' },
        { rule: 'true', reason: 'FieldValueInvalid' },
      ];
    });
    const causes = await causesOf(client.create(CRDS, cel));
    expect(causes).toEqual([
      expect.stringMatching(
        /properties\[size\]\.x-kubernetes-validations\[0\]\.rule: Invalid value: .*compilation failed/,
      ),
      expect.stringMatching(/x-kubernetes-validations\[1\]\.rule: Forbidden: this server knows no transition rules/),
      expect.stringMatching(/x-kubernetes-validations\[2\]\.reason: Forbidden/),
    ]);
    const wrong = copy(widgetDefinition());
    object(wrong, 'metadata').name = 'gadgets.example.com';
    expect((await causesOf(client.create(CRDS, wrong)))[0]).toContain('metadata.name: Invalid value');
  });

  const server = createApiServer({
    crds: [
      definition((properties) => {
        properties.either = {
          type: 'object',
          properties: { a: { type: 'string' }, b: { type: 'string' } },
          oneOf: [
            { properties: { a: {} }, required: ['a'] },
            { properties: { b: {} }, required: ['b'] },
          ],
        };
        properties.some = { type: 'array', items: { type: 'string', pattern: '^x' }, maxItems: 2 };
        properties.maybe = { type: 'string', nullable: true };
        properties.pair = {
          type: 'object',
          properties: { a: { type: 'string' }, b: { type: 'array', items: { type: 'string' } } },
          'x-kubernetes-validations': [
            { rule: 'has(self.a) != (has(self.b) && size(self.b) > 0)', message: 'write a or b' },
          ],
        };
        properties.embedded = {
          type: 'object',
          'x-kubernetes-embedded-resource': true,
          'x-kubernetes-preserve-unknown-fields': true,
        };
      }),
    ],
  });
  const { client } = server;

  it.each<[string, JsonObject, string]>([
    ['a missing field', {}, 'spec.size: Required value'],
    [
      'a wrong type',
      { size: 'x' },
      'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"',
    ],
    [
      'a low number',
      { size: 0 },
      'spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1',
    ],
    ['a rule in CEL that does not hold', { size: 1, pair: {} }, 'spec.pair: Invalid value: "object": write a or b'],
    [
      'a rule in CEL where a type is wrong',
      { size: 1, pair: { a: 1 } },
      'spec.pair.a: Invalid value: "integer": spec.pair.a in body must be of type string: "integer"',
    ],
    [
      'an unknown choice',
      { size: 1, color: 'green' },
      'spec.color: Unsupported value: "green": supported values: "red", "blue"',
    ],
    [
      'a pattern',
      { size: 1, some: ['xa', 'b'] },
      `spec.some[1]: Invalid value: "b": spec.some[1] in body should match '^x'`,
    ],
    ['too many items', { size: 1, some: ['x', 'x', 'x'] }, 'spec.some: Too many: 3: must have at most 2 items'],
    ['a repeated key', { size: 1, ports: [{ port: 1 }, { port: 1 }] }, 'spec.ports[1]: Duplicate value: {"port":1}'],
    ['a repeated set member', { size: 1, tags: ['a', 'a'] }, 'spec.tags[1]: Duplicate value: "a"'],
    ['two of one', { size: 1, either: { a: 'x', b: 'y' } }, 'Found 2 valid alternatives'],
    [
      'an embedded object without a kind',
      { size: 1, embedded: { apiVersion: 'v1' } },
      'spec.embedded.kind: Required value',
    ],
    ['neither number nor string', { size: 1, target: true }, 'spec.target: Invalid value: "boolean"'],
  ])('refuses %s', async (_what, spec, expected) => {
    const causes = await causesOf(client.create(WIDGETS, widget('bad', spec)));
    expect(causes.some((cause) => cause.includes(expected))).toBe(true);
  });

  it('accepts what the schema allows, prunes the rest, and keeps free parts', async () => {
    const embedded = { apiVersion: 'v1', kind: 'Any', metadata: { name: 'x' }, more: [1] };
    const spec = {
      size: 1,
      target: 'http',
      either: { a: 'x' },
      maybe: null,
      color: null,
      embedded,
      free: { deep: { er: 1 } },
    };
    const stored = await client.create(WIDGETS, widget('good', { ...spec, unknown: { a: 1 } }));
    expect(at(stored, 'spec')).toEqual({ ...spec, color: 'red' });
  });
});

describe('manifests of ordinary charts', () => {
  it('are accepted as they are', async () => {
    const { client } = createApiServer();
    const labels = { app: 'x' };
    const podSpec = {
      serviceAccountName: 'x',
      tolerations: [{ operator: 'Exists' }],
      affinity: {
        podAntiAffinity: {
          preferredDuringSchedulingIgnoredDuringExecution: [
            { weight: 1, podAffinityTerm: { topologyKey: 'h', labelSelector: { matchLabels: labels } } },
          ],
        },
      },
      securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
      volumes: [
        { name: 'v', hostPath: { path: '/sys/fs/bpf', type: 'DirectoryOrCreate' } },
        { name: 'c', configMap: { name: 'x' } },
      ],
      containers: [
        {
          name: 'x',
          image: 'x:1',
          args: ['--a'],
          resources: { limits: { cpu: 1, memory: '64Mi' }, requests: { cpu: '10m' } },
          livenessProbe: { httpGet: { path: '/healthz', port: 'http' } },
          ports: [{ name: 'http', containerPort: 8080 }],
          env: [{ name: 'NODE', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } }],
          securityContext: { capabilities: { add: ['BPF'], drop: ['ALL'] }, privileged: false },
          volumeMounts: [{ name: 'v', mountPath: '/sys/fs/bpf', mountPropagation: 'Bidirectional' }],
        },
      ],
    };
    const template = { metadata: { labels, annotations: { sum: 'x' }, creationTimestamp: null }, spec: podSpec };
    const rbac = { group: 'rbac.authorization.k8s.io', version: 'v1' };
    const apps = { group: 'apps', version: 'v1', namespace: 'kube-system' };
    const metadata = { name: 'x' };
    const rules = [{ apiGroups: [''], resources: ['pods'], verbs: ['get', 'list', 'watch'] }];
    const roleRef = { apiGroup: rbac.group, kind: 'ClusterRole', name: 'x' };
    const subjects = [{ kind: 'ServiceAccount', name: 'x', namespace: 'kube-system' }];
    const strict = { fieldValidation: 'Strict' } as const;
    await client.create(
      core('serviceaccounts', 'kube-system'),
      { metadata, automountServiceAccountToken: true },
      strict,
    );
    await client.create({ ...rbac, plural: 'clusterroles' }, { metadata, rules }, strict);
    await client.create({ ...rbac, plural: 'clusterrolebindings' }, { metadata, roleRef, subjects }, strict);
    await client.create(
      { ...apps, plural: 'daemonsets' },
      {
        metadata,
        spec: {
          selector: { matchLabels: labels },
          template,
          updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 2 } },
        },
      },
      strict,
    );
    const deployment = await client.create(
      { ...apps, plural: 'deployments' },
      { metadata, spec: { replicas: 2, selector: { matchLabels: labels }, template } },
      strict,
    );
    expect(at(list(deployment, 'spec', 'template', 'spec', 'containers')[0], 'resources', 'limits', 'cpu')).toBe('1');
    const pdb = { group: 'policy', version: 'v1', plural: 'poddisruptionbudgets', namespace: 'kube-system' };
    await client.create(pdb, { metadata, spec: { maxUnavailable: 1, selector: { matchLabels: labels } } }, strict);
    const policies = { group: 'networking.k8s.io', version: 'v1', plural: 'networkpolicies', namespace: 'default' };
    const policy = await client.create(
      policies,
      {
        metadata,
        spec: { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: '10.0.0.0/8' } }], ports: [{ port: 80 }] }] },
      },
      strict,
    );
    expect(at(policy, 'spec', 'policyTypes')).toEqual(['Ingress']);
    const lease = { group: 'coordination.k8s.io', version: 'v1', plural: 'leases', namespace: 'default' };
    await client.create(
      lease,
      { metadata, spec: { holderIdentity: 'x', leaseDurationSeconds: 15, renewTime: '2026-01-01T00:00:00.000000Z' } },
      strict,
    );
    const slices = { group: 'discovery.k8s.io', version: 'v1', plural: 'endpointslices', namespace: 'default' };
    await client.create(
      slices,
      {
        metadata,
        addressType: 'IPv4',
        endpoints: [{ addresses: ['10.0.0.1'], conditions: { ready: true } }],
        ports: [{ port: 80 }],
      },
      strict,
    );
  });
});
