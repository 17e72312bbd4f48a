/** The pages of docs/: every command is marked for the test that runs it, what they name exists, and what is generated is up to date. */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { DROP_REASONS } from '@weir/bpf';
import { crds } from '@weir/kube';
import { load } from 'js-yaml';
import { WORST_FIRST } from '../node-agent/kubernetes/node-condition.ts';
import { GENERATED } from '../scripts/reference.ts';
import { ACCESS, SECURE_METRICS } from './chart/access.ts';
import { find, type PodSpec, podSpec, render } from './chart/render.ts';
import { ROOT, run } from './cluster/run.ts';
import { commandsOf, type DocBlock, type DocPage, readPage } from './real/docs.ts';

const ALL = globSync('docs/*.md', { cwd: ROOT }).sort();
/** Written by people; generated pages have no commands. */
const FILES = ALL.filter((file) => !Object.hasOwn(GENERATED, file));
const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const pages: readonly DocPage[] = FILES.map((file) => readPage(file, text(file)));
const blocks: readonly DocBlock[] = pages.flatMap((page) => page.blocks);
/** Text outside of fenced blocks. */
const prose = (file: string): string => text(file).replace(/^\s*```[\s\S]*?^\s*```$/gm, '');
/** What stands in backquotes outside of fenced blocks. */
const quoted = (file: string): string[] => [...prose(file).matchAll(/`([^`\n]+)`/g)].map(([, inner]) => inner ?? '');

describe('the reader', () => {
  const page = (...lines: readonly string[]): DocPage => readPage('p.md', lines.join('\n'));
  const CLUSTER = '<!-- cluster: installed -->';

  it('finds scripts with their place, what is expected of them, and the cluster that they want', () => {
    expect(
      page(
        '<!-- cluster: empty -->',
        '```sh test',
        'a',
        'b',
        '```',
        '```text',
        'x',
        '```',
        '- item',
        '',
        '  ```sh test fails',
        '  c',
        '  ```',
        '```sh no-test needs a crane',
        'd',
        '```',
      ),
    ).toEqual({
      file: 'p.md',
      cluster: 'empty',
      problems: [],
      blocks: [
        { file: 'p.md', line: 3, expect: 'success', script: 'a\nb\n' },
        { file: 'p.md', line: 12, expect: 'failure', script: 'c\n' },
        { file: 'p.md', line: 15, expect: 'skip', reason: 'needs a crane', script: 'd\n' },
      ],
    });
  });

  it.each([
    ['a script without a marker', [CLUSTER, '```sh', 'a', '```'], 'p.md:2: "```sh"'],
    ['no language', [CLUSTER, '```', 'a', '```'], 'p.md:2: "```"'],
    ['a skip without a reason', [CLUSTER, '```sh no-test', 'a', '```'], 'p.md:2: "```sh no-test"'],
    ['another language', [CLUSTER, '```yaml', 'a: 1', '```'], 'p.md:2: "```yaml"'],
    ['output of nothing', [CLUSTER, '```text', 'a', '```'], 'p.md:2: output that follows no script'],
    ['output after prose', [CLUSTER, '```sh test', 'a', '```', 'So:', '```text', 'x', '```'], 'p.md:6: output'],
    ['no end', [CLUSTER, '```sh test', 'a'], 'p.md:2: a fence that nothing closes'],
    ['an empty script', [CLUSTER, '```sh test', '', '```'], 'p.md:2: a script without a command'],
    ['no cluster', ['```sh test', 'a', '```'], 'p.md:1: no line'],
    ['a strange cluster', ['<!-- cluster: big -->'], 'p.md:1: there is no cluster "big"'],
    ['two clusters', [CLUSTER, CLUSTER], 'p.md:2: a second cluster marker'],
  ])('%s is a problem', (_, lines, problem) => {
    const { problems } = page(...lines);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(problem);
  });

  it('takes a script apart into commands', () => {
    const script =
      "A=$(kubectl get x -o 'a b')   # why\nhelm y | grep -E 'z|q' && w\nk apply -f - <<EOF\nnot: this\nEOF\n";
    expect(commandsOf({ file: 'p', line: 10, expect: 'success', script })).toEqual([
      { line: 10, words: ['kubectl', 'get', 'x', '-o', 'a b'] },
      { line: 11, words: ['helm', 'y'] },
      { line: 11, words: ['grep', '-E', 'z|q'] },
      { line: 11, words: ['w'] },
      { line: 12, words: ['k', 'apply', '-f', '-'] },
    ]);
  });
});

