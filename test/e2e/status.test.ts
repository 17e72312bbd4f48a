/** What a status says while a node's agent hangs: its kernel goes on enforcing what it had. */
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const policy = (name: string, subject: object, peers: readonly object[]): string =>
  JSON.stringify({
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumNetworkPolicy',
    metadata: { name, namespace: 'default' },
    spec: { endpointSelector: subject, ingress: [{ fromEndpoints: peers }] },
  });
const id = (name: string): object => ({ matchLabels: { id: name } });

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration: number;
}

describe('a node whose agent hangs', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start();
    await cluster.createPods([
      { name: 'app1', labels: { id: 'app1' }, node: 1, tcp: [80] },
      { name: 'app2', labels: { id: 'app2' }, node: 2, tcp: [80] },
      { name: 'app3', labels: { id: 'app3' }, node: 2 },
    ]);
  });
  afterAll(() => cluster?.stop());

  const freeze = (): void => {
    cluster.node(1).agent.child.kill('SIGSTOP');
  };
  const thaw = (): void => {
    cluster.node(1).agent.child.kill('SIGCONT');
  };

  /** The newest answer that is about the policy's newest generation. */
  async function programmed(name: string): Promise<Condition> {
    const text = await eventually(
      () => cluster.kubectl(['get', 'cnp', name, '-o', 'json']),
      (json) => {
        const { metadata, status } = JSON.parse(json) as Policy;
        return status?.observedGeneration === metadata.generation;
      },
    );
    const found = (JSON.parse(text) as Policy).status?.conditions.find(({ type }) => type === 'Programmed');
    if (found === undefined) throw new Error(`no condition Programmed: ${text}`);
    return found;
  }
  interface Policy {
    readonly metadata: { readonly generation: number };
    readonly status?: { readonly observedGeneration: number; readonly conditions: readonly Condition[] };
  }

  /** Every condition Programmed that anybody could read of the policy from now on. */
  async function answersOf(name: string, until: (seen: readonly Condition[]) => boolean): Promise<Condition[]> {
    const seen: Condition[] = [];
    await eventually(
      async () => {
        seen.push(await programmed(name));
        return seen;
      },
      (list) => until(list) || list.at(-1)?.status === 'True',
    );
    return seen;
  }

  it('holds a policy back that was moved off its pods, for as long as the old rules let traffic through', async () => {
    await cluster.apply(policy('closed', id('app1'), []));
    await cluster.apply(policy('opened', id('app1'), [id('app3')]));
    await cluster.programmed('cnp/closed', 'cnp/opened');
    expect(await cluster.probe('app3', 'app1')).toBe('reached');
    freeze();
    try {
      await cluster.apply(policy('opened', id('app2'), [id('app3')]));
      // Node 2 has it: nobody but the node that hangs is left.
      const seen = await answersOf('opened', (list) => list.at(-1)?.message.startsWith('1 of 2 nodes') === true);
      expect(seen.map(({ status }) => status)).not.toContain('True');
      expect(seen.at(-1)).toMatchObject({ status: 'False', reason: 'Progressing' });
      expect(seen.at(-1)?.message).toContain('node-1 (has 1)');
      expect(await cluster.probe('app3', 'app1')).toBe('reached');
    } finally {
      thaw();
    }
    await cluster.programmed('cnp/opened');
    expect(await cluster.probe('app3', 'app1')).toBe('dropped');
    expect(await programmed('opened')).toMatchObject({ reason: 'Programmed', observedGeneration: 2 });
  });

  it('holds back what no pod is selected by, and what took the name of a policy that it still enforces', async () => {
    await cluster.apply(policy('named', id('app1'), [id('app3')]));
    await cluster.programmed('cnp/named');
    freeze();
    try {
      await cluster.apply(policy('nobody', id('none'), [id('app3')]));
      await cluster.kubectl(['delete', 'cnp', 'named']);
      await cluster.apply(policy('named', id('app2'), [id('app3')]));
      const nobody = await answersOf('nobody', (list) => (list.at(-1)?.message ?? '').includes('node-1'));
      expect(nobody.map(({ status }) => status)).not.toContain('True');
      const named = await answersOf('named', (list) => list.at(-1)?.message.startsWith('1 of 2 nodes') === true);
      expect(named.map(({ status }) => status)).not.toContain('True');
      expect(named.at(-1)?.message).toContain('node-1');
    } finally {
      thaw();
    }
    await cluster.programmed('cnp/nobody', 'cnp/named');
    expect(await programmed('nobody')).toMatchObject({ reason: 'NoMatchingEndpoints' });
  });

  it('holds a policy back also where somebody has deleted the report', async () => {
    await cluster.apply(policy('moved', id('app1'), [id('app3')]));
    await cluster.programmed('cnp/moved');
    freeze();
    try {
      await cluster.kubectl(['delete', 'nodepolicystatus', 'node-1']);
      await cluster.apply(policy('moved', id('app2'), [id('app3')]));
      const seen = await answersOf('moved', (list) => list.at(-1)?.message.startsWith('1 of 2 nodes') === true);
      expect(seen.map(({ status }) => status)).not.toContain('True');
      expect(seen.at(-1)?.message).toContain('node-1 (had 1 when its report was deleted)');
      expect(await cluster.probe('app3', 'app1')).toBe('reached');
    } finally {
      thaw();
    }
    await cluster.programmed('cnp/moved');
    expect(await cluster.probe('app3', 'app1')).toBe('dropped');
  });

  it('says why an edit is not in force where nobody knows which rules were imported, and shows what the kernel has', async () => {
    const node = cluster.node(1);
    await cluster.apply(policy('edited', id('app1'), [id('app3')]));
    await cluster.programmed('cnp/edited');
    const rule = { endpointSelector: { matchLabels: { id: 'app2' } }, egress: [{}] };
    expect((await node.weir(['policy', 'import', '-'], JSON.stringify([rule]))).code).toBe(0);
    await node.agent.kill9();
    rmSync(node.stateDir, { recursive: true });
    const agent = node.launchAgent();
    const list = await eventually(
      () => node.weir(['endpoint', 'list']),
      ({ stdout }) => /default\/app1/.test(stdout),
    );
    expect(agent.running).toBe(true);
    expect(list.stdout).toMatch(/ enforced +open +[1-9]\d* .* restoring +default\/app1 /);
    const before = await eventually(
      () => node.weir(['policy', 'status', 'cnp/default/edited']),
      ({ stdout }) => stdout.includes('Programmed'),
    );
    expect(before.stdout).toMatch(/ edited +1 +1 +1 +Programmed/);
    expect(await programmed('edited')).toMatchObject({ status: 'True' });
    await cluster.apply(policy('edited', id('app1'), [id('app2')]));
    const seen = await answersOf('edited', (all) => all.at(-1)?.reason === 'NodeFailed');
    expect(seen.at(-1)).toMatchObject({ status: 'False', reason: 'NodeFailed' });
    expect(seen.at(-1)?.message).toMatch(
      /node-1: ImportedRulesUnknown: which rules were imported .*weir policy import/,
    );
    expect((await node.weir(['policy', 'status', 'cnp/default/edited'])).stdout).toMatch(/ edited +2 +1 +1 +Failing/);
    expect(await cluster.probe('app3', 'app1')).toBe('reached');
    expect((await node.weir(['policy', 'delete', '--all'])).code).toBe(0);
    await cluster.programmed('cnp/edited');
    expect(await cluster.probe('app3', 'app1')).toBe('dropped');
  });

  it('says that a node is not told all since its agent started, and who changes loses there what he had', async () => {
    const node = cluster.node(1);
    const { faults, client } = cluster.api;
    const relabel = (label: string): Promise<unknown> =>
      client.patch({ group: '', version: 'v1', plural: 'pods', namespace: 'default', name: 'app3' }, 'merge', {
        metadata: { labels: { id: label } },
      });
    await cluster.apply(policy('lasting', id('app1'), [id('app3')]));
    await cluster.programmed('cnp/lasting');
    expect(await cluster.probe('app3', 'app1')).toBe('reached');
    await node.agent.kill9();
    const mend = faults.fail(503, { verb: 'list', resource: 'peersets', userAgent: 'weir-agent' });
    try {
      await relabel('other');
      node.launchAgent();
      await eventually(
        () => cluster.probe('app3', 'app1'),
        (answer) => answer === 'dropped',
      );
      expect((await node.weir(['status'])).stdout).toMatch(/peerSets.*1 address unknown/);
      await relabel('app3');
      const failed = await eventually(
        () => programmed('lasting'),
        ({ status }) => status === 'False',
      );
      expect(failed).toMatchObject({ reason: 'NodeFailed', observedGeneration: 1 });
      expect(failed.message).toMatch(/node-1: InputsIncomplete: what was enforced .* waited for peerSets/);
      expect((await node.weir(['policy', 'status', 'cnp/default/lasting'])).stdout).toMatch(
        / lasting +1 +1 +1 +Failing/,
      );
    } finally {
      mend();
    }
    await eventually(
      () => programmed('lasting'),
      ({ status }) => status === 'True',
    );
    expect(await cluster.probe('app3', 'app1')).toBe('reached');
  });
});
