/**
 * What a real API server lets each component do: exactly what test/chart/access.ts lists with its reasons. Asked by `kubectl auth
 * can-i`, of the roles as helm installs them.
 */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { ACCESS, type Access } from '../chart/access.ts';
import { CHART, objects, template } from '../chart/render.ts';
import { RealCluster } from '../cluster/real/index.ts';

const RELEASE = 'kube-system';
const COMPONENTS = [...new Set(ACCESS.map(({ component }) => component))];
const WRITES = ['create', 'update', 'patch', 'delete', 'deletecollection'];
const user = (component: string): string => `--as=system:serviceaccount:${RELEASE}:${component}`;

describe('rights on a real API server', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await RealCluster.start({ nodes: 0 });
    const { code, stderr } = await cluster.helm.attempt(['install', 'weir', CHART, '-n', RELEASE]);
    if (code !== 0) throw new Error(stderr);
    // Roles of hooks live as long as their hooks do.
    const hooks = objects(await template()).filter(
      ({ kind, metadata }) => /Role|ServiceAccount/.test(kind) && /^weir-(uninstall|test)$/.test(metadata.name),
    );
    expect(hooks).toHaveLength(8);
    await cluster.applyObjects(hooks);
  });
  afterAll(() => cluster?.stop());

  async function can(component: string, ...question: readonly string[]): Promise<string> {
    return (await cluster.tryKubectl(['auth', 'can-i', ...question, user(component)])).stdout.trim();
  }

  /** `auth can-i --list` as a set of lines `verb resource name`, without what every ServiceAccount may. */
  async function listed(component: string, namespace: string): Promise<Set<string>> {
    const lines = async (who: string): Promise<string[]> =>
      (await cluster.kubectl(['auth', 'can-i', '--list', '-n', namespace, user(who)]))
        .split('\n')
        .slice(1)
        .flatMap((line) => {
          const [, resource = '', urls = '', names = '', verbs = ''] =
            /^(\S*)\s+\[(.*?)\]\s+\[(.*?)\]\s+\[(.*?)\]$/.exec(line.trim()) ?? [];
          if (resource === '' || urls !== '') return [];
          return (names === '' ? ['*'] : names.split(' ')).flatMap((name) =>
            verbs.split(' ').map((verb) => `${verb} ${resource} ${name}`),
          );
        });
    const everybody = new Set(await lines('somebody'));
    return new Set((await lines(component)).filter((line) => !everybody.has(line)));
  }

  /** The same of the list. kubectl writes a subresource behind the group: `ciliumnetworkpolicies.cilium.io/status`. */
  function expected(component: string, namespace: string): Set<string> {
    const inside = (row: Access): boolean =>
      row.namespace === undefined || (row.namespace === 'release' ? RELEASE : row.namespace) === namespace;
    const spelled = (resource: string): string => resource.replace(/^([a-z]+)\/([a-z]+)\.(.+)$/, '$1.$3/$2');
    return new Set(
      ACCESS.filter((row) => row.component === component && inside(row)).flatMap(({ resource, verbs, names = ['*'] }) =>
        verbs.flatMap((verb) => names.map((name) => `${verb} ${spelled(resource)} ${name}`)),
      ),
    );
  }

  it.each(COMPONENTS.flatMap((component) => [RELEASE, 'default', 'kube-public'].map((each) => [component, each])))(
    '%s may in namespace %s what the list says, and nothing else',
    async (component = '', namespace = '') => {
      expect([...(await listed(component, namespace))].sort()).toEqual([...expected(component, namespace)].sort());
    },
  );

  it.each([
    'pods',
    'pods/exec',
    'ciliumnetworkpolicies.cilium.io',
    'ciliumnetworkpolicies.cilium.io/status',
    'ciliumclusterwidenetworkpolicies.cilium.io',
    'networkpolicies.networking.k8s.io',
    'ciliumidentities.cilium.io',
    'ciliumendpointslices.cilium.io',
    'resolvedpolicies.weir.dev',
    'peersets.weir.dev',
    'nodes',
    'secrets',
    'daemonsets.apps',
    'clusterroles.rbac.authorization.k8s.io',
  ])('agents may not write %s', async (resource) => {
    const [kind = '', subresource] = resource.split('/');
    const flags = subresource === undefined ? [] : [`--subresource=${subresource}`];
    const answers = await Promise.all(
      WRITES.map(async (verb) => [verb, await can('weir-agent', verb, kind, ...flags, '--all-namespaces')]),
    );
    expect(answers).toEqual(WRITES.map((verb) => [verb, 'no']));
  });

  it.each(['weir-agent', 'weir-operator'])('%s may not read secrets', async (component) => {
    for (const verb of ['get', 'list', 'watch']) {
      expect(await can(component, verb, 'secrets', '-n', RELEASE)).toBe('no');
    }
  });

  it('an agent sees its own DaemonSet by name, and no other', async () => {
    const get = ['get', 'daemonsets', '-n', RELEASE, '-o', 'name', user('weir-agent')];
    const own = await cluster.kubectl([...get, '--field-selector', 'metadata.name=weir-agent']);
    expect(own.trim()).toBe('daemonset.apps/weir-agent');
    const all = await cluster.tryKubectl(get);
    expect(all.code).not.toBe(0);
    expect(all.stderr).toContain('Forbidden');
  });
});
