/** The chart's roles grant what test/chart/access.ts lists, and nothing else. */
import { beforeAll, describe, expect, it } from '@jest/globals';
import { ACCESS, type Access, lines, SECURE_METRICS } from './access.ts';
import { find, type Rendered, type Rule, render } from './render.ts';

const NAMESPACE = 'kube-system';

function ofRule(rule: Rule): { resource: string; verbs: readonly string[]; names?: readonly string[] }[] {
  return rule.apiGroups.flatMap((group) =>
    rule.resources.map((resource) => ({
      resource: group === '' ? resource : `${resource}.${group}`,
      verbs: rule.verbs,
      ...(rule.resourceNames === undefined ? {} : { names: rule.resourceNames }),
    })),
  );
}

/** Roles that an administrator binds. */
const FOR_PEOPLE = ['weir-policies-view', 'weir-policies-edit'];

/** Every grant of every binding. */
function granted(rendered: readonly Rendered[]): Omit<Access, 'why'>[] {
  const bindings = rendered.filter(({ kind }) => kind === 'ClusterRoleBinding' || kind === 'RoleBinding');
  return bindings.flatMap(({ kind, metadata, roleRef, subjects }) => {
    const role = find(rendered, roleRef?.kind ?? '', roleRef?.name ?? '');
    if (kind === 'RoleBinding') expect(role.metadata.namespace).toBe(metadata.namespace);
    const scope: Pick<Access, 'namespace'> =
      kind === 'ClusterRoleBinding'
        ? {}
        : { namespace: metadata.namespace === NAMESPACE ? 'release' : (metadata.namespace as 'default') };
    return (subjects ?? []).flatMap((subject) => {
      expect(subject.namespace).toBe(NAMESPACE);
      return (role.rules ?? []).flatMap((rule) =>
        ofRule(rule).map((grant) => ({ component: subject.name as Access['component'], ...grant, ...scope })),
      );
    });
  });
}

describe('what components may do with the API', () => {
  let rendered: readonly Rendered[];
  beforeAll(async () => {
    rendered = await render();
  });

  it('is what test/chart/access.ts lists with its reasons, in both directions', () => {
    expect(lines(granted(rendered))).toEqual(lines(ACCESS));
  });

  it('is more with secured metrics by the two questions about who scrapes, and no other right', async () => {
    const secured = await render(['--set', 'metrics.secure.enabled=true']);
    expect(lines(granted(secured))).toEqual(lines([...ACCESS, ...SECURE_METRICS]));
    expect(find(secured, 'ClusterRole', 'weir-metrics-reader').rules).toEqual([
      { nonResourceURLs: ['/metrics'], verbs: ['get'] },
    ]);
  });

  it('names each grant once, each with a reason', () => {
    expect(new Set(lines(ACCESS)).size).toBe(lines(ACCESS).length);
    expect(ACCESS.filter(({ why }) => why === '')).toEqual([]);
  });

  it('no role is bound to nobody, and none is for all groups, resources or verbs', () => {
    const roles = rendered.filter(({ kind }) => kind === 'Role' || kind === 'ClusterRole');
    const bound = new Set(rendered.map(({ roleRef }) => `${roleRef?.kind}/${roleRef?.name}`));
    for (const { kind, metadata, rules = [] } of roles) {
      if (!FOR_PEOPLE.includes(metadata.name)) expect(bound).toContain(`${kind}/${metadata.name}`);
      expect(JSON.stringify(rules)).not.toContain('"*"');
    }
  });

  it('people of a namespace may be let read or write its policies, and nothing that is of the whole cluster', () => {
    const rules = FOR_PEOPLE.map((name) => find(rendered, 'ClusterRole', name).rules ?? []);
    const [view = [], edit = []] = rules.map((each) => each.flatMap(({ resources }) => resources));
    expect(view).toEqual(['ciliumnetworkpolicies', 'ciliumnetworkpolicies/status', 'ciliumendpoints']);
    expect(edit).toEqual(['ciliumnetworkpolicies']);
    const verbs = rules[0]?.flatMap((rule) => rule.verbs);
    expect(verbs).toEqual(['get', 'list', 'watch']);
  });

  it('agents write their own reports, endpoints and Events, and a condition and an annotation of their nodes, only; nobody writes policies, pods or secrets', () => {
    const reads = ['get', 'list', 'watch'];
    const writes = (component: string): string[] =>
      ACCESS.filter((row) => row.component === component && row.verbs.some((verb) => !reads.includes(verb))).map(
        ({ resource }) => resource,
      );
    expect(writes('weir-agent')).toEqual([
      'nodes/status',
      'events',
      'ciliumendpoints.cilium.io',
      'nodepolicystatuses.weir.dev',
    ]);
    const all = ACCESS.filter(({ verbs }) => verbs.some((verb) => !reads.includes(verb))).map(
      ({ resource }) => resource,
    );
    for (const resource of [
      'pods',
      'ciliumnetworkpolicies.cilium.io',
      'ciliumclusterwidenetworkpolicies.cilium.io',
      'networkpolicies.networking.k8s.io',
    ]) {
      expect(all).not.toContain(resource);
    }
    expect(ACCESS.map(({ resource }) => resource)).not.toContain('secrets');
  });
});
