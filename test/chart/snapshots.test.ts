/** What the chart renders for its main sets of values, as files, so that a review sees each change of it. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { ROOT } from '../cluster/run.ts';
import { template } from './render.ts';

const FOLDER = join(ROOT, 'test/chart/snapshots');
const UPDATE = 'UPDATE_SNAPSHOTS=1 npm run jest -- test/chart/snapshots.test.ts';

const SETS: Readonly<Record<string, readonly string[]>> = {
  defaults: [],
  'no-kube-proxy': ['--set', 'kubeProxyReplacement=true,apiServer.host=192.0.2.1,apiServer.port=6443'],
  monitoring: [
    '--set',
    'metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true',
  ],
  'secure-metrics': ['--set', 'metrics.serviceMonitor.enabled=true,metrics.secure.enabled=true'],
  'single-node': ['--set', 'operator.replicas=1'],
  'everything-set': ['-f', join(ROOT, 'test/chart/everything.yaml')],
  'kubernetes-1.29': ['--kube-version', '1.29.0'],
};

/** Without the CRDs: they are files of the chart already, and 400 KB. */
async function rendered(flags: readonly string[]): Promise<string> {
  const documents = (await template(flags)).split(/^---$/m);
  return documents.filter((text) => !text.includes('kind: CustomResourceDefinition')).join('---');
}

describe('what the chart renders', () => {
  it.each(Object.entries(SETS))('%s', async (name, flags) => {
    const path = join(FOLDER, `${name}.yaml`);
    const text = await rendered(flags);
    if (process.env.UPDATE_SNAPSHOTS === '1') {
      mkdirSync(FOLDER, { recursive: true });
      writeFileSync(path, text);
    }
    const kept = existsSync(path) ? readFileSync(path, 'utf8') : '';
    if (kept === text) return;
    const [lines, old] = [text.split('\n'), kept.split('\n')];
    const at = lines.findIndex((line, index) => line !== old[index]);
    throw new Error(
      `${path}:${at + 1} is "${old[at] ?? ''}", and the chart renders "${lines[at] ?? ''}". If that is meant: ${UPDATE}`,
    );
  });

  it('no snapshot is left of a set that is gone', () => {
    expect(readdirSync(FOLDER).sort()).toEqual(
      Object.keys(SETS)
        .map((name) => `${name}.yaml`)
        .sort(),
    );
  });
});
