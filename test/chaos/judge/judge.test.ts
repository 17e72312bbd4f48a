import { beforeEach, describe, expect, it } from '@jest/globals';
import type { FlowKind } from '../traffic/protocol.ts';
import type { Packet } from '../traffic/traffic.ts';
import type { Rule } from '../world/policy.ts';
import { type PodModel, World } from '../world/world.ts';
import { Judge } from './judge.ts';

const denyFrom = (...values: readonly string[]): Rule => ({
  subject: { matchLabels: { app: 'web' } },
  allow: {},
  deny: { ingress: [{ endpoints: [{ matchExpressions: [{ key: 'tier', operator: 'In', values }] }] }] },
  defaultDeny: { ingress: false },
});

let world: World;
let judge: Judge;
let web: PodModel;
let api: PodModel;
let packets = 0;

beforeEach(() => {
  world = new World();
  judge = new Judge(world);
  web = world.addPod({ name: 'web', namespace: 'a', node: 1, labels: { app: 'web' } }, 0);
  api = world.addPod({ name: 'api', namespace: 'a', node: 2, labels: { app: 'api', tier: 'x' } }, 0);
  world.calm(100);
});

type Fate = { readonly received?: number; readonly echoed?: number; readonly by?: PodModel; readonly kind?: FlowKind };

/** From `api` to `web`, on UDP port 80. */
function packet(sent: number, { received, echoed, by = web, kind = 'udp' }: Fate = {}): Packet {
  packets += 1;
  return {
    number: packets,
    flow: { id: 1, kind, from: api.id, to: web.id, port: 80 },
    sent,
    received: received === undefined ? undefined : { by: by.id, at: received },
    echoed,
    deadline: sent + 1500,
  };
}

function verdict(sent: number, fate: Fate = {}): string {
  const { duty, findings } = judge.judge(packet(sent, fate));
  return [duty, ...findings.map(({ wrong, what }) => `wrong ${wrong} of the ${what}`)].join(', ');
}

const arrived = { received: 1001, echoed: 1002 };

describe('one version', () => {
  it('what is allowed must arrive, and be answered', () => {
    expect(verdict(1000, arrived)).toBe('arrive');
    expect(verdict(1000)).toBe('arrive, wrong drop of the packet');
    expect(verdict(1000, { received: 1001 })).toBe('arrive, wrong drop of the echo');
    expect(verdict(1000, { received: 1001, kind: 'tcp' })).toBe('arrive');
  });

  it('what is denied must not', () => {
    world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('x'), 200);
    world.calm(300);
    expect(verdict(1000)).toBe('not arrive');
    expect(verdict(1000, arrived)).toBe('not arrive, wrong allow of the packet');
    expect(verdict(1000, { ...arrived, kind: 'connect' })).toBe('not arrive, wrong allow of the packet');
  });
});

