/** The CNI logic on real network namespaces: one is the node, others are pods. The core is a fake: no policy, only the order counts. */

import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { EndpointNotReadyError } from '../errors.ts';
import { type RunCommand, runCommand } from '../host/command.ts';
import { StateFiles } from '../state/state-files.ts';
import { FakeCore, quiet, recordingLogger } from '../testing/fake-core.ts';
import { settingsOf, TestNamespaces } from '../testing/netns.ts';
import { connectFrom, listen } from '../testing/sockets.ts';
import { REST_MS } from './address-leases.ts';
import { vethName } from './names.ts';
import { PodNetwork } from './network.ts';
import { CniService, type CniServiceOptions } from './service.ts';
import type { CniAnswer } from './types.ts';

const namespaces = new TestNamespaces('weir-cni');
let node = '';
let pod1 = '';
let pod2 = '';
let core: FakeCore;
let service: CniService;

/** The node's side is run inside the node's namespace: as the agent is, but for this process. */
const inNode: RunCommand = (command, args, input) =>
  command === 'ip' ? runCommand('nsenter', [`--net=${node}`, 'ip', ...args], input) : runCommand(command, args, input);

const nodeNetwork = (run = inNode): PodNetwork => new PodNetwork({ run, settings: settingsOf(node) });

beforeAll(async () => {
  [node, pod1, pod2] = (await Promise.all([
    namespaces.add('node'),
    namespaces.add('pod1'),
    namespaces.add('pod2'),
  ])) as [string, string, string];
  await runCommand('nsenter', [
    `--net=${node}`,
    'sh',
    '-c',
    'echo 1 > /proc/sys/net/ipv4/ip_forward; ip link add up0 mtu 1400 type veth peer name up1; ip address add 192.0.2.1/24 dev up0; ip link set up0 up; ip route add default via 192.0.2.254',
  ]);
});
afterAll(() => namespaces.dispose());

beforeEach(() => {
  core = new FakeCore();
  service = newService();
});
afterEach(async () => {
  await request('GC', {}, { 'cni.dev/valid-attachments': [] });
  expect(await links()).toEqual([]);
});

function newService(options: Partial<CniServiceOptions> = {}, of = core): CniService {
  const network = nodeNetwork();
  const given = {
    core: of,
    network,
    podCidrs: () => ['10.55.0.0/29'],
    log: quiet,
    clusterName: 'default',
    firstHere: true,
  };
  return new CniService({ ...given, ...options });
}

function request(command: string, env: Readonly<Record<string, string>> = {}, config: object = {}): Promise<CniAnswer> {
  return service.handle({
    env: { CNI_COMMAND: command, CNI_IFNAME: 'eth0', ...env },
    stdin: JSON.stringify({ cniVersion: '1.1.0', name: 'weir', type: 'weir-cni', ...config }),
  });
}
const one = () => ({ CNI_CONTAINERID: 'one', CNI_NETNS: pod1 });
const two = () => ({ CNI_CONTAINERID: 'two', CNI_NETNS: pod2 });

async function links(): Promise<readonly string[]> {
  return await nodeNetwork().hostLinks();
}

