/** CiliumCIDRGroups from `kubectl apply` to packets. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const OUTSIDE = ['203.0.113.9', '203.0.113.77', '198.51.100.7', '2001:db8:7::9'] as const;
type Outcome = 'reached' | 'dropped';

const group = (name: string, externalCIDRs: readonly string[], of = 'partner', version = 'v2'): object => ({
  apiVersion: `cilium.io/${version}`,
  kind: 'CiliumCIDRGroup',
  metadata: { name, labels: { of } },
  spec: { externalCIDRs },
});

const policy = (name: string, rule: object): object => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name, namespace: 'default' },
  spec: { endpointSelector: { matchLabels: { app: name } }, ...rule },
});

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start({ outside: OUTSIDE });
  await cluster.createPods([
    { name: 'allowed', labels: { app: 'allowed' }, node: 1 },
    { name: 'denied', labels: { app: 'denied' }, node: 2 },
  ]);
});
afterAll(() => cluster?.stop());

/** What a pod meets at each address outside. */
const met = (pod: string): Promise<Outcome[]> =>
  Promise.all(OUTSIDE.map(async (to) => (await cluster.probe(pod, to, { port: 80, protocol: 'tcp' })) as Outcome));
const meets = (pod: string, expected: readonly Outcome[]) =>
  eventually(
    () => met(pod),
    (results) => results.join() === expected.join(),
  );
const resolved = () =>
  cluster.kubectl(['get', 'cnp', 'allowed', '-o', 'jsonpath={.status.conditions[?(@.type=="ResolvedRefs")].reason}']);

it('allows and denies what a group lists, and follows it', async () => {
  await cluster.applyObjects([
    policy('allowed', { egress: [{ toCIDRSet: [{ cidrGroupRef: 'partners', except: ['203.0.113.64/26'] }] }] }),
    policy('denied', {
      egress: [{ toEntities: ['all'] }],
      egressDeny: [{ toCIDRSet: [{ cidrGroupSelector: { matchLabels: { of: 'partner' } } }] }],
    }),
  ]);
  for (const name of ['allowed', 'denied']) await cluster.programmed(`cnp/${name}`);
  // Nobody is meant while there is no such group.
  expect(await met('allowed')).toEqual(['dropped', 'dropped', 'dropped', 'dropped']);
  expect(await met('denied')).toEqual(['reached', 'reached', 'reached', 'reached']);
  await eventually(resolved, (reason) => reason === 'CIDRGroupNotFound');

  await cluster.applyObjects([group('partners', ['203.0.113.0/24', '2001:db8:7::/48'])]);
  await meets('allowed', ['reached', 'dropped', 'dropped', 'reached']);
  await meets('denied', ['dropped', 'dropped', 'reached', 'dropped']);
  await eventually(resolved, (reason) => reason === 'Resolved');

  // Another group joins by its label, as an earlier version of the kind has it.
  await cluster.applyObjects([group('more', ['198.51.100.7/32'], 'partner', 'v2alpha1')]);
  await meets('denied', ['dropped', 'dropped', 'dropped', 'dropped']);
  await cluster.applyObjects([group('more', ['198.51.100.7/32'], 'nobody')]);
  await meets('denied', ['dropped', 'dropped', 'reached', 'dropped']);

  await cluster.kubectl(['delete', 'ccg', 'partners']);
  await meets('allowed', ['dropped', 'dropped', 'dropped', 'dropped']);
  await meets('denied', ['reached', 'reached', 'reached', 'reached']);
});

it('refuses a group that is none', async () => {
  await expect(cluster.applyObjects([group('torn', ['10.0.0'])])).rejects.toThrow(/externalCIDRs\[0\]/);
});
