/** Every command of docs/ is run, in order, as a reader would. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { RealCluster } from '../cluster/real/index.ts';
import { attempt, ROOT, TOOL_PATH } from '../cluster/run.ts';
import { type DocBlock, readPage } from './docs.ts';
import { weirCluster } from './weir.ts';

const page = (name: string) => readPage(`docs/${name}`, readFileSync(join(ROOT, 'docs', name), 'utf8'));
const scripts = (name: string): [string, DocBlock][] =>
  page(name)
    .blocks.filter((block) => block.expect !== 'skip')
    .map((block) => [`${block.file}:${block.line}`, block]);

describe('docs/ on a real Kubernetes with kube-proxy', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await weirCluster({ kubeProxy: true, install: false });
  }, 240_000);
  afterAll(() => cluster?.stop());

  const play = async (_: string, block: DocBlock): Promise<void> => {
    const { code, stdout, stderr } = await attempt('bash', ['-e', '-o', 'pipefail', '-c', block.script], {
      env: { PATH: TOOL_PATH, KUBECONFIG: cluster.kubeconfig, HOME: cluster.folder },
      timeoutMs: 280_000,
    });
    if ((code === 0) === (block.expect === 'success')) return;
    throw new Error(`${block.file}:${block.line} ended with ${code}:\n${block.script}\n${stdout}\n${stderr}`);
  };

  describe('install.md, from nothing and back to it', () => {
    it('starts without a pod network', () => expect(page('install.md').cluster).toBe('empty'));
    it.each(scripts('install.md'))('%s', play, 300_000);
  });

  describe('the pages for a cluster that has Weir', () => {
    beforeAll(async () => {
      await cluster.install();
      await cluster.createPods([
        { name: 'app1', labels: { id: 'app1' }, node: 1, tcp: [80] },
        { name: 'app2', labels: { id: 'app2' }, node: 2, tcp: [80] },
      ]);
    }, 240_000);
    it.each(
      [
        'upgrade.md',
        'status.md',
        'troubleshooting.md',
        'services.md',
        'dns.md',
        'security.md',
        'policy-files.md',
      ].flatMap(scripts),
    )('%s', play, 300_000);
  });
});
