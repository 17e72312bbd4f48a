import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { OPENAPI_V2_PROTOBUF } from './openapi-v2.ts';
import { type Cluster, configMap, pod, startCluster, widget, widgetDefinition } from './test-support.ts';

let cluster: Cluster;

beforeAll(async () => {
  cluster = await startCluster({ crds: [widgetDefinition()] });
});

afterAll(() => cluster.close());

const listOf = (...items: readonly object[]): object => ({ apiVersion: 'v1', kind: 'List', items });
const deployment = {
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
          {
            name: 'c',
            image: 'i',
            resources: { limits: { cpu: 1 } },
            readinessProbe: { httpGet: { port: 80 } },
          },
        ],
      },
    },
  },
};

describe('kubectl with lists', () => {
  it('applies a List of built-in and custom kinds, and what it got as YAML', async () => {
    const items = [{ apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' } }, pod('p1'), widget('w1'), deployment];
    expect(await cluster.ok(['apply', '-f', '-'], listOf(...items))).toBe(
      'node/n1 created\npod/p1 created\nwidget.example.com/w1 created\ndeployment.apps/web created\n',
    );
    const yaml = await cluster.ok(['get', 'nodes,pods,wd,deploy', '-o', 'yaml']);
    expect(yaml).toContain('kind: List');
    const applied = await cluster.ok(['apply', '-f', '-'], yaml);
    expect(applied.match(/^\S+ (configured|unchanged)$/gm)).toHaveLength(items.length);
    expect(await cluster.ok(['get', 'wd', 'w1', '-o', 'jsonpath={.spec.size} {.metadata.generation}'])).toBe('3 1');
  });

  it('refuses unknown fields of items before anything is written', async () => {
    const before = cluster.server.stats.resourceVersion;
    const custom = await cluster.kubectl(
      ['apply', '-f', '-'],
      listOf(configMap('first'), widget('w2', { size: 3, shape: 1 })),
    );
    expect(custom.stderr).toContain('ValidationError(Widget.spec): unknown field "shape"');
    const built = await cluster.kubectl(['apply', '-f', '-'], listOf({ ...configMap('second'), dta: {} }));
    expect(built.stderr).toContain('ValidationError(ConfigMap): unknown field "dta"');
    const wrong = await cluster.kubectl(['apply', '-f', '-'], listOf(pod('p2', { containers: 'none' })));
    expect(wrong.stderr).toContain('invalid type for io.k8s.api.v1.PodSpec.containers');
    expect(cluster.server.stats.resourceVersion).toBe(before);
  });

  it('knows a definition that came after the document was read', async () => {
    const late = JSON.parse(JSON.stringify(widgetDefinition()).replaceAll('idget', 'adget')) as object;
    await cluster.ok(['apply', '-f', '-'], late);
    const gadget = { apiVersion: 'example.com/v1', kind: 'Wadget', metadata: { name: 'g' }, spec: { sise: 3 } };
    const refused = await cluster.kubectl(['apply', '-f', '-'], listOf(gadget));
    expect(refused.stderr).toContain('unknown field "sise"');
    expect(refused.stderr).toContain('missing required field "size"');
  });

  it('serves the document as JSON and, when asked by either name, as protobuf', async () => {
    const json = (await (await fetch(`${cluster.url}/openapi/v2`)).json()) as {
      swagger: string;
      paths: Record<string, unknown>;
      definitions: Record<string, { properties: Record<string, unknown> }>;
    };
    expect(json.swagger).toBe('2.0');
    expect(json.definitions['com.example.v1.Widget']?.properties.metadata).toMatchObject({
      $ref: '#/definitions/io.k8s.api.v1.ObjectMeta',
    });
    expect(Object.keys(json.paths)).toContain('/api/v1/namespaces/{namespace}/pods/{name}');
    for (const accept of [OPENAPI_V2_PROTOBUF, OPENAPI_V2_PROTOBUF.replace('v2.v1', 'v2@v1')]) {
      const answer = await fetch(`${cluster.url}/openapi/v2`, { headers: { accept } });
      expect(answer.headers.get('content-type')).toBe(OPENAPI_V2_PROTOBUF);
    }
  });
});

describe('kubectl with subresources', () => {
  it('scales a workload, with and without a precondition', async () => {
    await cluster.ok(['apply', '-f', '-'], deployment);
    expect(await cluster.ok(['scale', 'deploy/web', '--replicas=5'])).toBe('deployment.apps/web scaled\n');
    const late = await cluster.kubectl(['scale', 'deploy/web', '--current-replicas=2', '--replicas=7']);
    expect(late.stderr).toContain('Expected replicas to be 2, was 5');
    await cluster.ok(['scale', 'deploy/web', '--current-replicas=5', '--replicas=0']);
    expect(await cluster.ok(['get', 'deploy', 'web', '-o', 'jsonpath={.spec.replicas}'])).toBe('0');
    expect(await cluster.ok(['get', 'deploy', 'web', '--subresource=scale', '-o', 'jsonpath={.status.selector}'])).toBe(
      'app=web',
    );
  });

  it.each([[['logs', 'p1']], [['exec', 'p1', '--', 'ls']]])(
    'says of %j that pods here have no kubelet',
    async (args) => {
      const refused = await cluster.kubectl(args);
      expect(refused.code).toBe(1);
      expect(refused.stderr).toContain('pods of this cluster have no kubelet API');
    },
  );

  it('evicts by deleting: drain sends its options as protobuf', async () => {
    await cluster.ok(['apply', '-f', '-'], pod('evicted', { nodeName: 'n1' }));
    const drained = await cluster.kubectl(['drain', 'n1', '--force', '--grace-period=0', '--timeout=60s']);
    expect(drained.stdout).toContain('node/n1 drained');
    expect((await cluster.kubectl(['get', 'pod', 'evicted'])).stderr).toContain('not found');
  });
});