describe('ADD', () => {
  it('connects pods with each other and with their node, by routes and permanent neighbours', async () => {
    const [first, second] = [await request('ADD', one()), await request('ADD', two())];
    expect(first).toMatchObject({
      ok: true,
      body: {
        cniVersion: '1.1.0',
        interfaces: [
          { name: vethName({ containerId: 'one', ifname: 'eth0' }), mtu: 1400 },
          { name: 'eth0', sandbox: pod1, mtu: 1400 },
        ],
        ips: [{ address: '10.55.0.2/32', gateway: '169.254.1.1', interface: 1 }],
        routes: [{ dst: '0.0.0.0/0', gw: '169.254.1.1' }],
      },
    });
    expect(second).toMatchObject({ ok: true, body: { ips: [{ address: '10.55.0.3/32' }] } });
    const server = await listen(pod2, 8080);
    try {
      expect(await connectFrom(pod1, '10.55.0.3', 8080)).toBe('10.55.0.2');
      expect(await connectFrom(node, '10.55.0.3', 8080)).toBe('192.0.2.1');
    } finally {
      server.kill();
    }
    expect(await request('CHECK', one())).toEqual({ ok: true });
    expect(await request('STATUS')).toEqual({ ok: true });
  });

  it('of a pod is refused at once by an agent that nobody tells of pods', async () => {
    core = new FakeCore();
    service = newService({ kubernetes: false }, core);
    const CNI_ARGS = 'K8S_POD_NAMESPACE=default;K8S_POD_NAME=app';
    expect(await request('ADD', { ...one(), CNI_ARGS })).toMatchObject({
      ok: false,
      body: {
        code: 4,
        msg: 'CNI_ARGS names pod default/app, and an agent with --no-kubernetes knows no pods',
        details: expect.stringContaining('leave K8S_POD_NAMESPACE and K8S_POD_NAME out'),
      },
    });
    expect([core.calls, await links()]).toEqual([[], []]);
    expect(await request('ADD', one())).toMatchObject({ ok: true });
    expect(await request('DEL', { ...one(), CNI_ARGS })).toEqual({ ok: true });
  });

  it('keeps the pod down until the endpoint is enforced', async () => {
    let seen = '';
    core.beforeEnforce = async () => {
      seen = await runCommand('nsenter', [`--net=${pod1}`, 'ip', '-json', 'address', 'show', 'dev', 'eth0']);
    };
    await request('ADD', one());
    const [link] = JSON.parse(seen) as { flags: string[]; addr_info: unknown[] }[];
    expect(link?.flags).not.toContain('UP');
    expect(link?.addr_info).toEqual([]);
  });

  it('leaves nothing behind when the kernel refuses, and says why', async () => {
    core.beforeEnforce = () => {
      throw new Error('verifier: no');
    };
    expect(await request('ADD', one())).toEqual({
      ok: false,
      body: { cniVersion: '1.1.0', code: 101, msg: 'endpoint could not be enforced: verifier: no', details: '' },
    });
    expect(await links()).toEqual([]);
    expect(core.calls).toEqual(['upsert 1', 'delete 1']);
    core.beforeEnforce = () => undefined;
    expect(await request('ADD', one())).toMatchObject({ ok: true, body: { ips: [{ address: '10.55.0.3/32' }] } });
  });

  it("an endpoint that waits for the operator is nobody's fault: it is tried again, and no line for a person", async () => {
    const said = 'endpoint 1 is not ready after 30000 ms: the operator has not given its labels an identity yet';
    const log = recordingLogger();
    core = new FakeCore();
    service = newService({ log });
    core.beforeEnforce = ({ id }) => {
      throw new EndpointNotReadyError(id, 30_000, said.slice(said.indexOf(': ') + 2), { waits: true });
    };
    expect(await request('ADD', one())).toEqual({
      ok: false,
      body: { cniVersion: '1.1.0', code: 11, msg: said, details: expect.stringContaining('kubelet tries again') },
    });
    expect(await links()).toEqual([]);
    core.beforeEnforce = ({ id }) => {
      throw new EndpointNotReadyError(id, 30_000, 'verifier: no', { waits: false });
    };
    expect(await request('ADD', one())).toMatchObject({ body: { code: 101 } });
    const failed = log.lines.filter(({ message }) => message === 'cni request failed');
    expect(failed.map(({ level }) => level)).toEqual(['info', 'error']);
  });

  it('leaves nothing behind when the pod side cannot be set up', async () => {
    await runCommand('nsenter', [`--net=${pod1}`, 'ip', 'route', 'add', 'default', 'dev', 'lo']);
    try {
      expect(await request('ADD', one())).toMatchObject({ ok: false, body: { code: 100 } });
    } finally {
      await runCommand('nsenter', [`--net=${pod1}`, 'ip', 'route', 'delete', 'default', 'dev', 'lo']);
    }
    expect(await links()).toEqual([]);
    expect(core.calls).toEqual(['upsert 1', 'delete 1']);
  });

  it('replaces an earlier attachment of the same container', async () => {
    await request('ADD', one());
    expect(await request('ADD', one())).toMatchObject({ ok: true, body: { ips: [{ address: '10.55.0.2/32' }] } });
    expect(await links()).toHaveLength(1);
  });

  it('says when the addresses are used up', async () => {
    core.db.write([core.tables.endpoints], (txn) => {
      for (let at = 2; at < 7; at++) {
        txn.upsert(core.tables.endpoints, {
          id: at,
          ifindex: 1000 + at,
          interfaceName: `x${at}`,
          addresses: [`10.55.0.${at}`],
          createdAt: '',
        });
      }
    });
    expect(await request('ADD', one())).toMatchObject({
      ok: false,
      body: { code: 102, msg: expect.stringContaining('10.55.0.0/29') },
    });
    expect(await request('STATUS')).toMatchObject({ ok: false, body: { code: 50 } });
  });

  it.each([
    ['a netns that is not there', { CNI_CONTAINERID: 'one', CNI_NETNS: '/var/run/netns/none' }, {}, 4],
    ["the node's own netns", { CNI_CONTAINERID: 'one', CNI_NETNS: '/proc/self/ns/net' }, {}, 4],
    ['a plugin before it', { CNI_CONTAINERID: 'one', CNI_NETNS: '/proc/self/ns/net' }, { prevResult: {} }, 7],
  ])('refuses %s', async (_what, env, config, code) => {
    expect(await request('ADD', env, config)).toMatchObject({ ok: false, body: { code } });
    expect(core.calls).toEqual([]);
  });
});

