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
      const seen = await answersOf('opened', (list) => list.at(-1)?.message.startsWith('All nodes with') === true);
      expect(seen.map(({ status }) => status)).not.toContain('True');
      expect(seen.at(-1)).toMatchObject({ status: 'False', reason: 'Progressing' });
      expect(seen.at(-1)?.message).toContain('not caught up with generation 2 yet: node-1.');
      expect(await cluster.probe('app3', 'app1')).toBe('reached');
    } finally {
      thaw();
    }
    await cluster.programmed('cnp/opened');
    expect(await cluster.probe('app3', 'app1')).toBe('dropped');
    expect(await programmed('opened')).toMatchObject({ reason: 'Programmed', observedGeneration: 2 });
  });

  it('holds back what no pod is selected by', async () => {
    freeze();
    try {
      await cluster.apply(policy('nobody', id('none'), [id('app3')]));
      const nobody = await answersOf('nobody', (list) => (list.at(-1)?.message ?? '').includes('node-1'));
      expect(nobody.map(({ status }) => status)).not.toContain('True');
    } finally {
      thaw();
    }
    await cluster.programmed('cnp/nobody');
    expect(await programmed('nobody')).toMatchObject({ reason: 'NoMatchingEndpoints' });
  });

  it('holds a policy back also where somebody has deleted the report', async () => {
    await cluster.apply(policy('edited', id('app1'), [id('app3')]));
    await cluster.programmed('cnp/edited');
    freeze();
    try {
      await cluster.kubectl(['delete', 'nodepolicystatus', 'node-1']);
      await cluster.apply(policy('edited', id('app1'), [id('app2')]));
      const seen = await answersOf('edited', (list) => list.at(-1)?.message.includes('reported none') === true);
      expect(seen.map(({ status }) => status)).not.toContain('True');
      expect(seen.at(-1)?.message).toBe('1 of 1 nodes do not enforce generation 2 yet: node-1 (has reported none).');
      expect(await cluster.probe('app3', 'app1')).toBe('reached');
    } finally {
      thaw();
    }
    await cluster.programmed('cnp/edited');
    expect(await cluster.probe('app3', 'app1')).toBe('dropped');
    await cluster.kubectl(['delete', 'cnp', 'edited']);
  });

  it('holds an edit back where nobody knows which rules were imported, and shows what the kernel has', async () => {
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
    expect(await programmed('edited')).toMatchObject({ status: 'True' });
    await cluster.apply(policy('edited', id('app1'), [id('app2')]));
    const seen = await answersOf('edited', (all) => all.at(-1)?.message.includes('node-1') === true);
    expect(seen.at(-1)).toMatchObject({ status: 'False', reason: 'Progressing' });
    expect((await node.weir(['policy', 'status'])).stdout).toMatch(/ImportedRulesUnknown.*weir policy import/s);
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
      expect((await node.weir(['status'])).stdout).toMatch(/peerSets/);
      await relabel('app3');
      await cluster.apply(policy('lasting', id('app1'), [id('app3'), id('app2')]));
      expect(await answersOf('lasting', (all) => all.at(-1)?.message.includes('node-1') === true)).not.toContainEqual(
        expect.objectContaining({ status: 'True' }),
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
