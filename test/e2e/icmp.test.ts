/** `icmps` and protocols without ports, from `kubectl apply` to answers of the kernel. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { familyOf } from '@weir/net';
import { Cluster } from '../cluster/index.ts';
import { type IcmpQuery, ping } from '../cluster/ping.ts';
import { arrives } from '../cluster/raw.ts';

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start();
  await cluster.createPods([
    { name: 'web', labels: { app: 'web' }, node: 1, tcp: [80] },
    { name: 'near', labels: { app: 'near' }, node: 1 },
    { name: 'far', labels: { app: 'far' }, node: 2 },
  ]);
});
afterAll(() => cluster?.stop());

const apply = async (spec: object): Promise<void> => {
  await cluster.applyObjects([
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumNetworkPolicy',
      metadata: { name: 'web', namespace: 'default' },
      spec: { endpointSelector: { matchLabels: { app: 'web' } }, ...spec },
    },
  ]);
  await cluster.programmed('cnp/web');
};
const asksAt = (address: string, query: IcmpQuery): Promise<string[]> =>
  Promise.all(
    ['near', 'far'].map(async (name) => `${name} ${await ping(cluster.sandbox(name).netns, address, query)}`),
  );
const asks = async (query: IcmpQuery): Promise<string[]> => asksAt((await cluster.host('web')).address, query);
/** An echo by IPv6. */
const asks6 = async (): Promise<string[]> => {
  const { addresses } = await cluster.host('web');
  return asksAt(addresses.find((address) => familyOf(address) === 6) ?? '', 'echo');
};
const ANSWERED = ['near answered', 'far answered'];
const SILENCE = ['near silence', 'far silence'];

it('lets in the types that a rule names, and no others', async () => {
  expect(await asks('echo')).toEqual(ANSWERED);
  expect(await asks('timestamp')).toEqual(ANSWERED);
  expect(await asks6()).toEqual(ANSWERED);
  await apply({ ingress: [{ icmps: [{ fields: [{ family: 'IPv4', type: 'EchoRequest' }] }] }] });
  expect(await asks('echo')).toEqual(ANSWERED);
  expect([await asks('timestamp'), await asks6()]).toEqual([SILENCE, SILENCE]);
  expect(await cluster.probe('near', 'web')).toBe('dropped');
  await apply({ ingress: [{ icmps: [{ fields: [{ type: 13 }] }] }] });
  expect(await asks('echo')).toEqual(SILENCE);
  expect(await asks('timestamp')).toEqual(ANSWERED);
});

it('keeps to the family, and to the peer', async () => {
  await apply({
    ingress: [
      {
        icmps: [
          {
            fields: [
              { family: 'IPv6', type: 8 },
              { family: 'IPv6', type: 13 },
            ],
          },
        ],
      },
    ],
  });
  expect([await asks('echo'), await asks('timestamp')]).toEqual([SILENCE, SILENCE]);
  await apply({ ingress: [{ icmps: [{ fields: [{ family: 'IPv6', type: 'EchoRequest' }] }] }] });
  expect([await asks('echo'), await asks6()]).toEqual([SILENCE, ANSWERED]);
  const far = { fromEndpoints: [{ matchLabels: { app: 'far' } }], icmps: [{ fields: [{ type: 8 }] }] };
  await apply({ ingress: [far] });
  expect(await asks('echo')).toEqual(['near silence', 'far answered']);
});

it('denies a type and leaves the others', async () => {
  await apply({
    ingress: [{ fromEntities: ['all'] }],
    ingressDeny: [{ icmps: [{ fields: [{ type: 'Timestamp' }] }] }],
  });
  expect(await asks('echo')).toEqual(ANSWERED);
  expect(await asks('timestamp')).toEqual(SILENCE);
  expect(await cluster.probe('near', 'web')).toBe('reached');
});

it('lets in the protocols without ports that a rule names, by each family', async () => {
  const [GRE, VRRP] = [47, 112];
  const { addresses } = await cluster.host('web');
  const netns = (name: string): string => cluster.sandbox(name).netns;
  const heard = async (protocol: number): Promise<boolean[]> =>
    Promise.all(
      ['near', 'far'].flatMap((name) =>
        addresses.map((address) => arrives({ from: netns(name), to: netns('web'), address }, protocol)),
      ),
    );
  const each = (one: boolean): boolean[] => [one, one, one, one];
  const only = { fromEndpoints: [{}], toPorts: [{ ports: [{ protocol: 'VRRP' }] }] };
  await apply({ ingress: [only] });
  expect([await heard(VRRP), await heard(GRE)]).toEqual([each(true), each(false)]);
  await apply({ ingress: [{ fromEntities: ['all'] }], ingressDeny: [only] });
  expect([await heard(VRRP), await heard(GRE)]).toEqual([each(false), each(true)]);
  await apply({ ingress: [{ toPorts: [{ ports: [{ port: '0', protocol: 'ANY' }] }] }] });
  expect([await heard(VRRP), await heard(GRE)]).toEqual([each(false), each(false)]);
});