describe('several versions', () => {
  it('while a policy is new, either is right; from Programmed on only it counts', () => {
    const policy = world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('x'), 1000);
    policy.uid = 'u';
    expect([
      verdict(990, { received: 991, echoed: 992 }),
      verdict(1100, { received: 1101, echoed: 1102 }),
      verdict(1100),
    ]).toEqual(['arrive', 'either', 'either']);
    // It had time until then, and meanwhile the policy was asked for.
    expect(verdict(990)).toBe('either');
    world.programmed('u', 1, 2000);
    expect(verdict(1999, { received: 2100, echoed: 2101 })).toBe('either');
    expect(verdict(2000, { received: 2100, echoed: 2101 })).toBe('not arrive, wrong allow of the packet');
    world.editPolicy(policy, denyFrom('y'), 3000);
    world.programmed('u', 1, 3100);
    expect(verdict(3200)).toBe('either');
    world.programmed('u', 2, 4000);
    expect(verdict(4000)).toBe('arrive, wrong drop of the packet');
  });

  it('a pod that moves within a set that both generations deny stays denied', () => {
    const policy = world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('x', 'y'), 200);
    world.calm(300);
    world.relabel(api, { app: 'api', tier: 'y' }, 1000);
    world.editPolicy(policy, denyFrom('x', 'y', 'z'), 1000);
    expect(verdict(1100, { received: 1101, echoed: 1102 })).toBe('not arrive, wrong allow of the packet');
    expect(verdict(1100)).toBe('not arrive');
  });

  it('a pod that is relabelled is one or the other until all is calm', () => {
    world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('y'), 200);
    world.calm(300);
    world.relabel(api, { app: 'api', tier: 'y' }, 1000);
    expect(verdict(1500, { received: 1501, echoed: 1502 })).toBe('either');
    world.calm(2000);
    expect(verdict(2000, { received: 2001, echoed: 2002 })).toBe('not arrive, wrong allow of the packet');
  });

  it('two policies that exchange their rules may be seen in any order', () => {
    const open = { ...denyFrom('other') };
    const one = world.addPolicy({ name: 'one', namespace: 'a' }, denyFrom('x'), 200);
    const two = world.addPolicy({ name: 'two', namespace: 'a' }, open, 200);
    world.calm(300);
    expect(verdict(900)).toBe('not arrive');
    world.editPolicy(one, open, 1000);
    world.editPolicy(two, denyFrom('x'), 1000);
    expect(verdict(1100, { received: 1101, echoed: 1102 })).toBe('either');
    world.calm(2000);
    expect(verdict(2100)).toBe('not arrive');
  });
});

describe('pods that come and go', () => {
  it('a new pod has no rights of who had its address before, and is shut off at most until all is calm', () => {
    world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('y'), 200);
    world.calm(300);
    api.endsAt = 1000;
    api = world.addPod({ name: 'heir', namespace: 'a', node: 2, labels: { app: 'api', tier: 'y' } }, 1100);
    expect(verdict(1200, { received: 1201, echoed: 1202 })).toBe('not arrive, wrong allow of the packet');
    const other = world.addPod({ name: 'other', namespace: 'a', node: 2, labels: { app: 'api', tier: 'x' } }, 1100);
    api = other;
    expect(verdict(1200)).toBe('either');
    world.calm(2000);
    expect(verdict(2000)).toBe('arrive, wrong drop of the packet');
  });

  it('who got a packet counts, not who was meant', () => {
    world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('x'), 200);
    const heir = world.addPod({ name: 'heir', namespace: 'a', node: 1, labels: { app: 'web' } }, 900);
    web.endsAt = 950;
    world.calm(960);
    expect(verdict(1000, { received: 1001, by: heir })).toBe('not arrive, wrong allow of the packet');
  });

  it('what is sent to a pod that goes need not arrive; what is denied must not', () => {
    web.endsAt = 1500;
    expect([verdict(1000), verdict(1400, { received: 1401, echoed: 1402 })]).toEqual(['exempt', 'arrive']);
    world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('x'), 200);
    world.calm(300);
    expect(verdict(1400, { received: 1501 })).toBe('not arrive, wrong allow of the packet');
  });

  it('a pod whose enforcement somebody took away may be open until all is calm', () => {
    world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('x'), 200);
    world.calm(300);
    web.states.beside({ kind: 'open' }, 1000);
    expect(verdict(1100, { received: 1101, echoed: 1102 })).toBe('either');
    world.calm(2000);
    expect(verdict(2100, { received: 2101, echoed: 2102 })).toBe('not arrive, wrong allow of the packet');
  });
});

