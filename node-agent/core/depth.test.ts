/** What the agent and its CLI read beside the API server's objects: nested as deep as a text may be, and wider by aliases than a memory. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { depthIn } from '@weir/process/depth';
import { ApiServer } from '../api/server.ts';
import { parseDocuments } from '../cli/documents.ts';
import { runCli } from '../cli/program.ts';
import { answerVersion, parseCall } from '../cni/request.ts';
import { StateFile } from '../state/persist.ts';
import { agentView } from '../testing/agent-view.ts';
import { FakeCore, quiet } from '../testing/fake-core.ts';
import { call } from '../testing/request.ts';

const deep = (levels: number): string => `${'[{"x":'.repeat(levels / 2)}1${'}]'.repeat(levels / 2)}`;
const LEVELS = [200, 10_000, 1_000_000];

let folder = '';
let socket = '';
let server: ApiServer;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-depth-'));
  socket = join(folder, 'weir.sock');
  server = new ApiServer({
    socket,
    core: new FakeCore(),
    flows: new FakeCore(),
    log: quiet,
    version: '1',
    nodeName: 'n1',
    clusterName: 'c',
    kubernetes: false,
    agent: agentView(),
    detach: () => Promise.resolve(false),
    interfaceIndex: () => Promise.resolve(1),
    podCidrs: () => [],
  });
  await server.start();
});
afterAll(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

describe.each(LEVELS)('%i levels', (levels) => {
  it.each([
    ['PUT', '/policy'],
    ['DELETE', '/policy'],
    ['PUT', '/endpoint/7'],
    ['POST', '/cni'],
  ])('%s %s refuses the body, and names the place', async (method, path) => {
    const answer = await call(socket, method, path, deep(levels));
    expect(answer).toMatchObject({
      status: 400,
      body: expect.stringMatching(/0\.x\.0\.x.*nested deeper than 100 levels/),
    });
  });

  it('a CNI configuration is refused', () => {
    const env = { CNI_COMMAND: 'VERSION' };
    for (const stdin of [deep(levels), `{"cniVersion":${deep(levels)}}`]) {
      expect(() => parseCall({ env, stdin })).toThrow(/nested deeper than 100 levels/);
      expect(answerVersion({ env, stdin })).toBe('1.0.0');
    }
  });

  it('a file of the state folder counts as one that cannot be read', async () => {
    const path = join(folder, 'state.json');
    await writeFile(path, `{"version":1,"content":${deep(levels)}}`);
    const file = new StateFile({ path, node: 'n1', decode: (json) => json });
    expect(() => file.read()).toThrow(expect.objectContaining({ message: expect.stringMatching(/nested deeper/) }));
  });

  it('a file of policies is read as far as the cluster reads it, or refused with one line', () => {
    const documents = parseDocuments(deep(levels), 'f');
    expect(documents.map(({ value }) => depthIn(value))).toEqual([undefined]);
    const yaml = (): unknown[] =>
      parseDocuments(`kind: CiliumNetworkPolicy\nmetadata: {name: p}\nspec: ${deep(levels)}`, 'f').map(({ value }) =>
        depthIn(value),
      );
    if (levels > 1000) expect(yaml).toThrow(/^f cannot be read as YAML or JSON: .*$/);
    else expect(yaml()).toEqual([undefined]);
  });
});

describe('aliases of YAML', () => {
  const bomb = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]']
    .concat(Array.from({ length: 12 }, (_, at) => `a${at + 1}: &a${at + 1} [${Array(10).fill(`*a${at}`).join(', ')}]`))
    .join('\n');

  it.each([
    ['a circle', '&a [*a]', /an alias that leads back to itself/],
    ['a circle by a long way', 'a: &a {b: {c: [*a]}}', /an alias that leads back to itself/],
    ['what they stand for is larger than a memory', bomb, /aliases that stand for more than/],
  ])('%s: it is refused', async (_, text, problem) => {
    expect(() => parseDocuments(text, 'f')).toThrow(problem);
    const file = join(folder, 'policy.yaml');
    await writeFile(file, text);
    for (const command of ['validate', 'import']) {
      let said = '';
      const stream = {
        write: (part: string) => {
          said += part;
        },
      };
      const args = ['--socket', socket, 'policy', command, file];
      const { signal } = new AbortController();
      expect(await runCli({ args, version: '1', out: stream, err: stream, signal })).toBe(1);
      expect(said).toMatch(problem);
    }
  });

  it('as people write them stand for what they name', () => {
    const [document] = parseDocuments('labels: &l {app: web}\na: *l\nb: [*l, *l]', 'f');
    expect(document?.value).toEqual({ labels: { app: 'web' }, a: { app: 'web' }, b: [{ app: 'web' }, { app: 'web' }] });
  });
});