describe('addresses that others have', () => {
  it('are not given: of pods that were attached before a reinstall, and their connections live', async () => {
    await request('ADD', one());
    // Uninstalled and installed: no memory, the pod runs on.
    core = new FakeCore();
    service = newService();
    // The kernel says of a new interface's route for a moment that its link is down.
    const route = async (): Promise<string> =>
      (await inNode('ip', ['route', 'show', '10.55.0.2'])).replace(' linkdown', '').trim();
    const before = await route();
    expect(await request('ADD', two())).toMatchObject({ ok: true, body: { ips: [{ address: '10.55.0.3/32' }] } });
    expect(await route()).toBe(before);
    await nodeNetwork().removeLink(vethName({ containerId: 'one', ifname: 'eth0' }));
  });

  const put = (pods: readonly { name: string; uid: string; address: string }[]): void =>
    core.db.write([core.tables.localPods], (txn) => {
      for (const { name, uid, address } of pods)
        txn.upsert(core.tables.localPods, {
          ...{ namespace: 'default', name, uid, labels: {}, serviceAccount: '', namedPorts: [] },
          addresses: [address],
        });
    });
  const claim = (name: string, podUid: string, address: string): void => {
    core.db.write([core.tables.remoteEndpoints], (txn) =>
      txn.upsert(core.tables.remoteEndpoints, {
        ...{ namespace: 'default', name, podUid, addresses: [address], identity: 300, node: '', namedPorts: [] },
      }),
    );
  };
  const args = 'K8S_POD_NAMESPACE=default;K8S_POD_NAME=app;K8S_POD_UID=u-app';

  it('are not given: of pods by their status, by slices, on interfaces and by routes of others', async () => {
    put([
      { name: 'bridged', uid: 'u-bridged', address: '10.55.0.2' },
      { name: 'app', uid: 'u-app', address: '10.55.0.3' },
    ]);
    await inNode('ip', ['address', 'add', '10.55.0.4/29', 'dev', 'up0']);
    await inNode('ip', ['route', 'add', '10.55.0.5/32', 'dev', 'up0', 'metric', '7', 'table', '99']);
    try {
      claim('former', 'u-former', '10.55.0.6');
      expect(await request('ADD', two())).toMatchObject({ ok: false, body: { code: 11 } });
      // Its own claims keep nobody from an address.
      claim('app', 'u-app', '10.55.0.6');
      core.db.write([core.tables.remoteEndpoints], (txn) => txn.delete(core.tables.remoteEndpoints, 'default/former'));
      expect(await request('ADD', { ...one(), CNI_ARGS: args })).toMatchObject({
        body: { ips: [{ address: '10.55.0.3/32' }] },
      });
      put([{ name: 'app', uid: 'u-app', address: '10.55.0.6' }]);
      const full =
        "all 5 are in use (2 routed or on an interface of this node, 2 in the status of this node's pods, 1 in use by endpoints of this node)";
      expect(await request('ADD', two())).toMatchObject({
        ok: false,
        body: { code: 102, msg: expect.stringContaining(full) },
      });
      expect(await request('STATUS')).toMatchObject({ ok: false, body: { code: 50 } });
    } finally {
      await inNode('ip', ['route', 'delete', '10.55.0.5/32', 'table', '99']);
      await inNode('ip', ['address', 'delete', '10.55.0.4/29', 'dev', 'up0']);
    }
  });

  it('are not taken over when somebody takes them in the same moment: an error, an event and a condition', async () => {
    let raced = false;
    const racing: RunCommand = async (command, args, input) => {
      if (!raced && input?.includes('link add') === true) {
        raced = true;
        await inNode('ip', ['route', 'add', '10.55.0.2/32', 'dev', 'up0', 'metric', '5']);
      }
      return await inNode(command, args, input);
    };
    core = new FakeCore();
    service = newService({ network: nodeNetwork(racing) });
    put([{ name: 'app', uid: 'u-app', address: '10.55.0.77' }]);
    const message = "address 10.55.0.2 is somebody else's: the node has a route to 10.55.0.2 by up0";
    try {
      const refused = await request('ADD', { ...one(), CNI_ARGS: args });
      expect(refused).toMatchObject({ ok: false, body: { code: 104, msg: message } });
      expect(await links()).toEqual([]);
      expect(await inNode('ip', ['route', 'show', '10.55.0.2'])).toMatch(
        /^10\.55\.0\.2 dev up0 scope link metric 5[^\n]*\n$/,
      );
      expect(service.addresses()).toEqual({ ok: false, message });
      using snapshot = core.db.read();
      expect([...snapshot.all(core.tables.podEvents)]).toMatchObject([
        { pod: { namespace: 'default', name: 'app', uid: 'u-app' }, reason: 'AddressConflict', message, count: 1 },
      ]);
      await service.auditAddresses();
      expect(service.addresses().ok).toBe(false);
      expect(await request('ADD', { ...one(), CNI_ARGS: args })).toMatchObject({
        body: { ips: [{ address: '10.55.0.3/32' }] },
      });
      await service.auditAddresses();
      expect(service.addresses()).toEqual({ ok: true, message: 'each address has one owner' });
    } finally {
      await inNode('ip', ['route', 'flush', '10.55.0.2/32']);
    }
  });

  it('are told when two come to have one', async () => {
    await request('ADD', { ...one(), CNI_ARGS: args });
    await service.auditAddresses();
    expect(service.addresses().ok).toBe(true);
    put([
      { name: 'app', uid: 'u-app', address: '10.55.0.2' },
      { name: 'bridged', uid: 'u-bridged', address: '10.55.0.2' },
    ]);
    await inNode('ip', ['route', 'add', '10.55.0.2/32', 'dev', 'up0', 'metric', '5']);
    try {
      for (let time = 0; time < 2; time++) await service.auditAddresses();
      expect(service.addresses()).toEqual({
        ok: false,
        message:
          "address 10.55.0.2 of default/app is claimed by default/bridged, too; other nodes take it for nobody's until one pod alone claims it: " +
          'delete the other one; it is elsewhere on the node, too (route to 10.55.0.2 by up0): packets to it may not reach default/app',
      });
      using snapshot = core.db.read();
      expect([...snapshot.all(core.tables.podEvents)]).toMatchObject([
        { pod: { name: 'app' }, count: 1 },
        { pod: { name: 'bridged' }, count: 1 },
      ]);
    } finally {
      await inNode('ip', ['route', 'delete', '10.55.0.2/32', 'metric', '5']);
    }
    core.db.write([core.tables.localPods], (txn) => txn.delete(core.tables.localPods, 'default/bridged'));
    await service.auditAddresses();
    expect(service.addresses().ok).toBe(true);
  });

  it('say who keeps one that two claim, as the slices give it to a pod', async () => {
    await request('ADD', { ...one(), CNI_ARGS: args });
    put([
      { name: 'app', uid: 'u-app', address: '10.55.0.2' },
      { name: 'forged', uid: 'u-forged', address: '10.55.0.2' },
    ]);
    const said = async (owner?: string): Promise<string> => {
      if (owner !== undefined) claim(owner, `u-${owner}`, '10.55.0.2');
      await service.auditAddresses();
      const { ok, message } = service.addresses();
      expect(ok).toBe(false);
      if (owner !== undefined)
        core.db.write([core.tables.remoteEndpoints], (txn) =>
          txn.delete(core.tables.remoteEndpoints, `default/${owner}`),
        );
      return message;
    };
    const claimed = 'address 10.55.0.2 of default/app is claimed by default/forged, too; ';
    expect(await said('app')).toBe(`${claimed}default/app had it first and keeps it`);
    expect(await said('forged')).toBe(
      `${claimed}other nodes take it for default/forged's, and what default/app sends for that pod's: delete the one that should not have it`,
    );
    expect(await said()).toBe(
      `${claimed}other nodes take it for nobody's until one pod alone claims it: delete the other one`,
    );
    const done = core.db.initialiser(core.tables.remoteEndpoints, 'kubernetes');
    expect(await said()).toBe(`${claimed}whose it is to other nodes is not known yet`);
    core.db.write([core.tables.remoteEndpoints], done);
  });

  it('are not compared when an endpoint was found without one, and those of others are told all the same', async () => {
    await request('ADD', { ...one(), CNI_ARGS: args });
    core.db.write([core.tables.endpoints], (txn) =>
      txn.upsert(core.tables.endpoints, {
        ...{ id: 9, ifindex: 1009, interfaceName: 'x9', addresses: [], createdAt: '', found: { identity: 0 } },
      }),
    );
    put([{ name: 'bridged', uid: 'u-bridged', address: '10.55.0.2' }]);
    await service.auditAddresses();
    expect(service.addresses()).toEqual({
      ok: false,
      message: expect.stringMatching(/^address 10.55.0.2 of default\/app is claimed by default\/bridged, too; /),
    });
    await core.deleteEndpoint(9);
  });

  it('are not given before pods and slices have been listed', async () => {
    const done = core.db.initialiser(core.tables.remoteEndpoints, 'kubernetes');
    const answer = request('ADD', one());
    claim('former', 'u-former', '10.55.0.2');
    core.db.write([core.tables.remoteEndpoints], done);
    expect(await answer).toMatchObject({ ok: true, body: { ips: [{ address: '10.55.0.3/32' }] } });
    core = new FakeCore();
    service = newService({ enforceTimeoutMs: 1 });
    core.db.initialiser(core.tables.localPods, 'kubernetes');
    expect(await request('ADD', two())).toMatchObject({
      ok: false,
      body: { code: 11, msg: 'which addresses are free is not known yet: localPods (kubernetes) not complete' },
    });
    await nodeNetwork().removeLink(vethName({ containerId: 'one', ifname: 'eth0' }));
  });
});