describe('echoes', () => {
  /** Nobody may send to `api`, except to answer it. */
  function shutApi(): void {
    const nobody = { endpoints: [{ matchLabels: { app: 'nobody' } }] };
    world.addPolicy(
      { name: 'shut', namespace: 'a' },
      { subject: { matchLabels: { app: 'api' } }, allow: { ingress: [nobody] }, deny: {} },
      200,
    );
    world.calm(300);
  }

  it('an echo need not pass where nothing looked at its packet and no rule admits it', () => {
    shutApi();
    expect(verdict(900, { received: 901 })).toBe('arrive, wrong drop of the echo');
    web.states.beside({ kind: 'open' }, 1000);
    expect(verdict(1100, { received: 1101 })).toBe('arrive, wrong drop of the echo');
    api.states.beside({ kind: 'open' }, 1000);
    expect(verdict(1100, { received: 1101 })).toBe('arrive');
    expect(verdict(1100, { received: 1101, echoed: 1102 })).toBe('arrive');
    world.calm(2000);
    expect(verdict(2100, { received: 2101 })).toBe('arrive, wrong drop of the echo');
  });

  it('a connection that was opened where nobody looked may be cut where its answers stand alone', () => {
    shutApi();
    const connect = { received: 1001, kind: 'connect' } as const;
    const cut = 'arrive, wrong drop of the packet';
    expect([verdict(1000, connect), verdict(1010, { kind: 'tcp' })]).toEqual(['arrive', cut]);
    api.states.beside({ kind: 'open' }, 1100);
    expect(verdict(1150, { kind: 'tcp' })).toBe(cut);
    verdict(1200, { ...connect, received: 1201 });
    world.calm(2000);
    expect([verdict(2100, { kind: 'tcp' }), verdict(2100, { kind: 'connect' })]).toEqual(['arrive', cut]);
    verdict(2200, { ...connect, received: 2201 });
    expect(verdict(2300, { kind: 'tcp' })).toBe(cut);
  });

  it('an echo of a flow that is denied meanwhile stands alone', () => {
    const policy = world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('other'), 200);
    world.calm(300);
    // Denied when the echo goes back: web may still send to api on its own.
    world.editPolicy(policy, denyFrom('x'), 1000);
    policy.uid = 'u';
    world.programmed('u', 2, 1050);
    expect(verdict(999, { received: 1051, echoed: 1052 })).toBe('either');
    world.addPolicy(
      { name: 'back', namespace: 'a' },
      { subject: { matchLabels: { app: 'web' } }, allow: { egress: [{}] }, deny: {} },
      500,
    );
    world.calm(1050);
    expect(verdict(999, { received: 1051, echoed: 1052 })).toBe('either, wrong allow of the echo');
    expect(verdict(999, { received: 1051 })).toBe('either');
  });
});

it('what happened long ago is forgotten, what may count is kept', () => {
  const policy = world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('x'), 200);
  world.calm(300);
  world.editPolicy(policy, undefined, 1000);
  world.forget(1500);
  expect(verdict(1600)).toBe('either');
  world.calm(2000);
  world.forget(3000);
  expect(world.policies).toEqual([]);
  api.endsAt = 4000;
  world.forget(5000);
  expect([...world.hosts.values()]).toEqual([web]);
});

describe('flows that a node has lost', () => {
  it('need not go on: connections until they are opened again, answers for a few seconds', () => {
    expect(verdict(1000, { received: 1001, kind: 'connect' })).toBe('arrive');
    world.flowsLost(1);
    expect([verdict(1100, { kind: 'tcp' }), verdict(1100)]).toEqual(['arrive', 'arrive, wrong drop of the packet']);
    world.calm(2000);
    expect(verdict(2100, { kind: 'tcp' })).toBe('arrive');
    expect(verdict(2100, { received: 2101 })).toBe('arrive');
    expect(verdict(2200, { received: 2201, kind: 'connect' })).toBe('arrive');
    expect(verdict(2300, { kind: 'tcp' })).toBe('arrive, wrong drop of the packet');
    expect(verdict(6100, { received: 6101 })).toBe('arrive, wrong drop of the echo');
    // What had to be denied still has to be.
    world.addPolicy({ name: 'p', namespace: 'a' }, denyFrom('x'), 7000);
    world.calm(7100);
    world.flowsLost(1);
    expect(verdict(7200, arrived)).toBe('not arrive, wrong allow of the packet');
  });
});
