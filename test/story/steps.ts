/**
 * The story: twelve steps from "no policy" and back to it. Each says what it does, checks with real packets who reaches whom, and
 * shows the policies' status. The demo plays it for people, `story.test.ts` for the test suite.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '../eventually.ts';
import { playNames } from './names.ts';
import { policy } from './policies.ts';
import { playServices } from './services.ts';
import { settled } from './settled.ts';
import type { Destination, Stage } from './stage.ts';

export interface Step {
  readonly title: string;
  readonly play: (stage: Stage) => Promise<void>;
}

const PODS = ['app1', 'app2', 'app2-far', 'app3', 'app3-far'];
const EVERYBODY = [...PODS, 'outside'];
const DESTINATIONS = ['app1:80', 'app1:8080', 'app2:80', 'app3:80', 'app3-far:80', '203.0.113.9:80'];
const isApp2 = (host: string): boolean => host.startsWith('app2');
const isApp1 = (to: Destination): boolean => to.startsWith('app1:');

/** Everybody to everything, and the outside host not to itself. */
const everything = (reaches: (from: string, to: Destination) => boolean) => ({
  from: EVERYBODY,
  to: DESTINATIONS,
  reaches: (from: string, to: Destination) => (from === 'outside' && to.startsWith('203.')) || reaches(from, to),
});

const toApp1 =
  (from: string, reason: string) =>
  (event: {
    readonly source: { readonly name?: string };
    readonly destination: { readonly name?: string };
    readonly reason: string;
  }) =>
    event.source.name === `default/${from}` && event.destination.name === 'default/app1' && event.reason === reason;

