/** Pods with IPv6, on real network namespaces. The core is a fake: no policy. */
import { afterAll, afterEach, beforeAll, expect, it } from '@jest/globals';
import { inNetns } from 'libbpf-ts';
import { type RunCommand, runCommand } from '../host/command.ts';
import { podRoutes } from '../host/interfaces.ts';
import { settings } from '../host/setting.ts';
import { FakeCore, quiet } from '../testing/fake-core.ts';
import { settingsOf, TestNamespaces } from '../testing/netns.ts';
import { connectFrom, listen } from '../testing/sockets.ts';
import { PodNetwork } from './network.ts';
import { CniService } from './service.ts';
import type { CniAnswer } from './types.ts';

const BOTH = ['10.55.0.0/29', 'fd00:55::/64'];
const namespaces = new TestNamespaces('weir-six');
let node = '';
let pod1 = '';
let pod2 = '';
let service: CniService;

const inNode: RunCommand = (command, args, input) =>
  command === 'ip' ? runCommand('nsenter', [`--net=${node}`, 'ip', ...args], input) : runCommand(command, args, input);
const nodeNetwork = (run = inNode): PodNetwork => new PodNetwork({ run, settings: settingsOf(node) });

function serviceOf(podCidrs: readonly string[], network = nodeNetwork()): CniService {
  const given = { core: new FakeCore(), network, podCidrs: () => podCidrs, log: quiet };
  return new CniService({ ...given, clusterName: 'default', firstHere: true });
}

function request(command: string, env: Readonly<Record<string, string>> = {}, config: object = {}): Promise<CniAnswer> {
  return service.handle({
    env: { CNI_COMMAND: command, CNI_IFNAME: 'eth0', ...env },
    stdin: JSON.stringify({ cniVersion: '1.1.0', name: 'weir', type: 'weir-cni', ...config }),
  });
}
const one = () => ({ CNI_CONTAINERID: 'one', CNI_NETNS: pod1 });
const two = () => ({ CNI_CONTAINERID: 'two', CNI_NETNS: pod2 });

beforeAll(async () => {
  [node, pod1, pod2] = (await Promise.all(['node', 'pod1', 'pod2'].map((name) => namespaces.add(name)))) as [
    string,
    string,
    string,
  ];
  for (const line of [
    'link add up0 type veth peer name up1',
    'address add 192.0.2.1/24 dev up0',
    'address add fd00:2::1/64 dev up0 nodad',
    'link set up0 up',
  ])
    await inNode('ip', line.split(' '));
  settingsOf(node).set('/proc/sys/net/ipv4/ip_forward', '1');
});
afterAll(() => namespaces.dispose());
afterEach(async () => {
  await request('GC', {}, { 'cni.dev/valid-attachments': [] });
  expect(await nodeNetwork().hostLinks()).toEqual([]);
});

it.each([
  ['of both families', BOTH],
  ['of IPv6 alone', ['fd00:55::/64']],
])(
  'connects pods %s: nobody asks for neighbours or routers, nor waits until an address may be used',
  async (_what, cidrs) => {
    const dual = cidrs.length === 2;
    service = serviceOf(cidrs);
    expect(await request('ADD', one())).toMatchObject({
      ok: true,
      body: {
        ips: [
          ...(dual ? [{ address: '10.55.0.2/32', gateway: '169.254.1.1', interface: 1 }] : []),
          { address: 'fd00:55::2/128', gateway: 'fe80::1', interface: 1 },
        ],
        routes: [...(dual ? [{ dst: '0.0.0.0/0', gw: '169.254.1.1' }] : []), { dst: '::/0', gw: 'fe80::1' }],
      },
    });
    const old = await request('ADD', two(), { cniVersion: '0.4.0' });
    expect(old).toMatchObject({
      body: { ips: [...(dual ? [{ version: '4' }] : []), { version: '6', address: 'fd00:55::3/128' }] },
    });
    const server = await listen(pod2, 8080);
    try {
      expect(await connectFrom(pod1, 'fd00:55::3', 8080)).toBe('fd00:55::2');
      expect(await connectFrom(node, 'fd00:55::3', 8080)).toBe('fd00:2::1');
      if (dual) expect(await connectFrom(pod1, '10.55.0.3', 8080)).toBe('10.55.0.2');
    } finally {
      server.kill();
    }
    // No link-local address, no address of a router's, and none that is still to be asked for.
    const addresses = await runCommand('nsenter', [
      `--net=${pod1}`,
      'ip',
      '-6',
      '-o',
      'address',
      'show',
      'dev',
      'eth0',
    ]);
    expect(addresses.trim().split('\n')).toEqual([expect.stringContaining('inet6 fd00:55::2/128 scope global nodad')]);
    expect(inNetns(pod1, () => settings.get('/proc/sys/net/ipv6/conf/eth0/accept_ra'))).toBe('0');
    const [{ name }] = (old as { body: { interfaces: [{ name: string }] } }).body.interfaces;
    expect((await podRoutes(node)).get(name)).toEqual([...(dual ? ['10.55.0.3'] : []), 'fd00:55::3']);
    expect(await request('CHECK', one())).toEqual({ ok: true });
    expect(await request('STATUS')).toEqual({ ok: true });
    await runCommand('nsenter', [`--net=${pod1}`, 'ip', '-6', 'route', 'delete', 'default']);
    await inNode('ip', ['-6', 'route', 'delete', 'fd00:55::2/128']);
    expect(await request('CHECK', one())).toMatchObject({
      ok: false,
      body: {
        msg: expect.stringMatching(
          /^pod has no default route by fe80::1 on eth0; node has no route to fd00:55::2 by weir[0-9a-f]{11}$/,
        ),
      },
    });
  },
);

it('gives IPv6 to pods where nobody has it by default', async () => {
  const off = (value: string) => (): void => {
    for (const name of ['default', 'lo']) settings.set(`/proc/sys/net/ipv6/conf/${name}/disable_ipv6`, value);
  };
  service = serviceOf(['fd00:55::/64']);
  for (const netns of [node, pod1]) inNetns(netns, off('1'));
  try {
    expect(await request('ADD', one())).toMatchObject({ ok: true });
    expect(await request('CHECK', one())).toEqual({ ok: true });
    const server = await listen(pod1, 8080);
    expect(await connectFrom(pod1, '::1', 8080).finally(() => server.kill())).toBe('::1');
  } finally {
    for (const netns of [node, pod1]) inNetns(netns, off('0'));
  }
});

it("names the IPv6 address that a route of somebody's has, and takes neither", async () => {
  const network = nodeNetwork(async (command, args, input) => {
    if (input?.includes('neighbour replace fd00:55::2') === true)
      await inNode('ip', ['-6', 'route', 'add', 'fd00:55::2/128', 'dev', 'up0']);
    return await inNode(command, args, input);
  });
  service = serviceOf(BOTH, network);
  try {
    expect(await request('ADD', one())).toMatchObject({
      ok: false,
      body: { code: 104, msg: expect.stringContaining('address fd00:55::2 is somebody else') },
    });
    expect(await nodeNetwork().hostLinks()).toEqual([]);
    expect(await request('ADD', one())).toMatchObject({
      ok: true,
      body: { ips: [{}, { address: 'fd00:55::3/128' }] },
    });
  } finally {
    await inNode('ip', ['-6', 'route', 'delete', 'fd00:55::2/128', 'dev', 'up0']);
  }
});
