/** The built-in kinds that the programs and the tests use. */
import { textOf } from '../client.ts';
import type { Case, JsonObject } from '../types.ts';
import { names, pod, readyForPods, some, template, without } from './objects.ts';

/** Where controllers write at their own time. */
const settled = without('status', 'metadata.resourceVersion', 'metadata.managedFields', 'metadata.annotations');

const EVENT_TIME = '2001-02-03T04:05:06Z';

const event = (name: string, extra: JsonObject, ns: string): JsonObject => ({
  apiVersion: 'v1',
  kind: 'Event',
  metadata: { name },
  involvedObject: { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy', name: 'p', namespace: ns, uid: 'u-1' },
  reason: 'InvalidSpec',
  message: 'spec.ingress[0]: no',
  type: 'Warning',
  source: { component: 'weir-operator' },
  firstTimestamp: EVENT_TIME,
  lastTimestamp: EVENT_TIME,
  count: 1,
  ...extra,
});

export const kinds: readonly Case[] = [
  {
    name: 'pods',
    run: async (api) => {
      await readyForPods(api);
      const all = api.at('v1', 'pods');
      await api.post(all, pod('plain'));
      await api.post(
        all,
        pod('full', {
          hostNetwork: true,
          restartPolicy: 'Never',
          containers: [
            {
              name: 'main',
              image: 'app',
              ports: [{ name: 'web', containerPort: 80 }],
              resources: { requests: { cpu: 0.5, memory: '64Mi' }, limits: { memory: '64Mi' } },
              readinessProbe: { httpGet: { port: 80 } },
              livenessProbe: { tcpSocket: { port: 'web' } },
              env: [{ name: 'N', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } }],
            },
          ],
          initContainers: [
            { name: 'init', image: 'init@sha256:0000000000000000000000000000000000000000000000000000000000000000' },
          ],
          volumes: [
            { name: 'a', emptyDir: {} },
            { name: 'b', configMap: { name: 'x' } },
            { name: 'c', hostPath: { path: '/x' } },
          ],
        }),
      );
      await api.post(all, {
        metadata: { name: 'account' },
        spec: { schedulerName: 'nobody', serviceAccountName: 'nobody', containers: [{ name: 'c', image: 'i' }] },
      });
      const container = (extra: JsonObject): JsonObject => ({
        containers: [{ name: 'main', image: 'app:1', ...extra }],
      });
      const bad: JsonObject = {
        'no containers': { containers: [] },
        'nothing at all': { containers: null },
        'no image': { containers: [{ name: 'c' }] },
        'no name': { containers: [{ image: 'i' }] },
        'bad name': container({ name: 'Bad_Name' }),
        'two of a name': {
          containers: [
            { name: 'c', image: 'i' },
            { name: 'c', image: 'i' },
          ],
        },
        'port 0': container({ ports: [{ containerPort: 0 }] }),
        'port too large': container({ ports: [{ containerPort: 70_000 }] }),
        'port name': container({ ports: [{ containerPort: 80, name: 'much-too-long-a-name' }] }),
        'port names twice': container({
          ports: [
            { containerPort: 80, name: 'a' },
            { containerPort: 81, name: 'a' },
          ],
        }),
        protocol: container({ ports: [{ containerPort: 80, protocol: 'tcp' }] }),
        'restart policy': { restartPolicy: 'Sometimes' },
        'dns policy': { dnsPolicy: 'Odd' },
        'pull policy': container({ imagePullPolicy: 'Odd' }),
        mount: container({ volumeMounts: [{ name: 'x', mountPath: '/x' }] }),
        'mount path': container({ volumeMounts: [{ name: 'a', mountPath: '' }] }),
        'env name': container({ env: [{ name: '', value: 'x' }] }),
        quantity: container({ resources: { requests: { cpu: 'lots' } } }),
        'limit below request': container({ resources: { requests: { memory: '2Gi' }, limits: { memory: '1Gi' } } }),
        grace: { terminationGracePeriodSeconds: -1 },
        'node name': { nodeName: 'Bad_Node' },
        probe: container({ readinessProbe: {} }),
        'host port': {
          hostNetwork: true,
          containers: [{ name: 'c', image: 'i', ports: [{ containerPort: 80, hostPort: 81 }] }],
        },
      };
      for (const [note, spec] of Object.entries(bad))
        await api.post(all, pod('bad', spec as JsonObject), { note, query: { dryRun: 'All' } });
    },
  },
  {
    name: 'binding, eviction and status of pods',
    run: async (api) => {
      await readyForPods(api);
      const one = api.at('v1', 'pods', 'p');
      await api.quiet('POST', api.at('v1', 'pods'), { body: pod('p') });
      const binding = {
        apiVersion: 'v1',
        kind: 'Binding',
        metadata: { name: 'p' },
        target: { apiVersion: 'v1', kind: 'Node', name: 'no-such-node' },
      };
      await api.post(`${one}/binding`, { ...binding, target: {} }, { note: 'no target' });
      await api.post(`${one}/binding`, binding);
      await api.get(one, { pick: some('spec.nodeName', 'status', 'metadata.generation') });
      await api.post(`${one}/binding`, binding, { note: 'again' });
      await api.post(api.at('v1', 'pods', 'missing', 'binding'), { ...binding, metadata: { name: 'missing' } });
      await api.get(`${one}/status`, { pick: some('kind', 'status.phase') });
      await api.get(one, { note: 'status', pick: some('status') });
      await api.post(`${one}/eviction`, {
        apiVersion: 'policy/v1',
        kind: 'Eviction',
        metadata: { name: 'p' },
        deleteOptions: { gracePeriodSeconds: 0 },
      });
      await api.get(one, { note: 'evicted', pick: some('metadata.deletionTimestamp') });
      await api.post(api.at('v1', 'pods', 'missing', 'eviction'), {
        apiVersion: 'policy/v1',
        kind: 'Eviction',
        metadata: { name: 'missing' },
      });
    },
  },
  {
    name: 'eviction and disruption budgets',
    run: async (api) => {
      await readyForPods(api);
      const all = api.at('policy/v1', 'poddisruptionbudgets');
      const budget = (spec: JsonObject): JsonObject => ({
        apiVersion: 'policy/v1',
        kind: 'PodDisruptionBudget',
        metadata: { name: 'b' },
        spec,
      });
      const selector = { matchLabels: { app: 'p' } };
      await api.post(all, budget({ selector, minAvailable: 1, maxUnavailable: 1 }), { note: 'both' });
      await api.post(all, budget({ selector, minAvailable: '120%' }), { note: 'too much' });
      await api.post(all, budget({ selector, minAvailable: 1 }), { pick: settled });
      await api.quiet('POST', api.at('v1', 'pods'), { body: pod('p') });
      await api.quiet('PATCH', api.at('v1', 'pods', 'p', 'status'), {
        body: { status: { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] } },
        contentType: 'application/merge-patch+json',
      });
      await api.quiet('PATCH', api.at('policy/v1', 'poddisruptionbudgets', 'b', 'status'), {
        body: {
          status: {
            observedGeneration: 1,
            disruptionsAllowed: 0,
            currentHealthy: 1,
            desiredHealthy: 1,
            expectedPods: 1,
          },
        },
        contentType: 'application/merge-patch+json',
      });
      await api.until(
        api.at('policy/v1', 'poddisruptionbudgets', 'b'),
        ({ object }) => (object.status as JsonObject | undefined)?.currentHealthy === 1,
      );
      await api.post(api.at('v1', 'pods', 'p', 'eviction'), {
        apiVersion: 'policy/v1',
        kind: 'Eviction',
        metadata: { name: 'p' },
      });
    },
  },
  {
    name: 'nodes',
    run: async (api) => {
      const name = `node-${api.run}`;
      const one = `/api/v1/nodes/${name}`;
      api.after(() => api.quiet('DELETE', one));
      // A node that looks alive, so that no controller marks it.
      await api.post(
        '/api/v1/nodes',
        {
          apiVersion: 'v1',
          kind: 'Node',
          metadata: { name, labels: { 'kubernetes.io/hostname': name } },
          spec: { podCIDR: '10.244.77.0/24', podCIDRs: ['10.244.77.0/24'] },
          status: { addresses: [{ type: 'InternalIP', address: '192.0.2.7' }] },
        },
        { pick: some('kind', 'metadata.labels', 'metadata.generation', 'spec.podCIDR', 'spec.podCIDRs') },
      );
      await api.patch(
        `${one}/status`,
        'strategic',
        {
          status: {
            addresses: [{ type: 'InternalIP', address: '192.0.2.7' }],
            capacity: { cpu: 2, pods: '110' },
            conditions: [{ type: 'Ready', status: 'True', reason: 'KubeletReady' }],
          },
        },
        { pick: some('status.addresses', 'status.capacity', 'status.allocatable') },
      );
      await api.patch(one, 'merge', { spec: { unschedulable: true } }, { pick: some('spec.unschedulable') });
      await api.get('/api/v1/nodes', {
        query: { fieldSelector: `spec.unschedulable=true,metadata.name=${name}` },
        pick: (body) => (names(body) as JsonObject).items ?? null,
      });
      await api.patch(one, 'merge', { spec: { podCIDR: '10.244.78.0/24', podCIDRs: ['10.244.78.0/24'] } });
      await api.patch(
        `${one}/status`,
        'merge',
        {
          status: {
            addresses: [
              { type: 'InternalIP', address: '192.0.2.8' },
              { type: 'InternalIP', address: '192.0.2.8' },
            ],
          },
        },
        { note: 'duplicate address' },
      );
      await api.patch(one, 'merge', { spec: { taints: [{ key: 'k', effect: 'Odd' }] } });
      await api.delete(one, { pick: some('kind', 'status', 'details.kind') });
    },
  },
  {
    name: 'services',
    run: async (api) => {
      const all = api.at('v1', 'services');
      const service = (name: string, spec: JsonObject): JsonObject => ({
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name },
        spec,
      });
      const { object } = await api.post(
        all,
        service('web', { selector: { app: 'web' }, ports: [{ port: 80, targetPort: 'http' }] }),
      );
      await api.post(all, service('headless', { clusterIP: 'None', selector: { app: 'web' }, ports: [{ port: 80 }] }));
      await api.post(
        all,
        service('node', {
          type: 'NodePort',
          ports: [
            { name: 'a', port: 80 },
            { name: 'b', port: 53, protocol: 'UDP' },
          ],
        }),
      );
      await api.post(all, service('name', { type: 'ExternalName', externalName: 'example.com' }));
      const bad: JsonObject = {
        'no ports': { ports: [] },
        'port 0': { ports: [{ port: 0 }] },
        'target port': { ports: [{ port: 80, targetPort: 0 }] },
        'target name': { ports: [{ port: 80, targetPort: 'NOT A NAME' }] },
        protocol: { ports: [{ port: 80, protocol: 'ICMP' }] },
        'no names': { ports: [{ port: 80 }, { port: 81 }] },
        'one name twice': {
          ports: [
            { name: 'a', port: 80 },
            { name: 'a', port: 81 },
          ],
        },
        'one port twice': {
          ports: [
            { name: 'a', port: 80 },
            { name: 'b', port: 80 },
          ],
        },
        'bad name': { ports: [{ name: 'Bad_Name', port: 80 }] },
        type: { type: 'Odd', ports: [{ port: 80 }] },
        address: { clusterIP: 'nonsense', ports: [{ port: 80 }] },
        'address elsewhere': { clusterIP: '192.0.2.1', ports: [{ port: 80 }] },
        affinity: { sessionAffinity: 'Odd', ports: [{ port: 80 }] },
        'external name missing': { type: 'ExternalName' },
      };
      for (const [note, spec] of Object.entries(bad))
        await api.post(all, service('bad', spec as JsonObject), { note, query: { dryRun: 'All' } });
      const taken = textOf((object.spec as JsonObject).clusterIP);
      await api.post(all, service('taken', { clusterIP: taken, ports: [{ port: 80 }] }));
      const one = api.at('v1', 'services', 'web');
      await api.put(
        one,
        { ...object, spec: { ...(object.spec as JsonObject), clusterIP: '', clusterIPs: [], ports: [{ port: 81 }] } },
        { note: 'address left out', pick: some('spec.ports', 'spec.clusterIP') },
      );
      await api.patch(
        one,
        'merge',
        { spec: { clusterIP: '10.96.200.200', clusterIPs: ['10.96.200.200'] } },
        { note: 'other address' },
      );
      await api.patch(
        one,
        'merge',
        { spec: { type: 'NodePort' } },
        { pick: some('spec.type', 'spec.ports', 'spec.externalTrafficPolicy') },
      );
      await api.patch(
        one,
        'merge',
        { spec: { type: 'ClusterIP' } },
        { pick: some('spec.type', 'spec.ports', 'spec.externalTrafficPolicy') },
      );
    },
  },
  {
    name: 'endpoint slices and endpoints',
    run: async (api) => {
      const all = api.at('discovery.k8s.io/v1', 'endpointslices');
      const slice = (extra: JsonObject): JsonObject => ({
        apiVersion: 'discovery.k8s.io/v1',
        kind: 'EndpointSlice',
        metadata: { name: 's', labels: { 'kubernetes.io/service-name': 'web' } },
        addressType: 'IPv4',
        endpoints: [{ addresses: ['192.0.2.1'], conditions: { ready: true }, targetRef: { kind: 'Pod', name: 'p' } }],
        ports: [{ port: 80 }],
        ...extra,
      });
      await api.post(all, slice({}));
      const one = api.at('discovery.k8s.io/v1', 'endpointslices', 's');
      await api.patch(one, 'merge', { endpoints: [] }, { pick: some('endpoints', 'metadata.generation') });
      await api.patch(one, 'merge', { addressType: 'IPv6' });
      const bad: JsonObject = {
        'no type': { addressType: '' },
        type: { addressType: 'IPX' },
        address: { endpoints: [{ addresses: ['nonsense'] }] },
        'no address': { endpoints: [{ addresses: [] }] },
        family: { endpoints: [{ addresses: ['::1'] }] },
        protocol: { ports: [{ port: 80, protocol: 'ICMP' }] },
        'port twice': {
          ports: [
            { name: 'a', port: 80 },
            { name: 'a', port: 81 },
          ],
        },
      };
      for (const [note, extra] of Object.entries(bad))
        await api.post(all, slice(extra as JsonObject), { note, query: { dryRun: 'All' } });
      await api.post(api.at('v1', 'endpoints'), {
        metadata: { name: 'e' },
        subsets: [{ addresses: [{ ip: '192.0.2.1' }], ports: [{ port: 80 }] }],
      });
    },
  },
  {
    name: 'events',
    run: async (api) => {
      const all = api.at('v1', 'events');
      await api.post(all, event('one', {}, api.ns));
      await api.post(
        all,
        event(
          'two',
          {
            reason: 'Programmed',
            type: 'Normal',
            involvedObject: {
              kind: 'NetworkPolicy',
              apiVersion: 'networking.k8s.io/v1',
              name: 'np',
              namespace: api.ns,
              uid: 'u-2',
              fieldPath: 'spec.x',
            },
          },
          api.ns,
        ),
      );
      for (const fieldSelector of [
        'involvedObject.name=p',
        'involvedObject.kind=NetworkPolicy',
        'involvedObject.uid=u-1',
        `involvedObject.namespace=${api.ns},involvedObject.name=np`,
        'reason=InvalidSpec',
        'type!=Normal',
        'source=weir-operator',
        'reportingComponent=weir-operator',
        'involvedObject.fieldPath=spec.x',
        'involvedObject.apiVersion=cilium.io/v2',
        'message=x',
        'regarding.name=p',
      ])
        await api.get(all, { query: { fieldSelector }, pick: (body) => (names(body) as JsonObject).items ?? null });
      const one = api.at('v1', 'events', 'one');
      await api.patch(
        one,
        'strategic',
        { count: 2, lastTimestamp: '2001-02-03T04:06:06Z' },
        { pick: some('count', 'lastTimestamp', 'firstTimestamp') },
      );
      await api.post(
        all,
        event('elsewhere', { involvedObject: { kind: 'Node', name: 'n', namespace: 'default' } }, api.ns),
        { note: 'other namespace' },
      );
      await api.post(all, event('cluster-wide', { involvedObject: { kind: 'Node', name: 'n' } }, api.ns), {
        note: 'of a cluster-wide object',
      });
      await api.post(
        '/api/v1/namespaces/default/events',
        { ...event(`node.${api.run}`, { involvedObject: { kind: 'Node', name: 'n' } }, '') },
        { note: 'of a node', pick: some('metadata.namespace', 'involvedObject') },
      );
      api.after(() => api.quiet('DELETE', `/api/v1/namespaces/default/events/node.${api.run}`));
      await api.post(all, event('odd', { type: 'Odd' }, api.ns), { pick: some('type') });
      const modern = api.at('events.k8s.io/v1', 'events');
      await api.get(api.at('events.k8s.io/v1', 'events', 'one'));
      const newer = {
        apiVersion: 'events.k8s.io/v1',
        kind: 'Event',
        metadata: { name: 'new' },
        eventTime: '2001-02-03T04:05:06.000001Z',
        action: 'Check',
        reason: 'Programmed',
        type: 'Normal',
        note: 'all nodes',
        reportingController: 'weir.dev/operator',
        reportingInstance: 'weir-operator-0',
        regarding: { kind: 'NetworkPolicy', name: 'np', namespace: api.ns },
      };
      await api.post(modern, newer);
      await api.get(api.at('v1', 'events', 'new'), { pick: without('metadata.managedFields') });
      await api.post(
        modern,
        {
          ...newer,
          metadata: { name: 'bad' },
          eventTime: null,
          action: '',
          reportingController: '',
          reportingInstance: '',
        },
        { note: 'nothing required' },
      );
      await api.post(modern, { ...newer, metadata: { name: 'bad' }, type: 'Odd' }, { note: 'odd type' });
      await api.post(modern, { ...newer, metadata: { name: 'bad' }, reason: 'x'.repeat(129) }, { note: 'long reason' });
      await api.patch(
        api.at('events.k8s.io/v1', 'events', 'new'),
        'strategic',
        { series: { count: 2, lastObservedTime: '2001-02-03T04:06:06.000001Z' } },
        { pick: some('series') },
      );
      await api.patch(api.at('events.k8s.io/v1', 'events', 'new'), 'strategic', { note: 'other' });
    },
  },
  {
    name: 'workloads',
    run: async (api) => {
      await readyForPods(api);
      const labels = { app: 'w' };
      const workload = (kind: string, spec: JsonObject = {}): JsonObject => ({
        apiVersion: 'apps/v1',
        kind,
        metadata: { name: 'w' },
        spec: { selector: { matchLabels: labels }, template: template(labels), ...spec },
      });
      const never = { nodeSelector: { never: 'here' }, containers: [{ name: 'main', image: 'app:1' }] };
      await api.post(api.at('apps/v1', 'deployments'), workload('Deployment', { replicas: 0, paused: true }), {
        pick: settled,
      });
      await api.post(
        api.at('apps/v1', 'daemonsets'),
        workload('DaemonSet', { template: { metadata: { labels }, spec: never } }),
        { pick: settled },
      );
      await api.post(api.at('apps/v1', 'replicasets'), workload('ReplicaSet', { replicas: 0 }), { pick: settled });
      await api.post(api.at('apps/v1', 'statefulsets'), workload('StatefulSet', { replicas: 0, serviceName: 'w' }), {
        pick: settled,
      });
      await api.post(
        api.at('batch/v1', 'jobs'),
        {
          metadata: { name: 'j' },
          spec: {
            suspend: true,
            template: { spec: { restartPolicy: 'Never', containers: [{ name: 'c', image: 'i:1' }] } },
          },
        },
        { pick: settled },
      );
      await api.post(
        api.at('batch/v1', 'jobs'),
        { metadata: { name: 'k' }, spec: { template: { spec: { containers: [{ name: 'c', image: 'i:1' }] } } } },
        { note: 'restart policy' },
      );
      const bad: JsonObject = {
        'no selector': { selector: null },
        'empty selector': { selector: {} },
        'labels differ': { selector: { matchLabels: { app: 'other' } } },
        'negative replicas': { replicas: -1 },
        'no template': { template: null },
        'no containers': { template: { metadata: { labels }, spec: { containers: [] } } },
        'restart policy': {
          template: { metadata: { labels }, spec: { restartPolicy: 'Never', containers: [{ name: 'c', image: 'i' }] } },
        },
        'bad surge': { strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: 0, maxUnavailable: 0 } } },
        strategy: { strategy: { type: 'Odd' } },
      };
      for (const [note, spec] of Object.entries(bad))
        await api.post(api.at('apps/v1', 'deployments'), workload('Deployment', spec as JsonObject), {
          note,
          query: { dryRun: 'All' },
        });
      await api.patch(api.at('apps/v1', 'deployments', 'w'), 'merge', {
        spec: { selector: { matchLabels: { app: 'x' } }, template: template({ app: 'x' }) },
      });
      await api.patch(
        api.at('apps/v1', 'daemonsets', 'w'),
        'merge',
        { metadata: { annotations: { 'weir.dev/uninstall': EVENT_TIME } } },
        { pick: some('metadata.generation') },
      );
      await api.patch(
        api.at('apps/v1', 'daemonsets', 'w'),
        'merge',
        { spec: { minReadySeconds: 1 } },
        { pick: some('metadata.generation', 'spec.minReadySeconds') },
      );
    },
  },
  {
    name: 'scale',
    run: async (api) => {
      await readyForPods(api);
      const labels = { app: 'r', b: 'c' };
      const one = api.at('apps/v1', 'replicasets', 'r');
      await api.quiet('POST', api.at('apps/v1', 'replicasets'), {
        body: {
          metadata: { name: 'r' },
          spec: { replicas: 0, selector: { matchLabels: labels }, template: template(labels) },
        },
      });
      await api.get(`${one}/scale`, { pick: without('metadata.resourceVersion') });
      await api.patch(`${one}/scale`, 'merge', { spec: { replicas: -1 } });
      await api.put(
        `${one}/scale`,
        { apiVersion: 'autoscaling/v1', kind: 'Scale', metadata: { name: 'r' }, spec: { replicas: 0 } },
        { pick: some('kind', 'spec') },
      );
      await api.put(
        `${one}/scale`,
        {
          apiVersion: 'autoscaling/v1',
          kind: 'Scale',
          metadata: { name: 'r', resourceVersion: '1' },
          spec: { replicas: 1 },
        },
        { note: 'stale' },
      );
      await api.get(api.at('apps/v1', 'replicasets', 'missing', 'scale'));
      await api.get(api.at('apps/v1', 'daemonsets', 'missing', 'scale'));
    },
  },
];
