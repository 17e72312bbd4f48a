/** CONTRIBUTING.md: what it names exists, what it quotes stands there, and its way to debug an agent is walked. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { TestNamespaces } from '../node-agent/testing/netns.ts';
import { ROOT } from './cluster/run.ts';
import { eventually } from './eventually.ts';

const FILE = 'CONTRIBUTING.md';
const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const page = text(FILE);
const blocks = Array.from(
  page.matchAll(/^```(\w+) ?(.*)\n([\s\S]*?)^```$/gm),
  ([, language = '', of = '', code = '']) => ({
    language,
    of,
    code,
  }),
);
const prose = page.replace(/^```[\s\S]*?^```$/gm, '');
const scripts = (of: string): string[] =>
  blocks.flatMap((block) => (block.language === 'sh' && block.of === of ? [block.code] : []));

describe('the page', () => {
  it('quotes what stands in the files', () => {
    const quotes = blocks.filter(({ language }) => language === 'ts');
    expect(quotes.length).toBeGreaterThan(6);
    for (const { of, code } of quotes) expect([of, code, text(of).includes(code)]).toEqual([of, code, true]);
  });

  it('names files that exist', () => {
    const quoted = [...page.matchAll(/`([\w.-]+(?:\/[\w.-]+)+)`/g)].map(([, path = '']) => path);
    const named = quoted.filter((path) => /^(operator|node-agent|shared|bpf|charts|test|scripts|docs)\//.test(path));
    const linked = [...prose.matchAll(/\]\(([\w./-]+)\)/g)].map(([, path = '']) => path);
    expect(named.length).toBeGreaterThan(25);
    for (const path of [...named, ...linked]) expect([path, existsSync(join(ROOT, path))]).toEqual([path, true]);
  });

  it('names npm scripts that exist, and runs tests that exist', () => {
    const { scripts: known } = JSON.parse(text('package.json')) as {
      readonly scripts: Readonly<Record<string, string>>;
    };
    const commands = [...page.matchAll(/npm (?:run )?([\w:]+)/g)].map(([, name = '']) => name);
    const tests = ['unit', 'test', 'test:release', 'test:real'];
    const others = ['jest', 'busy', 'typecheck', 'lint', 'docs', 'docs:api', 'start'];
    expect(new Set(commands)).toEqual(new Set([...tests, ...others]));
    for (const name of commands) expect(Object.keys(known)).toContain(name);
    const paths = [...page.matchAll(/^npm run (?:unit|jest|busy) -- (?:--\w+ \d+ )?(\S+)/gm)].map(
      ([, path = '']) => path,
    );
    expect(paths.length).toBeGreaterThan(3);
    for (const path of paths) expect([path, existsSync(join(ROOT, path))]).toEqual([path, true]);
  });

  it('follows a field through the files that name it', () => {
    const table = /\| file \| what it says of the field \|\n.*\n([\s\S]*?)\n\n/.exec(page)?.[1] ?? '';
    const files = Array.from(table.matchAll(/^\| `([^`]+)` \|/gm), ([, file = '']) => file);
    expect(files.length).toBeGreaterThan(5);
    for (const file of files) expect([file, text(file).includes('endPort')]).toEqual([file, true]);
  });
});

describe('the way to debug an agent', () => {
  const name = `weir-debug-${process.pid}`;
  const mine = (script: string): string => script.replaceAll('weir-debug', name);
  const namespaces = new TestNamespaces('weir-cg');
  let node = '';

  beforeAll(async () => {
    node = await namespaces.add('node');
  });
  afterAll(async () => {
    await rm(`/sys/fs/bpf/${name}`, { recursive: true, force: true });
    await rm(join('/tmp', name), { recursive: true, force: true });
    await namespaces.dispose();
  });

  const inNode = (script: string): readonly [string, readonly string[]] => [
    'nsenter',
    [`--net=${node}`, 'bash', '-euc', mine(script)],
  ];

  it('starts one, shows its tables and maps, and takes it away', async () => {
    const [start] = scripts('agent');
    const [program, args] = inNode(`exec ${start ?? ''}`);
    const agent = spawn(program, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [agent.stdout, agent.stderr])
      stream.setEncoding('utf8').on('data', (chunk: string) => {
        output += chunk;
      });
    try {
      await eventually(
        async () => {
          if (agent.exitCode !== null) throw new Error(`the agent ended: ${output}`);
          return output;
        },
        (said) => said.includes('agent is running'),
        200,
      );
      expect(output).toContain('Debugger listening on');
      const looks = scripts('look');
      expect(looks).toHaveLength(2);
      const shown = await Promise.all(
        looks.map(async (script) => (await promisify(execFile)(...inNode(script), { cwd: ROOT })).stdout),
      );
      expect(shown[0]).toMatch(/^core +running/m);
      expect(shown[0]).toMatch(/^policies +/m);
      expect(shown[1]).toMatch(/^ipcache +lpm_trie/m);
    } finally {
      if (agent.exitCode === null) {
        agent.kill('SIGTERM');
        await once(agent, 'close');
      }
    }
    expect(existsSync(`/sys/fs/bpf/${name}/ipcache`)).toBe(true);
    const [clean = ''] = scripts('clean');
    await promisify(execFile)(...inNode(clean), { cwd: ROOT });
    expect(existsSync(`/sys/fs/bpf/${name}`)).toBe(false);
  });
});