export const STEPS: readonly Step[] = [
  {
    title: '1. No policy: everything reaches everything',
    play: async (stage) => {
      await stage.kubectl('get', 'pods', '-o', 'wide');
      await stage.expect(everything(() => true));
    },
  },
  {
    title: '2. L3: app1 accepts only from id=app2',
    play: async (stage) => {
      stage.forgetEvents();
      await stage.apply(policy.l3, 'cnp/l3-rule');
      await stage.expect(everything((from, to) => !isApp1(to) || isApp2(from)));
      await stage.dropEvent('app3 on the same node', toApp1('app3', 'policy'));
      await stage.dropEvent('app3 on the other node', toApp1('app3-far', 'policy'));
      await stage.kubectl('get', 'cnp');
    },
  },
  {
    title:
      "3. L3+L4: app1 accepts from id=app2 on TCP 80 only; as a CiliumNetworkPolicy, then as a bare rule list over the agent's socket",
    play: async (stage) => {
      const port80 = everything((from, to) => !isApp1(to) || (isApp2(from) && to === 'app1:80'));
      await stage.apply(policy.l3l4, 'cnp/l3-rule');
      await stage.expect(port80);
      await stage.kubectl('get', 'cnp');
      await stage.kubectl('delete', 'cnp', 'l3-rule');
      await settled(stage);
      await stage.expect(everything(() => true));

      const file = join(stage.cluster.folder, 'l3-rule.json');
      writeFileSync(file, policy.bareRules);
      for (const node of [1, 2]) {
        const revision = /\d+/.exec(await stage.weir(node, 'policy', 'import', file))?.[0] ?? '';
        await stage.weir(node, 'policy', 'wait', revision);
      }
      await stage.weir(1, 'policy', 'get');
      await stage.expect(port80);
      for (const node of [1, 2]) {
        const revision =
          /Revision:?\s*(\d+)/i.exec(await stage.weir(node, 'policy', 'delete', 'name=l3-rule'))?.[1] ?? '';
        await stage.weir(node, 'policy', 'wait', revision);
      }
      await stage.expect(everything(() => true));
    },
  },
  {
    title: '4. Under traffic: tightening cuts an open connection; loosening loses nothing',
    play: async (stage) => {
      await stage.apply(policy.traffic({ app2: true, outside: false }), 'cnp/traffic');
      const app1 = (await stage.cluster.host('app1')).address;
      const allowed = await (await stage.cluster.host('app3-far')).process.stream('udp', app1, 5353);
      const excluded = await (await stage.cluster.host('app2')).process.stream('tcp', app1, 80);
      const far = await (await stage.cluster.host('app2-far')).process.stream('tcp', app1, 80);
      const answered = [excluded, far].map((stream) =>
        eventually(
          () => stream.report(),
          ({ echoed }) => echoed > 0,
        ),
      );
      stage.check(
        (await Promise.all(answered)).every(({ echoed }) => echoed > 0),
        'app2 has open connections to app1:80 and gets answers',
      );

      await stage.apply(policy.traffic({ app2: true, outside: true }), 'cnp/traffic');
      stage.check((await excluded.report()).closed === false, 'loosening leaves the connections open');
      await stage.apply(policy.traffic({ app2: false, outside: true }), 'cnp/traffic');
      for (const [name, stream] of [
        ['same node', excluded],
        ['other node', far],
      ] as const) {
        await eventually(
          () => stream.report(),
          ({ silentMs }) => (silentMs ?? 0) >= 500,
        );
        const cut = await stream.close();
        stage.check(
          (cut.silentMs ?? 0) >= 500,
          `the open connection of app2 (${name}) is cut: no answer for ${cut.silentMs} ms, ${cut.sent} sent, ${cut.echoed} answered`,
        );
      }
      await eventually(
        () => allowed.report(),
        ({ sent }) => sent > 50,
      );
      const kept = await allowed.close();
      stage.check(
        kept.echoed >= kept.sent - 1 && kept.sent > 50,
        `app3's UDP flow lost nothing: ${kept.sent} sent, ${kept.echoed} answered`,
      );
      await stage.expect({ from: ['app2', 'outside'], to: ['app1:80'], reaches: (from) => from === 'outside' });
      await stage.kubectl('get', 'cnp');
      await stage.kubectl('delete', 'cnp', 'traffic');
      await settled(stage);
    },
  },
  {
    title: '5. ingressDeny beats an allow',
    play: async (stage) => {
      stage.forgetEvents();
      await stage.apply(policy.deny, 'cnp/no-app3');
      await stage.expect(everything((from, to) => !isApp1(to) || !from.startsWith('app3')));
      await stage.dropEvent('the deny', toApp1('app3', 'policy-denied'));
      await stage.kubectl('get', 'cnp');
      await stage.kubectl('delete', 'cnp', 'no-app3');
      await settled(stage);
    },
  },
  {
    title: '6. Egress to a CIDR with an exception',
    play: async (stage) => {
      await stage.apply(policy.cidr, 'cnp/only-ten');
      await stage.expect({
        from: ['app3', 'app3-far', 'app2'],
        to: ['10.2.0.1:80', '10.1.2.3:80', '203.0.113.9:80', 'app1:80'],
        reaches: (from, to) => isApp2(from) || to === '10.2.0.1:80',
      });
      await stage.kubectl('get', 'cnp');
      await stage.kubectl('delete', 'cnp', 'only-ten');
      await settled(stage);
    },
  },
  { title: '7. Services: policy judges who answers', play: playServices },
  { title: '8. Names: a pod reaches what it may ask for', play: playNames },
  {
    title: '9. Default deny both ways, then entities',
    play: async (stage) => {
      const nodes = await Promise.all(['node-1', 'node-2'].map((name) => stage.cluster.host(name)));
      for (const node of nodes) await node.process.serve(node.name, [9000], []);
      const hosts = [...EVERYBODY, 'node-1', 'node-2'];
      const targets = ['app1:80', 'app3-far:80', '203.0.113.9:80', 'node-1:9000'];
      const beyond = (from: string, to: Destination) => !PODS.includes(from) && !to.startsWith('app');
      // A node always reaches the pods that run on it (spec 2.7, localhost).
      const own = (from: string, to: Destination) =>
        (from === 'node-1' && to === 'app1:80') || (from === 'node-2' && to === 'app3-far:80');

      await stage.apply(policy.denyAll, 'cnp/deny-all');
      await stage.expect({ from: hosts, to: targets, reaches: (from, to) => beyond(from, to) || own(from, to) });
      await stage.apply(policy.world, 'cnp/world-in');
      await stage.expect({
        from: hosts,
        to: targets,
        reaches: (from, to) => beyond(from, to) || own(from, to) || (from === 'outside' && to === 'app1:80'),
      });
      await stage.apply(policy.host, 'cnp/host-out');
      await stage.expect({
        from: ['app2', 'app2-far'],
        to: ['node-1:9000', 'node-2:9000'],
        reaches: (from, to) => (from === 'app2') === (to === 'node-1:9000'),
      });
      await stage.apply(policy.cluster, 'cnp/cluster');
      await stage.expect({
        from: hosts,
        to: targets,
        reaches: (from, to) =>
          from === 'outside' ? to === 'app1:80' || beyond(from, to) : !to.startsWith('203.') || beyond(from, to),
      });
      await stage.kubectl('get', 'cnp');
      await stage.kubectl('delete', 'cnp', 'world-in', 'host-out', 'cluster');
      await settled(stage);
    },
  },
  {
    title: '10. A new pod is enforced before its first packet',
    play: async (stage) => {
      const { cluster } = stage;
      await cluster.createPods([{ name: 'scout', labels: { id: 'scout' }, node: 2, tcp: [80] }]);
      const address = following((await cluster.host('scout')).address);
      await cluster.deletePod('scout');
      stage.say(
        `addresses are given in turn: the next pod of node-2 will have ${address}; outside tries it without pause from now on, under deny-all`,
      );
      const outside = (await cluster.host('outside')).process;
      const seen = { reached: 0, tried: 0 };
      let watching = true;
      const hammer = (async () => {
        while (watching) {
          const results = await Promise.all(
            Array.from({ length: 10 }, () => outside.probe({ protocol: 'tcp', address, port: 80, timeoutMs: 60 })),
          );
          seen.tried += results.length;
          seen.reached += results.filter((result) => result !== 'dropped').length;
        }
      })();
      await cluster.createPods([{ name: 'late', labels: { id: 'late' }, node: 2, tcp: [80] }]);
      const late = (await cluster.host('late')).address;
      stage.check(late === address, `pod late has that address (${late})`);
      const then = seen.tried;
      await eventually(
        async () => seen.tried,
        (tried) => tried > then + 20,
      );
      watching = false;
      await hammer;
      stage.check(
        seen.reached === 0,
        `${seen.tried} attempts before, during and after its start, ${seen.reached} answered`,
      );
      await stage.expect({
        from: ['late', 'outside', 'app3-far'],
        to: ['late:80', 'app1:80', '203.0.113.9:80'],
        reaches: (from, to) => from === 'outside' && to.startsWith('203.'),
      });
      await stage.kubectl('get', 'cep');
      await cluster.deletePod('late');
    },
  },
  {
    title: '11. A broken policy says where, and opens nothing',
    play: async (stage) => {
      stage.say((await stage.cluster.apply(policy.broken)).trim());
      await stage.cluster.kubectl(['wait', '--for=condition=Valid=false', '--timeout=60s', 'cnp/deny-all']);
      const status = await stage.cluster.kubectl([
        'get',
        'cnp',
        'deny-all',
        '-o',
        'jsonpath={.status.conditions[?(@.type=="Valid")]}',
      ]);
      const condition = JSON.parse(status) as {
        readonly status: string;
        readonly reason: string;
        readonly message: string;
      };
      stage.say(`Valid=${condition.status} ${condition.reason}: ${condition.message}`);
      stage.check(
        condition.reason === 'InvalidSpec' && condition.message.includes('spec.ingress[0].fromCIDRs'),
        'the condition names spec.ingress[0].fromCIDRs',
      );
      stage.check(condition.message.endsWith('the rest is enforced'), 'the condition says what becomes of the rest');
      await stage.expect({ from: PODS, to: ['app1:80', 'app3-far:80'], reaches: () => false });
      await stage.kubectl('get', 'cnp');
    },
  },
  {
    title: '12. All deleted: everything reaches everything; nothing is left in the kernel',
    play: async (stage) => {
      await stage.kubectl('delete', 'cnp', '--all');
      await settled(stage);
      await stage.expect(everything(() => true));
      for (const node of [1, 2]) {
        await emptied(stage, node);
        const maps = await stage.weir(node, 'map', 'list');
        for (const name of ['policy_classes', 'policy_verdicts']) {
          const entries = new RegExp(`^${name}\\s+\\S+\\s+(\\d+)`, 'm').exec(maps)?.[1];
          stage.check(entries === '0', `${name} of node-${node} is empty`);
        }
      }
    },
  },
];

/**
 * Waits, at most a minute, until a node has no policy slot any more. A slot that no endpoint names stays for a grace time, as a packet may
 * still be looking at it, and its empty maps a little longer, for the next policy.
 */
async function emptied(stage: Stage, node: number): Promise<void> {
  const end = Date.now() + 60_000;
  for (;;) {
    const { body } = await stage.cluster.node(node).call('GET', '/v1/map');
    if (/"policy_classes"[^}]*"entries":0\b/.test(JSON.stringify(body)) || Date.now() > end) return;
    await sleep(200);
  }
}

/** The address after this one. */
function following(address: string): string {
  const at = address.lastIndexOf('.') + 1;
  return `${address.slice(0, at)}${Number(address.slice(at)) + 1}`;
}