describe('a pod that asks for ports of its node', () => {
  const runtimeConfig = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp', hostIP: '' }] };
  const CNI_ARGS = 'K8S_POD_NAMESPACE=default;K8S_POD_NAME=app;K8S_POD_UID=u-app';
  const told = (): unknown[] => {
    using snapshot = core.db.read();
    return Array.from(snapshot.all(core.tables.podEvents), ({ reason, message }) => `${reason}: ${message}`);
  };

  it('is told when nobody maps them', async () => {
    expect(await request('ADD', { ...one(), CNI_ARGS }, { runtimeConfig, mapsHostPorts: false })).toMatchObject({
      ok: true,
    });
    expect(told()).toEqual([
      expect.stringMatching(/^HostPortNotMapped: hostPort 8080\/tcp does not reach this pod: .*portmap/),
    ]);
  });

  it.each([
    ['somebody maps them', { runtimeConfig, mapsHostPorts: true }],
    ['it asks for none', { runtimeConfig: { portMappings: [] }, mapsHostPorts: false }],
    ['it asks for nothing', {}],
  ])('is told nothing when %s', async (_what, config) => {
    expect(await request('ADD', { ...one(), CNI_ARGS }, config)).toMatchObject({ ok: true });
    expect(told()).toEqual([]);
  });
});