describe('the pages', () => {
  it('are these', () => {
    expect(FILES).toEqual([
      'docs/dns.md',
      'docs/install.md',
      'docs/limits.md',
      'docs/policy-files.md',
      'docs/security.md',
      'docs/services.md',
      'docs/status.md',
      'docs/troubleshooting.md',
      'docs/upgrade.md',
    ]);
    expect(ALL).toEqual([...FILES, ...Object.keys(GENERATED)].sort());
  });

  it.each(Object.entries(GENERATED))('%s is what `npm run docs` writes', (file, page) => {
    expect(text(file)).toBe(page());
  });

  it("have the reasons of the Node's condition in the order in which one of them is told", () => {
    const [, table = ''] = text('docs/troubleshooting.md').split('| its reason | means |');
    const reasons = [...(table.split('\n\n')[0] ?? '').matchAll(/^\| ([^|]+) \|/gm)].flatMap(([, cell]) =>
      Array.from((cell ?? '').matchAll(/`(\w+)`/g), ([, reason]) => reason),
    );
    expect(reasons).toEqual([...WORST_FIRST, 'NoProblem']);
  });

  it('explain every reason of a drop, and no other', () => {
    const [, table = ''] = text('docs/troubleshooting.md').split('| reason | it means |');
    const cells = (table.split('\n\n')[0] ?? '').split('\n').map((row) => row.split(' | ')[0] ?? '');
    const reasons = cells.flatMap((cell) => Array.from(cell.matchAll(/`([\w-]+)`/g), ([, reason = '']) => reason));
    const drops = [...DROP_REASONS.values()].filter(({ drop }) => drop).map(({ name }) => name);
    expect(drops.length).toBeGreaterThan(10);
    expect(reasons.sort()).toEqual(drops.sort());
  });

  describe('status.md', () => {
    /** The reasons in one column of the table below a heading. */
    const reasons = (heading: string, column: number): string[] => {
      const [, section = ''] = text('docs/status.md').split(`\n## ${heading}\n`);
      const rows = (section.split('\n## ')[0] ?? '').split('\n').filter((line) => line.startsWith('| '));
      const cells = rows.slice(1).map((row) => row.split(' | ')[column] ?? '');
      return cells.flatMap((cell) => Array.from(cell.matchAll(/`(\w+)`/g), ([, reason = '']) => reason));
    };
    const words = (file: string, pattern: RegExp): string[] =>
      Array.from(text(file).matchAll(pattern), ([, word = '']) => word);

    it("has every reason of a policy's conditions, and no other", () => {
      const no = ['True', 'False', 'Unknown', 'ResolvedRefs', 'Ready', 'Warning'];
      const known = words('operator/model/status.ts', /'([A-Z][A-Za-z]+)'/g).filter((word) => !no.includes(word));
      const page = ['Valid', 'ResolvedRefs', 'Programmed'].flatMap((type) => reasons(type, 1));
      expect(known.length).toBeGreaterThan(10);
      expect(new Set(page)).toEqual(new Set(known));
    });

    it('has every failure that an agent reports, and no other', () => {
      const files = [
        ...globSync('node-agent/realised/*-faults.ts', { cwd: ROOT }),
        'node-agent/core.ts',
        'node-agent/tables.ts',
      ];
      // The types list some, the code that finds them all others.
      const unions = files.flatMap((file) => words(file, /reason: ((?:'\w+'(?: \| )?)+)/g));
      const known = unions.flatMap((union) => Array.from(union.matchAll(/\w+/g), ([reason]) => reason));
      expect(new Set(reasons('Failures of a node', 0))).toEqual(new Set([...known, 'ImportedRulesUnknown']));
    });
  });

  it('are linked from README.md', () => {
    const links = new Set(Array.from(text('README.md').matchAll(/\]\((docs\/[\w.-]+)\)/g), ([, target]) => target));
    expect(links).toEqual(new Set(ALL));
  });

  it('name source files that exist, as do the other documents', () => {
    const sources = globSync('{bin,bpf,node-agent,operator,scripts,shared,test}/**/*.{ts,mjs,c,h}', {
      cwd: ROOT,
      exclude: (path) => path.endsWith('node_modules'),
    });
    const paths = new Set(sources.flatMap((path) => path.split('/').map((_, at, all) => all.slice(at).join('/'))));
    const documents = [...ALL, ...globSync('{*.md,{bpf,shared/*,test,test/*}/README.md}', { cwd: ROOT })];
    expect(documents).toContain('ARCHITECTURE.md');
    const named = documents.flatMap((file) => quoted(file).map((path) => [file, path] as const));
    const files = named.filter(([, path]) => /^[\w./-]+\.(ts|mjs|c|h)$/.test(path));
    expect(files.length).toBeGreaterThan(100);
    expect(files.filter(([, path]) => !paths.has(path))).toEqual([]);
  });

  it('limits.md is short', () => {
    expect(text('docs/limits.md').trimEnd().split('\n').length).toBeLessThanOrEqual(30);
  });

  it('have a marker at every block', () => {
    expect(pages.flatMap(({ problems }) => problems)).toEqual([]);
    const commanded = pages.filter(({ file }) => file !== 'docs/limits.md');
    for (const page of commanded) expect([page.file, page.blocks.length > 3]).toEqual([page.file, true]);
    expect(blocks.filter((block) => block.expect === 'skip')).toHaveLength(4);
  });

  it('are linked to what exists, as are the documents of the root', () => {
    for (const file of [...ALL, ...globSync('{*.md,{bpf,test}/README.md}', { cwd: ROOT })])
      for (const [link, target] of prose(file).matchAll(/\]\(([^)]+)\)/g)) {
        const [path = '', anchor] = (target ?? '').split('#');
        const at = path === '' ? file : join(dirname(file), path);
        expect([file, link, existsSync(join(ROOT, at))]).toEqual([file, link, true]);
        if (anchor === undefined) continue;
        const anchors = [...text(at).matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
          (title ?? '')
            .toLowerCase()
            .replace(/[^\w -]/g, '')
            .replaceAll(' ', '-'),
        );
        expect(anchors).toContain(anchor);
      }
  });

  it('name values that the chart has', () => {
    const values = load(text('charts/weir/values.yaml')) as Readonly<Record<string, unknown>>;
    const has = (path: string): boolean => {
      let at: unknown = values;
      for (const part of path.split('.')) {
        if (typeof at !== 'object' || at === null || !(part in at)) return false;
        at = (at as Readonly<Record<string, unknown>>)[part];
      }
      return true;
    };
    const inProse = ALL.flatMap((file) => quoted(file))
      .map((code) => /^([A-Za-z]+(?:\.[A-Za-z]+)*)(?:: .*)?$/.exec(code)?.[1] ?? '')
      .filter((path) => (path.split('.')[0] ?? '') in values);
    const inCommands = blocks
      .filter((block) => block.expect !== 'failure')
      .flatMap((block) => [...block.script.matchAll(/--set ([\w.]+)=/g)].map(([, path]) => path ?? ''));
    expect(inProse.length).toBeGreaterThan(15);
    expect(inCommands.length).toBeGreaterThan(2);
    for (const path of [...inProse, ...inCommands]) expect([path, has(path)]).toEqual([path, true]);
  });
});

