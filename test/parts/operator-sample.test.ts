/** A part brings all that it has in its own folder and a line in a list: the operator runs with one that nothing else knows of. */
import { afterEach, expect, it } from '@jest/globals';
import type { KubeObject } from '@weir/kube';
import { runCommand } from '../../node-agent/host/command.ts';
import { parseConfig } from '../../operator/config.ts';
import type { Operator } from '../../operator/operator.ts';
import { OPERATOR_PARTS } from '../../operator/part-list.ts';
import { createWorld, eventually, partsOf, type World } from '../operator/world.ts';
import { configMaps, operatorSamplePart, secretOf, secrets } from './operator-sample.ts';

const PARTS = [...OPERATOR_PARTS, operatorSamplePart];
const sample = (name: string, labels: Readonly<Record<string, string>>): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { namespace: 'default', name, labels },
});
const OURS = { 'weir.dev/sample': '' };
const OTHER_HAND = { fieldManager: 'other', force: true };
let world: World | undefined;
afterEach(async () => {
  await world?.stop();
  world = undefined;
});

async function probe({ healthPort }: Operator, path: string): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${healthPort}/${path}`);
  return `${answer.status} ${await answer.text()}`;
}

it('adds a table, a metric, a flag and a reason why the operator is not ready, and is named by nothing else', async () => {
  world = await createWorld();
  const args = ['--no-leader-elect', '--health-address', '127.0.0.1:0'];
  const started = async (...more: readonly string[]): Promise<Operator> => {
    const { command: _, ...config } = parseConfig([...args, ...more], {}, PARTS, { exit: false });
    const operator = await (world as World).operator({ parts: PARTS, ...config });
    await (world as World).settle(operator);
    return operator;
  };
  const first = await started();
  await eventually(async () => expect(await probe(first, 'readyz')).toBe('200 ok\n'));
  expect(await probe(first, 'metrics')).toMatch(/^weir_operator_samples 1$/m);
  expect(first.db.tables()).toContainEqual(expect.objectContaining({ name: 'samples', rows: 1 }));
  expect(partsOf(first).find(({ name }) => name === 'sample')).toMatchObject({
    state: 'running',
    needs: ['tables', 'targets', 'tenant-log'],
  });
  await first.stop();

  const second = await started('--sample-limit', '1');
  expect(await probe(second, 'readyz')).toBe('503 1 samples of 1\n');
  expect(await probe(second, 'healthz')).toBe('200 ok\n');
});

it('reads objects, and writes others for them: again after another hand, and none that nobody asks for', async () => {
  world = await createWorld();
  const { client } = world;
  const named = async (): Promise<readonly string[]> =>
    (await client.list(secrets)).items.map(({ metadata: { name }, data }) => `${name} ${atob(data?.name ?? '')}`);
  await client.create(secrets, { ...sample('left', OURS), kind: 'Secret' });
  await client.create(secrets, { ...sample('foreign', {}), kind: 'Secret' });
  await client.create(configMaps, sample('other', {}));
  await client.create(configMaps, sample('two', OURS));
  const operator = await world.operator({ parts: PARTS });
  await eventually(async () => expect(await named()).toEqual(['foreign ', 'two two']));

  await client.apply(
    secrets,
    { ...secretOf({ namespace: 'default', name: 'two' }), data: { name: btoa('x') } },
    OTHER_HAND,
  );
  await eventually(async () => expect(await named()).toEqual(['foreign ', 'two two']));
  await client.delete(secrets, 'two', 'default');
  await eventually(async () => expect(await named()).toEqual(['foreign ', 'two two']));
  expect(await operator.settled()).toEqual(new Map());

  await client.delete(configMaps, 'two', 'default');
  await eventually(async () => expect(await named()).toEqual(['foreign ']));
});

it('has its flag in --help', async () => {
  const help = await runCommand(process.execPath, [`${import.meta.dirname}/operator-main.ts`, '--help']);
  expect(help).toMatch(/--sample-limit <number> +how many samples there may be \(default: 2\)/);
});