describe('DEL', () => {
  it('is idempotent, and needs neither netns nor memory', async () => {
    await request('ADD', one());
    core = new FakeCore();
    service = newService();
    for (let time = 0; time < 2; time++) {
      expect(await request('DEL', { CNI_CONTAINERID: 'one' })).toEqual({ ok: true });
      expect(await links()).toEqual([]);
    }
  });
  it('gives the address back, which then rests: over a restart too', async () => {
    const cidr = '10.55.0.4/30';
    const folder = await mkdtemp(join(tmpdir(), 'weir-cni-'));
    let now = 1_000_000;
    /** What a crash in this moment would leave. */
    const onDisk = async (): Promise<unknown> =>
      JSON.parse(await readFile(join(folder, 'addresses.json'), 'utf8')).content.rows;
    const agent = async (): Promise<void> => {
      core = new FakeCore();
      core.files = new StateFiles({ folder, node: 'node1', db: core.db, log: quiet });
      service = newService({ podCidrs: () => [cidr], now: () => now });
      await service.start();
    };
    try {
      await agent();
      expect(await request('ADD', one())).toMatchObject({ ok: true, body: { ips: [{ address: '10.55.0.6/32' }] } });
      expect(await onDisk()).toEqual([{ address: '10.55.0.6', order: 1, endpoint: 1 }]);
      await request('DEL', { CNI_CONTAINERID: 'one' });
      expect(await onDisk()).toEqual([{ address: '10.55.0.6', order: 1, freedAt: now }]);
      await service.stop();
      await agent();
      now += REST_MS - 1;
      expect(await request('ADD', two())).toMatchObject({
        body: { code: 11, msg: expect.stringContaining('resting') },
      });
      expect(await request('STATUS')).toEqual({ ok: true });
      now += 1;
      expect(service.resting()).toBeUndefined();
      expect(await request('ADD', two())).toMatchObject({ body: { ips: [{ address: '10.55.0.6/32' }] } });
      await service.stop();
      await rm(join(folder, 'addresses.json'));
      await agent();
      now += REST_MS - 1_000;
      expect(service.resting()).toBe(
        'the record of lately released addresses is lost: addresses of which nothing is known rest for 1 s more',
      );
      await core.files.saved();
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

describe('a state folder on a read-only disk', () => {
  it('keeps no pod from coming and going, and is told with path and error', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'weir-cni-'));
    const state = join(folder, 'state');
    const path = join(state, 'addresses.json');
    await mkdir(state);
    await runCommand('mount', ['-t', 'tmpfs', 'tmpfs', state]);
    try {
      core = new FakeCore();
      const mine = new StateFiles({ folder: state, node: 'node1', db: core.db, log: quiet });
      core.files = mine;
      service = newService();
      await service.start();
      await core.files.saved();
      const before = await readFile(path, 'utf8');
      await runCommand('mount', ['-o', 'remount,ro', state]);
      expect(await request('ADD', one())).toMatchObject({ ok: true, body: { ips: [{ address: '10.55.0.2/32' }] } });
      expect(await request('STATUS')).toEqual({ ok: true });
      expect(mine.check()).toMatchObject({
        ok: false,
        message: expect.stringMatching(new RegExp(`^${path} cannot be written \\(EROFS: `)),
      });
      expect(await request('DEL', { CNI_CONTAINERID: 'one' })).toEqual({ ok: true });
      expect(await links()).toEqual([]);
      expect(await readFile(path, 'utf8')).toBe(before);
      await runCommand('mount', ['-o', 'remount,rw', state]);
      await service.stop();
      await mine.stop();
      expect(mine.check().ok).toBe(true);
    } finally {
      await runCommand('umount', ['-l', state]);
      await rm(folder, { recursive: true });
    }
  });
});

describe('CHECK and GC', () => {
  it('names what is no longer as it was made', async () => {
    expect(await request('CHECK', one())).toMatchObject({ ok: false, body: { code: 3 } });
    await request('ADD', one());
    await runCommand('nsenter', [`--net=${pod1}`, 'ip', 'address', 'flush', 'dev', 'eth0']);
    expect(await request('CHECK', one())).toMatchObject({
      ok: false,
      body: { code: 103, msg: expect.stringContaining('has not 10.55.0.2/32') },
    });
  });
  it('removes what is not on the list, orphans included', async () => {
    await request('ADD', one());
    await request('ADD', two());
    await core.deleteEndpoint(2);
    await request('GC', {}, { 'cni.dev/valid-attachments': [{ containerID: 'one', ifname: 'eth0' }] });
    expect(await links()).toEqual([vethName({ containerId: 'one', ifname: 'eth0' })]);
  });

  it('takes nothing from a pod that is attached while it looks for orphans', async () => {
    const network = nodeNetwork();
    const list = network.hostLinks.bind(network);
    const made = Promise.withResolvers<void>();
    core = new FakeCore();
    core.beforeEnforce = () => made.resolve();
    service = newService({ network });
    // The list has the pair of an ADD that ends before the list is gone through.
    network.hostLinks = async () => {
      const add = request('ADD', one());
      await made.promise;
      const found = await list();
      expect(await add).toMatchObject({ ok: true });
      return found;
    };
    expect(await request('GC', {}, { 'cni.dev/valid-attachments': [] })).toEqual({ ok: true });
    network.hostLinks = list;
    expect(await request('CHECK', one())).toEqual({ ok: true });
  });

  it('takes nothing from a pod that is attached again while others are removed', async () => {
    const network = nodeNetwork();
    const remove = network.removeLink.bind(network);
    core = new FakeCore();
    service = newService({ network });
    await request('ADD', one());
    await request('ADD', two());
    let again: ReturnType<typeof one> | undefined;
    network.removeLink = async (name) => {
      if (again === undefined) {
        again = name === vethName({ containerId: 'one', ifname: 'eth0' }) ? two() : one();
        await request('DEL', again);
        expect(await request('ADD', again)).toMatchObject({ ok: true });
      }
      return await remove(name);
    };
    expect(await request('GC', {}, { 'cni.dev/valid-attachments': [] })).toEqual({ ok: true });
    expect(await request('CHECK', again)).toEqual({ ok: true });
  });
});

describe('the end of an agent', () => {
  it('gives up what the kernel does not acknowledge in time, and leaves nothing behind', async () => {
    const asked = Promise.withResolvers<void>();
    core.beforeEnforce = async () => {
      asked.resolve();
      await new Promise(() => undefined);
    };
    const answer = request('ADD', one());
    await asked.promise;
    service.endWithin(0);
    await service.stop();
    expect(await answer).toMatchObject({ ok: false, body: { code: 11, msg: expect.stringContaining('is ending') } });
    expect(await links()).toEqual([]);
    expect(core.calls).toEqual(['upsert 1', 'delete 1']);
    service = newService({}, new FakeCore());
  });

  it('attaches no pod while Weir is being removed, but lets them go', async () => {
    await request('ADD', one());
    const calls = core.calls.length;
    await service.close('Weir is being removed from this node');
    for (const [command, code] of [
      ['ADD', 11],
      ['STATUS', 50],
      ['GC', 50],
    ] as const) {
      const answer = await request(command, two(), { 'cni.dev/valid-attachments': [] });
      expect(answer).toMatchObject({ ok: false, body: { code, msg: 'Weir is being removed from this node' } });
    }
    expect(await request('DEL', one())).toEqual({ ok: true });
    expect(await links()).toEqual([]);
    // The core is gone by then.
    expect(core.calls).toHaveLength(calls);
    service = newService({}, new FakeCore());
  });

  it('counts every request by what it was', async () => {
    const seen: string[] = [];
    core = new FakeCore();
    service = newService({
      onCall: ({ command, ok, seconds }) => {
        expect(seconds).toBeGreaterThanOrEqual(0);
        seen.push(`${command} ${ok}`);
      },
    });
    await request('STATUS');
    await request('CHECK', one());
    await request('BOGUS');
    await service.handle('no request');
    expect(seen).toEqual(['STATUS true', 'CHECK false', 'other false', 'other false']);
  });
});

describe('an endpoint that was found without its attachment', () => {
  const found = async (): Promise<string> => {
    expect((await request('ADD', one())).ok).toBe(true);
    using snapshot = core.db.read();
    const [row] = snapshot.all(core.tables.endpoints);
    if (row === undefined) throw new Error('the pod has no endpoint');
    const { containerId: _, containerInterface: __, netns: ___, pod: ____, ...kernel } = row;
    core.db.write([core.tables.endpoints], (txn) =>
      txn.upsert(core.tables.endpoints, { ...kernel, found: { identity: 300 } }),
    );
    return row.interfaceName;
  };
  const left = (): number => {
    using snapshot = core.db.read();
    return snapshot.count(core.tables.endpoints);
  };

  it.each([
    ['DEL', () => request('DEL', one())],
    ['the next ADD of the attachment', () => request('ADD', one()).then(() => request('DEL', one()))],
    ['GC that does not keep it', () => request('GC', {}, { 'cni.dev/valid-attachments': [] })],
  ])('goes with its interface on %s', async (_, end) => {
    const name = await found();
    expect(await links()).toEqual([name]);
    await end();
    expect([left(), await links()]).toEqual([0, []]);
  });

  it('stays while GC keeps its attachment', async () => {
    await found();
    await request('GC', {}, { 'cni.dev/valid-attachments': [{ containerID: 'one', ifname: 'eth0' }] });
    expect([left(), (await links()).length]).toEqual([1, 1]);
  });
});
