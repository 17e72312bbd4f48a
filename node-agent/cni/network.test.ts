/** What the node's own side is found to be, on a real namespace with two uplinks. */

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { inNetns } from 'libbpf-ts';
import { type RunCommand, runCommand } from '../host/command.ts';
import type { Settings } from '../host/setting.ts';
import { settingsOf, TestNamespaces } from '../testing/netns.ts';
import { vethName } from './names.ts';
import { PodNetwork } from './network.ts';
import type { PairSpec } from './types.ts';

const namespaces = new TestNamespaces('weir-net');
let inNode: RunCommand;
let node: string;
let pod: string;

beforeAll(async () => {
  node = await namespaces.add('node');
  pod = await namespaces.add('pod');
  inNode = (command, args, input) => runCommand('nsenter', [`--net=${node}`, command, ...args], input);
  await inNode(
    'ip',
    ['-batch', '-'],
    [
      'link add up0 mtu 1500 type veth peer name wire0',
      'link add up1 mtu 1400 type veth peer name wire1',
      'address add 192.0.2.1/24 dev up0',
      'address add 198.51.100.1/24 dev up1',
      'address add 198.51.100.2/24 dev up1',
      'address add fd00:2::1/64 dev up0 nodad',
      'address add fd00:51::2/64 dev up1 nodad',
      'address add 203.0.113.9/32 dev lo',
      'link set up0 up',
      'link set up1 up',
      'link set wire0 up',
      'link set wire1 up',
      'route add default via 192.0.2.254',
      '',
    ].join('\n'),
  );
});
afterAll(() => namespaces.dispose());

describe('uplink', () => {
  it.each([
    [
      'the interface of the default route while the node is unknown',
      [],
      { mtu: 1500, addresses: ['192.0.2.1', 'fd00:2::1'] },
    ],
    [
      "the interface that has the node's InternalIPs",
      ['198.51.100.2', 'fd00:51::2'],
      { mtu: 1400, addresses: ['198.51.100.2', 'fd00:51::2'] },
    ],
    ['found by an IPv6 address alone', ['fd00:51::2'], { mtu: 1400, addresses: ['192.0.2.1', 'fd00:51::2'] }],
    [
      'an InternalIP on the loopback, with the wire of the default route',
      ['203.0.113.9'],
      { mtu: 1500, addresses: ['203.0.113.9', 'fd00:2::1'] },
    ],
    [
      'the default route when no interface has the InternalIP',
      ['198.51.100.77'],
      { mtu: 1500, addresses: ['192.0.2.1', 'fd00:2::1'] },
    ],
  ])('is %s', async (_what, addresses, expected) => {
    expect(await new PodNetwork({ run: inNode, nodeAddresses: () => addresses }).uplink()).toEqual(expected);
  });
});

describe('prepareNode', () => {
  it('writes only when forwarding is off, and says how to mend a refusal', async () => {
    const procSys = await mkdtemp(join(tmpdir(), 'weir-sys-'));
    try {
      const network = new PodNetwork({ run: inNode, procSys });
      await expect(network.prepareNode()).rejects.toThrow(
        new RegExp(
          `\\(${procSys}/net/ipv4/ip_forward\\): ENOENT.*on the node, or name the node's writable /proc/sys by --proc-sys`,
        ),
      );
      await mkdir(join(procSys, 'net/ipv4'), { recursive: true });
      const file = join(procSys, 'net/ipv4/ip_forward');
      await writeFile(file, '0\n');
      await network.prepareNode();
      expect(await readFile(file, 'utf8')).toBe('1');
      await writeFile(file, '1\n');
      await network.prepareNode();
      expect(await readFile(file, 'utf8')).toBe('1\n');
    } finally {
      await rm(procSys, { recursive: true });
    }
  });
});

