/** What the node's own side is found to be, on a real namespace with two uplinks. */

import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type RunCommand, runCommand } from '../host/command.ts';
import { TestNamespaces } from '../testing/netns.ts';
import { PodNetwork } from './network.ts';

const namespaces = new TestNamespaces('weir-net');
let inNode: RunCommand;

beforeAll(async () => {
  const path = await namespaces.add('node');
  inNode = (command, args, input) => runCommand('nsenter', [`--net=${path}`, command, ...args], input);
  await inNode(
    'ip',
    ['-batch', '-'],
    [
      'link add up0 mtu 1500 type veth peer name wire0',
      'link add up1 mtu 1400 type veth peer name wire1',
      'address add 192.0.2.1/24 dev up0',
      'address add 198.51.100.1/24 dev up1',
      'address add 198.51.100.2/24 dev up1',
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
    ['the interface of the default route while the node is unknown', undefined, { mtu: 1500, address: '192.0.2.1' }],
    ["the interface that has the node's InternalIP", '198.51.100.2', { mtu: 1400, address: '198.51.100.2' }],
    [
      'an InternalIP on the loopback, with the wire of the default route',
      '203.0.113.9',
      { mtu: 1500, address: '203.0.113.9' },
    ],
    ['the default route when no interface has the InternalIP', '198.51.100.77', { mtu: 1500, address: '192.0.2.1' }],
  ])('is %s', async (_what, address, expected) => {
    expect(await new PodNetwork({ run: inNode, nodeAddress: () => address }).uplink()).toEqual(expected);
  });
});

describe('prepareNode', () => {
  it('writes only when forwarding is off, and says how to mend a refusal', async () => {
    const procSys = await mkdtemp(join(tmpdir(), 'weir-sys-'));
    try {
      const network = new PodNetwork({ procSys });
      await expect(network.prepareNode()).rejects.toThrow(
        new RegExp(
          `\\(${procSys}/net/ipv4/ip_forward\\): ENOENT.*on the node, or name its writable /proc/sys by --proc-sys`,
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
