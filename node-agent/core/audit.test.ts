/** What others take away of what is enforced is noticed, said and put back. On the real kernel. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import {
  classKey,
  classValue,
  DIRECTION,
  endpointKey,
  endpointValue,
  ipcacheKey,
  ipcacheValue,
  MAPS,
  slotKey,
} from '@weir/bpf';
import { parsePrefix } from '@weir/net';
import { attachTcx, type BpfMap, inNetns, openPinnedLink, openPinnedMap } from 'libbpf-ts';
import { eventually } from '../../test/eventually.ts';
import type { Core, CoreOptions } from '../core.ts';
import { Audit } from '../datapath/index.ts';
import { dropsOf, Lab, type LabPod } from '../datapath/testing/lab.ts';
import { loadRivals } from '../datapath/testing/rivals.ts';
import { recordingLogger } from '../testing/fake-core.ts';
import { createCore } from './create-core.ts';

let lab: Lab;
let core: Core;
let client: LabPod;
let server: LabPod;
let log: ReturnType<typeof recordingLogger>;

async function start(more: Partial<CoreOptions> = {}): Promise<void> {
  log = recordingLogger();
  core = createCore(lab.options({ log, ...more, kernel: { auditMs: 20, ...more.kernel } }));
  await core.start();
  await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
  await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
  const { revision } = core.importRules([
    {
      endpointSelector: { matchLabels: { app: 'server' } },
      ingress: [{ fromEndpoints: [{ matchLabels: { app: 'friend' } }] }, { fromCIDR: ['192.0.2.0/24'] }],
    },
  ]);
  await core.waitPolicyRevision(revision);
}

async function until(test: () => boolean): Promise<void> {
  for (const end = Date.now() + 60_000; !test() && Date.now() < end; )
    await new Promise((done) => setTimeout(done, 10));
  expect(test()).toBe(true);
}

function repairs(part: string): number {
  return core.repairs().find((each) => each.part === part)?.count ?? 0;
}

const check = (name: string) => core.health().checks.find((each) => each.name === name);
const tc = (...args: string[]) => execFileSync('nsenter', [`--net=${lab.netns}`, 'tc', ...args]);
const ip = (...args: string[]) => execFileSync('ip', ['-n', lab.node, ...args]);

function inMap<T>(name: string, body: (map: BpfMap) => T): T {
  using map = openPinnedMap(join(lab.root, name));
  return body(map);
}

const programPins = (): readonly string[] =>
  readdirSync(join(lab.root, 'programs')).map((name) => join(lab.root, 'programs', name));

function inPlaceOf(path = ''): void {
  rmSync(path);
  mkdirSync(path);
}

function exchange([one = '', other = '']: readonly string[]): void {
  const aside = join(lab.root, 'aside');
  renameSync(one, aside);
  renameSync(other, one);
  renameSync(aside, other);
}

beforeEach(async () => {
  lab = new Lab();
  client = await lab.pod('c');
  server = await lab.pod('s');
});

afterEach(async () => {
  await core.stop();
  lab.close();
});

describe('what is taken away', () => {
  const links = (): string => join(lab.root, 'links');
  /** The server's packets are judged, the client's to it are not. */
  const open = async (): Promise<void> => {
    rmSync(links(), { recursive: true });
    mkdirSync(join(links(), '2-egress'), { recursive: true });
    await until(() => check('enforcement')?.message.includes('cannot be restored') === true);
  };
  const close = async (): Promise<void> => {
    const before = repairs('endpoint');
    rmSync(join(links(), '2-egress'), { recursive: true });
    await until(() => repairs('endpoint') > before && check('enforcement')?.ok === true);
  };

  it('leaves no flow known that may have begun with an answer to what came unjudged', async () => {
    await start();
    expect(await server.reaches(client)).toBe(true);
    const flows = () => core.mapEntries('ct4').map(({ key }) => key);
    expect(flows()).toContainEqual(expect.objectContaining({ endpoint: 2 }));
    rmSync(links(), { recursive: true });
    await until(
      () => repairs('endpoint') === 2 && !flows().some((key) => (key as { endpoint: number }).endpoint === 2),
    );
    expect(await client.reaches(server)).toBe(false);
  });

  it.each([
    ['after it, while the endpoint is in quarantine', false],
    ['before it', true],
  ])(
    'a datagram that came unjudged is answered; the next of its conversation comes %s, and is denied',
    async (_, first) => {
      await start();
      await open();
      // One that comes while a look tries to put the programs back is judged.
      const passed = await eventually(
        async () => {
          const letters = await server.letters();
          if (letters === 0) await client.write(server);
          return letters;
        },
        (letters) => letters > 0,
      );
      await close();
      const denied = async (): Promise<void> => {
        const before = dropsOf(lab.root);
        await client.write(server);
        await until(() => dropsOf(lab.root) > before);
      };
      if (first) await denied();
      await server.answer();
      await eventually(
        () => client.letters(),
        (letters) => letters === 1,
      );
      await denied();
      // Nor does it pass when the quarantine is over, which shows in what the server begins.
      await eventually(() => server.reaches(client), Boolean);
      await denied();
      expect(await server.letters()).toBe(passed);
    },
  );

  it('what a policy had cut stays cut, whoever speaks next', async () => {
    await start();
    const rule = (app: string) => ({
      endpointSelector: { matchLabels: { app: 'server' } },
      ingress: [{ fromEndpoints: [{ matchLabels: { app } }] }],
    });
    const only = async (app: string): Promise<void> => {
      core.deleteRules([]);
      const { revision } = core.importRules([rule(app)]);
      await core.waitPolicyRevision(revision);
    };
    const denied = async (): Promise<void> => {
      const before = dropsOf(lab.root);
      await client.write(server);
      await until(() => dropsOf(lab.root) > before);
    };
    await only('client');
    await client.write(server);
    await eventually(
      () => server.letters(),
      (letters) => letters === 1,
    );
    await only('friend');
    await denied();
    rmSync(links(), { recursive: true });
    await until(() => repairs('endpoint') === 2 && check('enforcement')?.ok === true);
    await eventually(() => server.reaches(client), Boolean);
    await server.answer();
    await denied();
    expect(await server.letters()).toBe(1);
  });

  it('a connection that was opened meanwhile is denied whoever speaks next; one from before goes on', async () => {
    await start();
    const other = await lab.pod('other');
    await core.upsertEndpoint(other.endpoint(3, { 'k8s:app': 'other' }));
    await core.waitPolicyRevision(core.policyRevision());
    expect(await server.dial(other)).toBe(true);
    await open();
    expect(await client.dial(server)).toBe(true);
    await client.say(server);
    await eventually(
      () => server.heard(),
      (bytes) => bytes === 1,
    );
    await close();

    await server.say(client);
    await eventually(
      () => client.heard(),
      (bytes) => bytes === 1,
    );
    const dropped = () => dropsOf(lab.root);
    const before = dropped();
    await client.say(server);
    await until(() => dropped() > before);
    await server.say(client);
    await eventually(
      () => client.heard(),
      (bytes) => bytes === 2,
    );
    expect(await server.heard()).toBe(1);

    // The next agent knows.
    await core.stop();
    core = createCore(lab.options({ kernel: { auditMs: 20 }, log }));
    await core.start();
    await core.waitPolicyRevision(core.policyRevision());
    const again = dropped();
    await client.say(server);
    await until(() => dropped() > again);
    expect(await server.heard()).toBe(1);
    await other.say(server);
    await eventually(
      () => server.heard(),
      (bytes) => bytes === 2,
    );
  });

  it.each<[string, string, () => void]>([
    ['every pinned link', 'endpoint', () => rmSync(links(), { recursive: true })],
    ['one link, detached with its pin left', 'endpoint', () => openPinnedLink(join(links(), '2-egress')).detach()],
    [
      'every pinned link, beside a folder in the place of a pin',
      'endpoint',
      () => {
        rmSync(join(lab.root, 'events'));
        mkdirSync(join(lab.root, 'events'));
        rmSync(links(), { recursive: true });
      },
    ],
    ['the pin of one map', 'pins', () => rmSync(join(lab.root, 'ipcache'))],
    ['every pin', 'pins', () => rmSync(lab.root, { recursive: true })],
    ['the pins of programs', 'pins', () => rmSync(join(lab.root, 'programs'), { recursive: true })],
    ['a folder in the place of the pin of a program', 'pins', () => inPlaceOf(programPins()[0])],
    ['each of the two pins of programs, in the place of the other', 'pins', () => exchange(programPins())],
    [
      'the element of an endpoint',
      'endpoint',
      () =>
        inMap('endpoint_array', (map) =>
          map.update(endpointKey.encode(server.ifindex % 4096), new Uint8Array(map.info.valueSize)),
        ),
    ],
    ['an address', 'address', () => inMap('ipcache', (map) => map.delete(prefixKey(`${client.address}/32`)))],
    ['the maps of a slot', 'slot', () => inMap('policy_classes', (map) => map.delete(slotKey.encode(slotOf(2))))],
    [
      'an element of a slot',
      'slot',
      () =>
        inMap('policy_classes', (map) => {
          using inner = map.openInner(slotKey.encode(slotOf(2)));
          if (inner === undefined) throw new Error('the slot is not there');
          const [first] = inner.keys();
          if (first === undefined) throw new Error('the slot is empty');
          inner.delete(first);
        }),
    ],
  ])('%s is put back, counted and logged', async (_, part, take) => {
    await start();
    expect(await client.reaches(server)).toBe(false);
    take();
    await until(() => repairs(part) > 0 && check('enforcement')?.ok === true);
    expect(await client.reaches(server)).toBe(false);
    for (const name of Object.keys(MAPS)) expect(inMap(name, (map) => map.info.name)).toBe(name.slice(0, 15));
    expect(readdirSync(links()).sort()).toEqual(['1-egress', '1-ingress', '2-egress', '2-ingress']);
    expect(log.lines).toContainEqual(
      expect.objectContaining({ level: 'warn', message: 'somebody removed enforcement; restoring it' }),
    );
    expect(check('enforcement')?.message).toMatch(/^\d+ s ago somebody had removed this, and it was restored: /);
    // What maps hold is told at the end of a turn.
    const events = (): readonly object[] => {
      using snapshot = core.db.read();
      return [...snapshot.all(core.tables.podEvents)];
    };
    await until(() => events().length > 0);
    expect(events()).toEqual([
      expect.objectContaining({
        pod: { namespace: 'default', name: 'lab', uid: 'lab' },
        node: true,
        reason: 'EnforcementRemoved',
        message: expect.stringContaining('on this node; restored: '),
      }),
    ]);
    // And nothing else was: what is at rest stays so.
    const before = JSON.stringify(core.repairs());
    core.deleteRules([]);
    await core.waitPolicyRevision(core.policyRevision());
    expect(await client.reaches(server)).toBe(true);
    expect(JSON.stringify(core.repairs())).toBe(before);
  });

  /** Keeps the audit away, and every round with it, until the result is called. */
  async function holdAudit(): Promise<() => void> {
    const held = Promise.withResolvers<void>();
    const over = Promise.withResolvers<void>();
    const look = Reflect.get(Audit.prototype, 'look') as (this: Audit) => Promise<void>;
    jest.spyOn(Audit.prototype, 'look').mockImplementation(async function (this: Audit) {
      held.resolve();
      await over.promise;
      await look.call(this);
    });
    await held.promise;
    return over.resolve;
  }
  const identityOf = (pod: LabPod): number => {
    using snapshot = core.db.read();
    return snapshot.get(core.tables.ipcache, `${pod.address}/32`)?.identity ?? 0;
  };

  it.each<[string, string, (friend: LabPod) => void]>([
    [
      'element',
      'endpoint',
      () =>
        inMap('endpoint_array', (map) => {
          const key = endpointKey.encode(server.ifindex % 4096);
          const value = endpointValue.decode(map.lookup(key) ?? new Uint8Array());
          map.update(key, endpointValue.encode({ ...value, flags: 0 }));
        }),
    ],
    [
      'address',
      'address',
      (friend) =>
        inMap('ipcache', (map) => {
          const other = map.lookup(prefixKey(`${friend.address}/32`));
          map.update(prefixKey(`${client.address}/32`), other ?? new Uint8Array());
        }),
    ],
    [
      'slot',
      'slot',
      (friend) =>
        inMap('policy_classes', (map) => {
          using inner = map.openInner(slotKey.encode(slotOf(2)));
          const direction = DIRECTION.ingress;
          const other = inner?.lookup(classKey.encode({ identity: identityOf(friend), direction }));
          const identity = identityOf(client);
          const value = { ...classValue.decode(other ?? new Uint8Array()), identity };
          inner?.update(classKey.encode({ identity, direction }), classValue.encode(value));
        }),
    ],
  ])('a connection that an edited %s allowed ends when that is put back', async (_, part, edit) => {
    await start();
    const friend = await lab.pod('fr');
    await core.upsertEndpoint(friend.endpoint(3, { 'k8s:app': 'friend' }));
    await core.waitPolicyRevision(core.policyRevision());
    const letGo = await holdAudit();
    try {
      edit(friend);
      expect(await client.dial(server)).toBe(true);
      expect(await friend.dial(server)).toBe(true);
      await client.say(server);
      await eventually(
        () => server.heard(),
        (bytes) => bytes === 1,
      );
      letGo();
      await until(() => repairs(part) > 0 && check('enforcement')?.ok === true);
      const before = dropsOf(lab.root);
      await client.say(server);
      await until(() => dropsOf(lab.root) > before);
      expect(await server.heard()).toBe(1);
      await friend.say(server);
      await eventually(
        () => server.heard(),
        (bytes) => bytes === 2,
      );
    } finally {
      letGo();
      jest.restoreAllMocks();
    }
  });

  it('what maps hold is compared turn after turn, and status says when', async () => {
    await start();
    const ends = (): string[] => core.comparisons().map(({ part, at }) => `${part} ${at}`);
    await until(() => ends().length === 2);
    const first = ends();
    expect(core.comparisons().map(({ part }) => part)).toEqual(['address', 'slot']);
    expect(check('enforcement')?.message).toMatch(/map contents were last compared completely at \d{4}-/);
    await until(() => ends().every((end) => !first.includes(end)));
    expect(core.repairs()).toEqual([]);
  });

  it('everything is compared at once when somebody asks, and put back', async () => {
    // By itself it would not look for an hour.
    await start({ kernel: { auditMs: 3_600_000 } });
    expect(await core.verify()).toMatchObject({ mended: [], faults: [], left: 0 });
    expect(core.comparisons().map(({ part }) => part)).toEqual(['address', 'slot']);
    const key = prefixKey('198.51.100.7/32');
    const add = (): void => inMap('ipcache', (map) => map.update(key, ipcacheValue.encode({ identity: 2, bits: 32 })));
    add();
    rmSync(join(lab.root, 'ipcache'));
    const { mended, faults } = await core.verify();
    expect(mended.map(({ part, count }) => [part, count])).toEqual([
      ['address', 1],
      ['pins', 1],
    ]);
    expect(faults).toEqual([]);
    expect(inMap('ipcache', (map) => map.delete(key))).toBe(false);
    add();
    // Two that ask at once.
    const both = await Promise.all([core.verify(), core.verify()]);
    expect(both.map((one) => one.mended.map(({ part }) => part))).toEqual([['address'], ['address']]);
    expect(await core.verify()).toMatchObject({ mended: [], faults: [] });
  });

  it('an address that nobody gave is removed', async () => {
    await start();
    const key = prefixKey('198.51.100.7/32');
    inMap('ipcache', (map) => {
      const [entry] = map.entries();
      map.update(key, entry?.[1] ?? new Uint8Array(map.info.valueSize));
    });
    await until(() => repairs('address') > 0);
    expect(inMap('ipcache', (map) => map.delete(key))).toBe(false);
  });

  it.each([
    ['without a family', 0, [4]],
    ['with half a family', 17, [4]],
    ['of an unknown family', 64, [5, 0, 0, 0, 10]],
    ['longer than its family', 128, [4, 0, 0, 0, 198, 51, 100, 7]],
    ['with bits beyond its length', 48, [4, 0, 0, 0, 198, 51, 100, 7]],
    ['with bits where there are none', 64, [4, 1, 0, 0, 198, 51, 100, 7]],
  ])('an element of addresses %s is removed, and keeps no agent from starting', async (_, bits, bytes) => {
    await start();
    const key = new Uint8Array(24);
    new DataView(key.buffer).setUint32(0, bits, true);
    key.set(bytes, 4);
    const put = () => inMap('ipcache', (map) => map.update(key, ipcacheValue.encode({ identity: 2, bits: 0 })));
    const there = () => inMap('ipcache', (map) => [...map.keys()].some((each) => Buffer.compare(each, key) === 0));
    put();
    await until(() => repairs('address') > 0 && check('enforcement')?.ok === true && !there());
    await core.stop();
    put();
    core = createCore(lab.options({ kernel: { auditMs: 20 }, log }));
    await core.start();
    await core.waitPolicyRevision(core.policyRevision());
    expect(there()).toBe(false);
    const removed = 'removed map elements that no agent wrote';
    expect(log.lines.filter(({ message }) => message === removed)).toHaveLength(1);
    await until(() => core.health().ok);
    expect(await client.reaches(server)).toBe(false);
    expect(await server.reaches(client)).toBe(true);
  });

  it.each([
    ['tcx', () => openPinnedLink(join(links(), '2-egress')).detach()],
    ['clsact', () => tc('filter', 'del', 'dev', server.interfaceName, 'egress')],
  ] as const)(
    "a program is said in the pod's direction, which is not the hook's, by %s",
    async (attachment, detach) => {
      await start({ kernel: { attachment } });
      detach();
      await until(() => repairs('endpoint') > 0 && check('enforcement')?.ok === true);
      expect(check('enforcement')?.message).toContain(
        'endpoint 2: what the pod receives (ingress) is not judged, as its program is not attached',
      );
    },
  );

  it('a clsact filter, or the whole qdisc, is put back', async () => {
    await start({ kernel: { attachment: 'clsact' } });
    tc('filter', 'del', 'dev', server.interfaceName, 'egress');
    await until(() => repairs('endpoint') > 0 && check('enforcement')?.ok === true);
    expect(await client.reaches(server)).toBe(false);
    const once = repairs('endpoint');
    tc('qdisc', 'del', 'dev', server.interfaceName, 'clsact');
    await until(() => repairs('endpoint') > once && check('enforcement')?.ok === true);
    expect(await client.reaches(server)).toBe(false);
  });

  it('until it can be put back, health, readiness and the policy say so', async () => {
    await start();
    const policy = core.policiesInKernel().keys().next().value;
    rmSync(join(lab.root, 'links'), { recursive: true });
    // A folder in the place of the link's pin.
    execFileSync('mkdir', ['-p', join(lab.root, 'links', '2-egress')]);
    await until(() => check('enforcement')?.ok === false);
    expect(core.health().ok).toBe(false);
    expect(check('kernel')).toMatchObject({
      ok: false,
      message: expect.stringContaining('has lost part of what it acknowledged'),
    });
    await until(() => core.realised().failures.length > 0);
    expect(core.realised().failures).toEqual([
      expect.objectContaining({ uid: policy, generation: 1, reason: 'EnforcementRemoved' }),
    ]);
    rmSync(join(lab.root, 'links', '2-egress'), { recursive: true });
    await until(() => core.health().ok);
    expect(core.realised().failures).toEqual([]);
    expect(await client.reaches(server)).toBe(false);
  });

  it('is put back before the inputs are complete, too', async () => {
    await start();
    await core.stop();
    core = createCore(lab.options({ kernel: { auditMs: 20 }, kubernetes: true }));
    const done = core.db.initialiser(core.tables.policies, 'reflector');
    await core.start();
    rmSync(join(lab.root, 'links'), { recursive: true });
    await until(() => repairs('endpoint') > 0 && check('enforcement')?.ok === true);
    expect(await client.reaches(server)).toBe(false);
    core.db.write([core.tables.policies], (txn) => done(txn));
    await core.waitPolicyRevision(core.policyRevision());
    expect(await client.reaches(server)).toBe(false);
  });
});