describe('commands', () => {
  const commands = blocks.flatMap((block) => commandsOf(block).map((command) => ({ ...command, file: block.file })));
  const of = (program: string) => commands.filter(({ words }) => words[0] === program);
  const helps = new Map<string, Promise<string>>();
  const help = (program: string, args: readonly string[]): Promise<string> => {
    const key = [program, ...args].join(' ');
    const known = helps.get(key) ?? run(program, [...args]).then(({ stdout }) => stdout);
    helps.set(key, known);
    return known;
  };
  /** The words that name the subcommand, and the long flags; what follows `--` belongs to another program. */
  const read = (words: readonly string[], depth: (name: string) => number) => {
    const end = words.indexOf('--');
    const own = words.slice(1, end < 0 ? undefined : end);
    // `-n NAMESPACE` may come before the subcommand.
    const plain = own.filter((word, index) => !word.startsWith('-') && own[index - 1] !== '-n');
    return {
      sub: plain.slice(0, depth(plain[0] ?? '')),
      flags: own.filter((word) => word.startsWith('--')).map((word) => word.replace(/=.*$/, '')),
      inner: end < 0 ? [] : words.slice(end + 1),
      plain,
    };
  };

  it('start only these programs', () => {
    expect(new Set(commands.map(({ words }) => words[0]))).toEqual(
      new Set(['kubectl', 'helm', 'docker', 'ctr', 'timeout', 'grep', 'xargs', 'npm', 'bin/weir']),
    );
  });

  it('helm has each subcommand and flag, and the chart is where they say', async () => {
    expect(of('helm').length).toBeGreaterThan(10);
    for (const { words, file, line } of of('helm')) {
      const { sub, flags } = read(words, (name) => (['get', 'show'].includes(name) ? 2 : 1));
      const known = await help('helm', [...sub, '--help']);
      expect([file, line, known.includes(`helm ${sub.join(' ')} `)]).toEqual([file, line, true]);
      for (const flag of flags)
        expect([file, line, flag, known.includes(`${flag} `)]).toEqual([file, line, flag, true]);
    }
  });

  it('kubectl has each subcommand and flag, and Weir or Kubernetes each resource', async () => {
    const names = (
      crds() as readonly {
        readonly spec: { readonly names: Readonly<Record<string, unknown>>; readonly group: string };
      }[]
    )
      .flatMap(
        ({
          spec: {
            names: { plural, singular, shortNames },
            group,
          },
        }) => [plural, singular, `${String(plural)}.${group}`, ...((shortNames ?? []) as string[])],
      )
      .concat([
        'nodes',
        'node',
        'pods',
        'pod',
        'namespaces',
        'events',
        'lease',
        'services',
        'endpointslices',
        'networkpolicies',
        'daemonsets',
        'daemonset',
        'deployments',
        'deployment',
        'crd',
        'secrets',
      ]);
    const options = await help('kubectl', ['options']);
    const all = [...of('kubectl'), ...of('timeout').map((command) => ({ ...command, words: command.words.slice(2) }))];
    expect(all.length).toBeGreaterThan(30);
    for (const { words, file, line } of all) {
      const { sub, flags, plain } = read(words, (name) => (['rollout', 'auth'].includes(name) ? 2 : 1));
      const known = await help('kubectl', [...sub, '--help']);
      expect([file, line, known.includes(`kubectl ${sub.join(' ')}`)]).toEqual([file, line, true]);
      for (const flag of flags)
        expect([file, line, flag, `${known}${options}`.includes(`${flag}=`)]).toEqual([file, line, flag, true]);
      const resource = { get: 1, wait: 1, describe: 1, 'rollout status': 2, 'auth can-i': 3 }[sub.join(' ')];
      if (resource === undefined || plain[resource] === undefined) continue;
      for (const each of plain[resource].split(',')) expect(names).toContain(each.split('/')[0]);
    }
  });

  it('weir has each subcommand and flag', async () => {
    const inner = [...of('kubectl'), ...of('timeout')]
      .map(({ words }) => words.slice(words.indexOf('--') + 1))
      .filter(([program]) => program === 'weir');
    const all = [...inner, ...of('bin/weir').map(({ words }) => words)];
    expect(all.length).toBeGreaterThan(6);
    const top = await help(join(ROOT, 'bin/weir'), ['--help']);
    for (const words of all) {
      const { sub, flags } = read(words, (name) =>
        ['policy', 'endpoint', 'map', 'identity', 'table'].includes(name) ? 2 : 1,
      );
      const known = await help(join(ROOT, 'bin/weir'), [...sub, '--help']);
      expect(known).toContain(`weir ${sub.join(' ')}`);
      for (const flag of flags) expect(`${known}${top}`).toContain(flag);
    }
  });

  it('npm has each script', () => {
    const { scripts } = JSON.parse(text('package.json')) as { readonly scripts: Readonly<Record<string, string>> };
    expect(of('npm').length).toBeGreaterThan(0);
    for (const { words } of of('npm')) expect(Object.keys(scripts)).toContain(words[2]);
  });

  it('the files that commands take exist', () => {
    for (const { words, file, line } of commands)
      for (const word of words)
        if (/^(charts|test|scripts|operator|node-agent)\//.test(word))
          expect([file, line, word, existsSync(join(ROOT, word))]).toEqual([file, line, word, true]);
  });

  it('flags named in the text are those of agent, DNS proxy, operator, weir, helm or Kubernetes', async () => {
    const foreign = [
      '--allocate-node-cidrs',
      '--cluster-cidr',
      '--take-ownership',
      '--no-hooks',
      '--all',
      '--server-side',
      '--cleanup',
    ];
    const known = [
      await help(process.execPath, [join(ROOT, 'node-agent/main.ts'), '--help']),
      await help(process.execPath, [join(ROOT, 'node-agent/dns/proxy/main.ts'), '--help']),
      await help(process.execPath, [join(ROOT, 'operator/main.ts'), '--help']),
      await help(process.execPath, [join(ROOT, 'operator/main.ts'), 'uninstall', '--help']),
      await help(join(ROOT, 'bin/weir'), ['status', '--help']),
    ].join('');
    for (const file of ALL)
      for (const [flag] of quoted(file)
        .join('\n')
        .matchAll(/--[a-z][a-z-]+/g))
        expect([file, flag, known.includes(`${flag} `) || foreign.includes(flag)]).toEqual([file, flag, true]);
  });

  it('the pod that cleans a node runs the image and the command that there are', async () => {
    const manifest = /<<EOF\n([\s\S]*?)^EOF$/m.exec(text('docs/install.md'))?.[1] ?? '';
    const pod = load(manifest) as { readonly spec: PodSpec };
    const agent = podSpec(find(await render(), 'DaemonSet', 'weir-agent'));
    expect(pod.spec.containers[0]?.image).toBe(agent?.containers[0]?.image);
    expect(pod.spec.containers[0]?.args).toContain('cleanup');
    expect(await help(process.execPath, [join(ROOT, 'node-agent/main.ts'), '--help'])).toContain('"cleanup"');
  });
});

describe('security.md', () => {
  /** Rows of the table below a text, each a list of cells. */
  const table = (after: string): string[][] => {
    const page = text('docs/security.md');
    const start = page.indexOf('\n|', page.indexOf(after)) + 1;
    expect([after, page.includes(after), start > 0]).toEqual([after, true, true]);
    return page
      .slice(start)
      .split('\n\n', 1)
      .join()
      .trim()
      .split('\n')
      .slice(2)
      .map((row) =>
        row
          .split('|')
          .slice(1, -1)
          .map((cell) => cell.trim()),
      );
  };

  it.each([
    ['weir-operator', '## The operator'],
    ['weir-agent', '| `/proc` |'],
    ['weir-uninstall', '## The uninstall Job'],
    ['weir-test', '## The test of'],
    ['weir-agent', '## Metrics', SECURE_METRICS],
    ['weir-operator', '## Metrics', SECURE_METRICS],
  ])('has every right of %s, with its reason', (component, after, all = ACCESS) => {
    const rows = all
      .filter((access) => access.component === component)
      .map(({ resource, verbs, namespace, names, why }) => {
        const where =
          namespace === undefined
            ? 'cluster'
            : namespace === 'release'
              ? 'release namespace'
              : `namespace ${namespace}`;
        return [
          `\`${resource}\``,
          verbs.join(', '),
          [where, ...(names ?? []).map((name) => `only \`${name}\``)].join(', '),
          why,
        ];
      });
    expect(rows.length).toBeGreaterThan(0);
    expect(table(after)).toEqual(rows);
  });

  it('has every capability and every folder of the node that the chart gives', async () => {
    const agent = podSpec(find(await render(), 'DaemonSet', 'weir-agent'));
    const containers = [...(agent?.containers ?? []), ...(agent?.initContainers ?? [])];
    const capabilities = containers.flatMap(({ name, securityContext }) =>
      (securityContext.capabilities.add ?? []).map((capability) => [`\`${capability}\``, `\`${name}\``]),
    );
    expect(table('The agent\n').map((row) => row.slice(0, 2))).toEqual(capabilities);
    const folders = (agent?.volumes ?? []).flatMap(({ hostPath }) =>
      hostPath === undefined ? [] : [`\`${hostPath.path}\``],
    );
    expect(new Set(table('leaves it out').map(([folder]) => folder))).toEqual(new Set(folders));
    for (const row of [...table('The agent\n'), ...table('leaves it out')])
      expect(row.at(-1)?.length).toBeGreaterThan(10);
  });
});
