import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { text } from './json.ts';
import {
  type Cluster,
  configMap,
  core,
  named,
  pod,
  startCluster,
  until,
  widget,
  widgetDefinition,
} from './test-support.ts';

let cluster: Cluster;

beforeAll(async () => {
  cluster = await startCluster({ crds: [widgetDefinition()] });
});

afterAll(() => cluster.close());

const deployment = (image: string, env: string[]): object => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'web' },
  spec: {
    replicas: 2,
    selector: { matchLabels: { app: 'web' } },
    template: {
      metadata: { labels: { app: 'web' } },
      spec: {
        containers: [
          { name: 'c', image, env: env.map((name) => ({ name, value: name })), ports: [{ containerPort: 80 }] },
        ],
      },
    },
  },
});

describe('kubectl', () => {
  it('finds the server: version, cluster-info, api-resources, api-versions, auth can-i', async () => {
    expect(await cluster.ok(['version'])).toContain('Server Version: v1.34');
    expect(await cluster.ok(['cluster-info'])).toContain('is running at');
    const resources = await cluster.ok(['api-resources']);
    expect(resources).toMatch(/widgets\s+wd\s+example.com\/v1\s+true\s+Widget/);
    expect(resources).toMatch(/networkpolicies\s+netpol\s+networking.k8s.io\/v1/);
    expect((await cluster.ok(['api-versions'])).split('\n')).toEqual(
      expect.arrayContaining(['apps/v1', 'example.com/v1', 'v1']),
    );
    expect((await cluster.ok(['auth', 'can-i', 'delete', 'pods'])).trim()).toBe('yes');
  });

  it('applies, sees no change, diffs and applies a change by strategic merge', async () => {
    expect(await cluster.ok(['apply', '-f', '-'], deployment('web:1', ['A', 'B']))).toBe(
      'deployment.apps/web created\n',
    );
    const before = cluster.server.stats.resourceVersion;
    expect(await cluster.ok(['apply', '-f', '-'], deployment('web:1', ['A', 'B']))).toBe(
      'deployment.apps/web unchanged\n',
    );
    expect(cluster.server.stats.resourceVersion).toBe(before);
    const diff = await cluster.kubectl(['diff', '-f', '-'], deployment('web:2', ['B']));
    expect(diff.code).toBe(1);
    expect(diff.stdout).toMatch(/-\s+image: web:1\n\+\s+image: web:2/);
    expect(cluster.server.stats.resourceVersion).toBe(before);
    expect(await cluster.ok(['apply', '-f', '-'], deployment('web:2', ['B']))).toBe('deployment.apps/web configured\n');
    const env = await cluster.ok([
      'get',
      'deploy',
      'web',
      '-o',
      'jsonpath={.spec.template.spec.containers[0].env[*].name}',
    ]);
    expect(env).toBe('B');
    expect(await cluster.ok(['get', 'deploy', 'web', '-o', 'wide'])).toMatch(
      /web\s+0\/2\s+0\s+0\s+\d+s\s+c\s+web:2\s+app=web/,
    );
  });

  it('applies server-side, tells conflicts, and takes over by force', async () => {
    const config = (value: string): object => configMap('ssa', { key: value });
    const apply = (manager: string, value: string, ...more: string[]) =>
      cluster.kubectl(['apply', '--server-side', `--field-manager=${manager}`, '-f', '-', ...more], config(value));
    expect((await apply('one', 'a')).code).toBe(0);
    const refused = await apply('two', 'b');
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('conflict with "one": .data.key');
    expect((await apply('two', 'b', '--force-conflicts')).code).toBe(0);
    expect(await cluster.ok(['get', 'cm', 'ssa', '-o', 'jsonpath={.data.key}'])).toBe('b');
    const managers = await cluster.ok([
      'get',
      'cm',
      'ssa',
      '--show-managed-fields',
      '-o',
      'jsonpath={.metadata.managedFields[*].manager}',
    ]);
    expect(managers).toBe('two');
  });

  it('moves from client-side to server-side apply without a conflict', async () => {
    await cluster.ok(['apply', '-f', '-'], configMap('moved', { key: 'a', gone: 'x' }));
    await cluster.ok(['apply', '--server-side', '-f', '-'], configMap('moved', { key: 'b' }));
    expect(await cluster.ok(['get', 'cm', 'moved', '-o', 'jsonpath={.data}'])).toBe('{"key":"b"}');
  });

  it('gets by label, by field, over all namespaces and as columns of a custom kind', async () => {
    await cluster.ok(['create', 'namespace', 'other']);
    await cluster.ok(['apply', '-f', '-'], pod('alpha', { nodeName: 'n1' }));
    await cluster.ok(['apply', '-n', 'other', '-f', '-'], pod('beta'));
    expect(await cluster.ok(['get', 'po', '-A', '-l', 'app in (beta)'])).toMatch(/other\s+beta\s+0\/1\s+Pending/);
    expect(await cluster.ok(['get', 'po', '-A', '-l', 'app in (beta)'])).not.toContain('alpha');
    expect(await cluster.ok(['get', 'po', '-A', '--field-selector', 'spec.nodeName=n1', '-o', 'name'])).toBe(
      'pod/alpha\n',
    );
    const bad = await cluster.kubectl(['get', 'po', '--field-selector', 'spec.unknown=1']);
    expect(bad.stderr).toContain('field label not supported: spec.unknown');
    await cluster.ok(['apply', '-f', '-'], widget('w1'));
    expect(await cluster.ok(['get', 'wd'])).toMatch(/^NAME\s+SIZE\s+READY\s*\nw1\s+3\s*\n$/);
    expect(await cluster.ok(['get', 'wd', '-o', 'wide'])).toMatch(/COLOR\nw1\s+3\s+red/);
    expect(await cluster.ok(['get', 'wd', 'w1', '-o', 'yaml'])).toContain('color: red');
  });

  it('describes a pod with its events', async () => {
    const uid = text(await cluster.server.client.get(named(core('pods'), 'alpha')), 'metadata', 'uid');
    await cluster.server.client.create(core('events'), {
      metadata: { generateName: 'alpha.' },
      involvedObject: { apiVersion: 'v1', kind: 'Pod', namespace: 'default', name: 'alpha', uid },
      reason: 'Observed',
      message: 'seen by a test',
      type: 'Normal',
      source: { component: 'test' },
    });
    expect(await cluster.ok(['describe', 'pod', 'alpha'])).toMatch(/Normal\s+Observed.*seen by a test/);
    expect(await cluster.ok(['get', 'events', '--field-selector', 'involvedObject.name=alpha'])).toMatch(
      /Observed\s+pod\/alpha\s+seen by a test/,
    );
    const renamed = await cluster.ok(['get', 'events.v1.events.k8s.io', '-o', 'jsonpath={.items[0].note}']);
    expect(renamed).toBe('seen by a test');
  });

  it('waits for a condition, for a path and for deletion', async () => {
    const condition = cluster.ok(['wait', '--for=condition=Ready', 'wd/w1', '--timeout=60s']);
    await cluster.ok([
      'patch',
      'wd',
      'w1',
      '--subresource=status',
      '--type=merge',
      '-p',
      '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}',
    ]);
    expect(await condition).toContain('condition met');
    expect(await cluster.ok(['wait', '--for=jsonpath={.spec.color}=red', 'wd/w1', '--timeout=60s'])).toContain(
      'condition met',
    );
    await cluster.ok(['apply', '-f', '-'], widget('doomed'));
    const watches = cluster.server.stats.count({ verb: 'watch', resource: 'widgets' });
    const gone = cluster.ok(['wait', '--for=delete', 'wd/doomed', '--timeout=60s']);
    await until(() => cluster.server.stats.count({ verb: 'watch', resource: 'widgets' }) > watches);
    await cluster.ok(['delete', 'wd', 'doomed']);
    expect(await gone).toContain('condition met');
  });

  it('edits, patches three ways, replaces, labels and annotates', async () => {
    await cluster.ok(['apply', '-f', '-'], widget('edited', { size: 4 }));
    await cluster.ok(['edit', 'wd', 'edited'], undefined, { KUBE_EDITOR: 'sed -i s/size:.4/size:\\ 5/' });
    const read = (path: string): Promise<string> => cluster.ok(['get', 'wd', 'edited', '-o', `jsonpath={${path}}`]);
    expect(await read('.spec.size')).toBe('5');
    await cluster.ok([
      'patch',
      'wd',
      'edited',
      '--type=json',
      '-p',
      '[{"op":"replace","path":"/spec/size","value":6}]',
    ]);
    expect(await read('.spec.size')).toBe('6');
    const strategic = await cluster.kubectl(['patch', 'wd', 'edited', '--type=strategic', '-p', '{"spec":{"size":7}}']);
    expect(strategic.code).toBe(1);
    await cluster.ok([
      'patch',
      'deploy',
      'web',
      '-p',
      '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}',
    ]);
    expect(await cluster.ok(['get', 'deploy', 'web', '-o', 'jsonpath={.spec.template.spec.containers[*].name}'])).toBe(
      'side c',
    );
    await cluster.ok(['label', 'wd', 'edited', 'tier=one']);
    await cluster.ok(['annotate', 'wd', 'edited', 'note=two']);
    expect(await read('.metadata.labels.tier')).toBe('one');
    await cluster.ok(['replace', '-f', '-'], widget('edited', { size: 9 }));
    expect(await read('.spec.size')).toBe('9');
    expect(await read('.metadata.labels')).toBe('');
  });

  it('explains built-in and custom fields', async () => {
    expect(await cluster.ok(['explain', 'pod.spec.containers.image'])).toContain('Container image name');
    expect(await cluster.ok(['explain', 'widget.spec'])).toMatch(/size\s+<integer> -required-\n\s+How big it is\./);
    expect(await cluster.ok(['explain', 'deployment', '--recursive'])).toContain('maxSurge');
  });

  it('creates from generators, which send protobuf', async () => {
    await cluster.ok(['create', 'configmap', 'made', '--from-literal=k=v']);
    await cluster.ok(['create', 'secret', 'generic', 'made', '--from-literal=k=v']);
    await cluster.ok(['create', 'deployment', 'made', '--image=img:1', '--replicas=3', '--port=80']);
    await cluster.ok(['create', 'service', 'clusterip', 'made', '--tcp=80:8080']);
    await cluster.ok(['create', 'role', 'made', '--verb=get', '--resource=pods']);
    await cluster.ok(['create', 'job', 'made', '--image=img:1']);
    expect(await cluster.ok(['get', 'cm', 'made', '-o', 'jsonpath={.data.k}'])).toBe('v');
    expect(await cluster.ok(['get', 'secret', 'made', '-o', 'jsonpath={.data.k}'])).toBe('dg==');
    expect(
      await cluster.ok([
        'get',
        'deploy',
        'made',
        '-o',
        'jsonpath={.spec.replicas} {.spec.template.spec.containers[0].ports[0].containerPort}',
      ]),
    ).toBe('3 80');
    expect(await cluster.ok(['get', 'svc', 'made', '-o', 'jsonpath={.spec.ports[0].targetPort}'])).toBe('8080');
    expect(await cluster.ok(['get', 'svc', 'made', '-o', 'jsonpath={.spec.clusterIP}'])).toMatch(/^10\.96\./);
  });

  it('deletes one, by label, and a namespace with its content', async () => {
    expect(await cluster.ok(['delete', 'cm', 'made'])).toContain('configmap "made" deleted');
    await cluster.ok(['delete', 'cm', 'made', '--ignore-not-found']);
    expect((await cluster.kubectl(['delete', 'cm', 'made'])).stderr).toContain('configmaps "made" not found');
    await cluster.ok(['delete', 'po', '-n', 'other', '-l', 'app=beta']);
    await cluster.ok(['apply', '-n', 'other', '-f', '-'], configMap('inside'));
    await cluster.ok(['delete', 'ns', 'other', '--timeout=60s']);
    expect((await cluster.kubectl(['get', 'cm', 'inside', '-n', 'other'])).stderr).toContain('not found');
    const late = await cluster.kubectl(['apply', '-n', 'other', '-f', '-'], configMap('late'));
    expect(late.stderr).toContain('namespaces "other" not found');
  });

  it('refuses what a real server refuses, naming the path', async () => {
    const unknown = await cluster.kubectl(['apply', '-f', '-'], widget('bad', { size: 3, shape: 'x' }));
    expect(unknown.stderr).toContain('strict decoding error: unknown field "spec.shape"');
    const large = await cluster.kubectl(['apply', '-f', '-'], widget('bad', { size: 30 }));
    expect(large.stderr).toContain(
      'The Widget "bad" is invalid: spec.size: Invalid value: 30: spec.size in body should be less than or equal to 10',
    );
    const port = await cluster.kubectl(['apply', '-f', '-'], {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'bad' },
      spec: { ports: [{ port: 70000 }] },
    });
    expect(port.stderr).toContain('spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535');
  });
});