describe('IPv6 forwarding', () => {
  const conf = (name: string) => `/proc/sys/net/ipv6/conf/${name}`;
  const heard = () =>
    inNetns(node, () => ['up0', 'up1'].map((name) => readFileSync(`${conf(name)}/accept_ra`, 'utf8').trim()));
  afterEach(() => inNetns(node, () => writeFileSync(`${conf('all')}/forwarding`, '0')));

  it('lets the node go on hearing its routers, where it has heard them', async () => {
    inNetns(node, () => {
      writeFileSync(`${conf('up0')}/accept_ra`, '1');
      writeFileSync(`${conf('up1')}/accept_ra`, '0');
    });
    const network = new PodNetwork({ run: inNode, settings: settingsOf(node) });
    expect(await network.forward(6)).toBe(true);
    expect(heard()).toEqual(['2', '0']);
    expect(inNetns(node, () => readFileSync(`${conf('all')}/forwarding`, 'utf8'))).toBe('1\n');
    // Whoever forwarded before has chosen what it hears.
    inNetns(node, () => writeFileSync(`${conf('up0')}/accept_ra`, '1'));
    expect(await network.forward(6)).toBe(false);
    expect(heard()).toEqual(['1', '0']);
  });
});

describe('the node’s end of a pair', () => {
  const spec: PairSpec = {
    hostName: vethName({ containerId: 'one', ifname: 'eth0' }),
    podName: 'eth0',
    hostMac: '02:00:00:00:00:01',
    podMac: '02:00:00:00:00:02',
    netns: '',
    addresses: ['10.55.0.2'],
    mtu: 1500,
    nodeAddresses: [],
  };
  const NAMES = ['ipv6/*/accept_ra', 'ipv6/*/accept_redirects', 'ipv4/*/accept_redirects', 'ipv4/*/send_redirects'];
  const path = (name: string, of: string) => `/proc/sys/net/${name.replace('*', `conf/${of}`)}`;
  const values = (of: string) => inNetns(node, () => NAMES.map((name) => readFileSync(path(name, of), 'utf8').trim()));
  const turn = (of: string, value: string) =>
    inNetns(node, () => {
      for (const name of NAMES) writeFileSync(path(name, of), value);
    });
  const network = () => new PodNetwork({ run: inNode, settings: settingsOf(node) });
  beforeEach(() => turn('default', '1'));
  afterEach(() => network().removeLink(spec.hostName));

  it('takes no routes from the pod and sends it none, whatever the node has by default', async () => {
    await network().createPair({ ...spec, netns: pod });
    expect(values(spec.hostName)).toEqual(['0', '0', '0', '0']);
    expect(values('default')).toEqual(['1', '1', '1', '1']);
  });

  it('is so after a start, too, when an earlier version made it', async () => {
    await network().createPair({ ...spec, netns: pod });
    turn(spec.hostName, '1');
    await network().prepareNode();
    expect(values(spec.hostName)).toEqual(['0', '0', '0', '0']);
  });

  it('may have lost its IPv6', async () => {
    await network().createPair({ ...spec, netns: pod });
    turn(spec.hostName, '1');
    await inNode('ip', ['link', 'set', 'dev', spec.hostName, 'mtu', '1200']);
    expect(inNetns(node, () => existsSync(path('ipv6/*', spec.hostName)))).toBe(false);
    await network().prepareNode();
    expect(inNetns(node, () => readFileSync(path('ipv4/*/accept_redirects', spec.hostName), 'utf8'))).toBe('0\n');
  });

  it('is refused where its settings cannot be written, and the fix is named', async () => {
    const { get, set } = settingsOf(node);
    const readOnly: Settings = {
      get,
      set(name, value) {
        if (!name.endsWith('accept_ra')) return set(name, value);
        throw Object.assign(new Error('EROFS: read-only file system'), { code: 'EROFS' });
      },
    };
    await expect(
      new PodNetwork({ run: inNode, settings: readOnly }).createPair({ ...spec, netns: pod }),
    ).rejects.toThrow(/cannot turn off .*\/accept_ra: EROFS.*; name the node's writable \/proc\/sys by --proc-sys/);
  });
});
