import { expect, it } from '@jest/globals';
import { everyCrowd } from './crowds.ts';
import { fuzz, passed, print } from './index.ts';
import { KINDS, type Kind } from './kinds.ts';
import { baseline, play } from './play.ts';

/** Any would do. */
const SEED = 7;

const alone = baseline();

it('a few hundred hostile objects: nobody ends, nobody else notices, and nothing of them stays', async () => {
  const report = await fuzz({ seed: SEED, count: 240, alone });
  expect(passed(report) ? '' : print(report)).toBe('');
  // What was never made proves nothing.
  expect(Object.keys(report.made)).toHaveLength(KINDS.length);
});

it("a tenant's rules that multiply cost nodes no more than a slot's budget of rows, and others nothing", async () => {
  const kind = KINDS.find(({ name, author }) => name === 'CiliumNetworkPolicy' && author === 'tenant') as Kind;
  const body = { spec: { endpointSelector: {}, ingress: '«rules that multiply»' } };
  expect(await play('tenant', { objects: [{ kind, namespace: 'tenant', name: 'h-0', body }] }, alone)).toEqual([]);
});

it.each(['tenant', 'node'] as const)(
  'every crowd of a %s: an edit and new pods of others take a few turns, and nothing of it stays',
  async (author) => {
    const crowd = everyCrowd(author);
    expect(await play(author, { objects: crowd.filter((_, at) => at % 4 === 0), crowd }, alone)).toEqual([]);
  },
);

/** A kind that a tenant writes, where it has no right to. */
const strayed = (name: string, namespace: string): Kind => ({
  ...(KINDS.find((kind) => kind.name === name && kind.author === 'tenant') as Kind),
  namespaces: [namespace],
});
const status = { phase: 'Running', podIP: '10.0.1.77', podIPs: [{ ip: '10.0.1.77' }] };
const spec = { nodeName: 'n1', serviceAccountName: 'default' };

it.each([
  [
    'a rule that cuts others',
    strayed('CiliumNetworkPolicy', 'calm'),
    { spec: { endpointSelector: {}, ingressDeny: [{ fromEntities: ['all'] }] } },
    /^enforced calm\/app: .*verdicts\.ingress 10\.0\.1\.1 is 'deny,deny,deny', without it 'allow,allow,allow'/m,
  ],
  [
    'a pod beside those of others',
    strayed('Pod', 'victim'),
    { metadata: { labels: { app: 'evil' } }, spec, status },
    /^peer set any:app=evil, k8s:io\.kubernetes\.pod\.namespace=victim: members is \[ 'k8s:app=evil/m,
  ],
] as const)('finds %s', async (_, kind, body, said) => {
  const [namespace = ''] = kind.namespaces ?? [];
  const what = await play('tenant', { objects: [{ kind, namespace, name: 'h-0', body }] }, alone, 3);
  expect(what.join('\n')).toMatch(said);
});