describe("another's program before ours that cannot be overtaken yet", () => {
  it('leaves the pod its own conversations', async () => {
    const rivals = loadRivals();
    try {
      await start();
      expect(await server.reaches(client)).toBe(true);
      await core.stop();
      // As after an upgrade: what runs is another version's, which stays until all inputs are there.
      rmSync(join(lab.root, 'programs'), { recursive: true });
      inNetns(lab.netns, () =>
        attachTcx(rivals.program('rival_goes_on'), { ifindex: server.ifindex, direction: 'ingress', place: 'first' }),
      );
      core = createCore(lab.options({ kernel: { auditMs: 20 }, kubernetes: true }));
      core.db.initialiser(core.tables.policies, 'reflector');
      await core.start();
      await until(() => check('enforcement')?.message.includes("another version's") === true);
      for (let looks = 0; looks < 3; looks += 1) {
        expect(await server.reaches(client)).toBe(true);
        expect(await client.reaches(server)).toBe(false);
      }
    } finally {
      rivals.close();
    }
  });
});

describe('an interface that goes away without a word', () => {
  it('is enforced again when it comes back', async () => {
    await start();
    const away = `${lab.prefix}away`;
    execFileSync('ip', ['netns', 'add', away]);
    try {
      ip('link', 'set', server.interfaceName, 'netns', away);
      await until(() => check('endpoints')?.message.includes('interface of endpoint 2') === true);
      execFileSync('ip', ['-n', away, 'link', 'set', server.interfaceName, 'netns', lab.node]);
      await until(() => check('endpoints')?.message === 'every endpoint is known');
      await until(() => core.mapEntries('endpoints').length === 2);
      ip('addr', 'add', `${server.address.replace(/\d+$/, '1')}/24`, 'dev', server.interfaceName);
      ip('link', 'set', server.interfaceName, 'up');
      expect(await client.reaches(server)).toBe(false);
    } finally {
      execFileSync('ip', ['netns', 'del', away]);
    }
  });

  it('is known to the next agent, until its pod is deleted', async () => {
    await start();
    const { labels: _, ...row } = client.endpoint(1, {});
    const pod = { namespace: 'ns', name: 'web', uid: 'u1' };
    const tell = ({ db, tables }: Core): void => {
      db.write([tables.localPods], (txn) =>
        txn.upsert(tables.localPods, {
          ...pod,
          labels: {},
          serviceAccount: '',
          namedPorts: [],
          addresses: row.addresses,
        }),
      );
    };
    tell(core);
    await expect(core.upsertEndpoint({ ...row, pod }, { timeoutMs: 1_000 })).rejects.toThrow('namespace ns');
    await core.stop();
    ip('link', 'del', client.interfaceName);
    for (let starts = 0; starts < 2; starts += 1) {
      core = createCore(lab.options({ kernel: { auditMs: 20 }, log }));
      tell(core);
      await core.start();
      expect(check('endpoints')?.message).toContain(`endpoint 1 (${client.interfaceName}, pod ns/web) is gone`);
      await until(() => core.mapEntries('endpoints').length === 1);
      if (starts === 0) await core.stop();
    }
    core.db.write([core.tables.localPods], (txn) => txn.deleteAll(core.tables.localPods));
    await until(() => check('endpoints')?.message === 'every endpoint is known');
  });

  it.each(['tcx', 'clsact'] as const)(
    'takes its endpoint out of the kernel and leaves the agent ready, by %s',
    async (attachment) => {
      await start({ kernel: { attachment } });
      ip('link', 'del', client.interfaceName);
      await until(() => core.mapEntries('endpoints').length === 1);
      await until(() => core.health().ok);
      expect(check('endpoints')?.message).toContain('interface of endpoint 1');
      const { revision } = core.importRules([{ endpointSelector: { matchLabels: { app: 'x' } }, ingress: [{}] }]);
      expect(await core.waitPolicyRevision(revision)).toMatchObject({ failing: [] });
      using snapshot = core.db.read();
      expect([...snapshot.all(core.tables.endpoints)].find(({ id }) => id === 1)?.gone).toBeDefined();
      expect(readdirSync(join(lab.root, 'links')).some((name) => name.startsWith('1-'))).toBe(false);
      expect(await core.deleteEndpoint(1)).toBe(true);
      expect(check('endpoints')?.message).toBe('every endpoint is known');
      expect(log.lines.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]);
    },
  );
});

function slotOf(id: number): number {
  using snapshot = core.db.read();
  return [...snapshot.all(core.tables.endpointStates)].find((row) => row.id === id)?.slot ?? 0;
}

function prefixKey(text: string): Uint8Array {
  const { bytes, bits } = parsePrefix(text);
  return ipcacheKey.encode({ address: bytes, bits });
}
