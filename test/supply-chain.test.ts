/** What goes into a release: every input by its checksum, and a bill of materials that names them all. */
import { execFileSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { load } from 'js-yaml';
import { imageSbom } from '../scripts/images/sbom.ts';
import { LIBRARIES } from '../scripts/packages.ts';
import { npmSbom, type Sbom } from '../scripts/sbom.ts';
import { ROOT } from './cluster/run.ts';

const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

interface Step {
  readonly name?: string;
  readonly id?: string;
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}
interface Job {
  readonly needs?: readonly string[];
  readonly container?: { readonly image: string };
  readonly permissions: Readonly<Record<string, string>>;
  readonly 'timeout-minutes'?: number;
  readonly environment?: string;
  readonly steps: readonly Step[];
}
interface Workflow {
  readonly permissions: unknown;
  readonly defaults: { readonly run: { readonly shell: string } };
  readonly jobs: Readonly<Record<string, Job>>;
}

const WORKFLOWS = globSync('.github/workflows/*.{yml,yaml}', { cwd: ROOT });
const DOCKERFILES = globSync('{operator,node-agent}/Dockerfile', { cwd: ROOT }).sort();
const workflow = (file: string): Workflow => load(text(file)) as Workflow;
const jobs = WORKFLOWS.flatMap((file) => Object.entries(workflow(file).jobs));
const steps = jobs.flatMap(([, job]) => job.steps);
const scripts = steps.flatMap(({ run }) => run ?? []);

describe('images are built from', () => {
  const bases = DOCKERFILES.flatMap((file) => {
    const stages = [...text(file).matchAll(/^FROM (\S+)(?: AS (\S+))?$/gm)];
    expect(stages).toHaveLength(text(file).match(/^\s*FROM\b/gim)?.length ?? 0);
    const earlier = new Set(['scratch', ...stages.flatMap(([, , name]) => name ?? [])]);
    return stages.map(([, base]) => base ?? '').filter((base) => !earlier.has(base));
  });

  it('one base, by its digest, in both Dockerfiles and in the workflow', () => {
    expect(DOCKERFILES).toEqual(['node-agent/Dockerfile', 'operator/Dockerfile']);
    const containers = jobs.flatMap(([, { container }]) => container?.image ?? []);
    expect(containers).toHaveLength(1);
    expect(bases).toHaveLength(2);
    for (const base of [...bases, ...containers]) expect(base).toMatch(/^[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}$/);
    expect(new Set([...bases, ...containers]).size).toBe(1);
  });

  it('the same Debian packages in the workflow as in the Dockerfiles', () => {
    const installed = (script: string): readonly string[] =>
      (/apt-get install -y --no-install-recommends((?:\s+\\?\s*[a-z0-9+.-]+)+)/.exec(script)?.[1] ?? '')
        .split(/[\s\\]+/)
        .filter((word) => word !== '');
    const all = DOCKERFILES.flatMap((file) => installed(text(file)));
    expect(all).toContain('libbpf1');
    expect(installed(scripts.find((script) => script.includes('apt-get install')) ?? '')).toEqual(
      [...new Set([...all, 'ca-certificates', 'git'])].sort(),
    );
  });

  it('npm packages with a checksum each, Node among them', () => {
    const { packages } = lock();
    const remote = Object.entries(packages).filter(([path, { link }]) => path.includes('node_modules/') && !link);
    expect(remote.length).toBeGreaterThan(100);
    expect(remote.filter(([, { integrity }]) => !/^sha512-[\w+/]{86}==$/.test(integrity ?? ''))).toEqual([]);
    const { optionalDependencies } = JSON.parse(text('package.json')) as {
      readonly optionalDependencies: Readonly<Record<string, string>>;
    };
    for (const arch of ['x64', 'arm64']) {
      expect(optionalDependencies[`node-linux-${arch}`]).toMatch(/^24\.\d+\.\d+$/);
      expect(packages[`node_modules/node-linux-${arch}`]?.version).toBe(optionalDependencies[`node-linux-${arch}`]);
    }
  });

  it('nothing that is fetched without a checksum', () => {
    const recipes = [...DOCKERFILES, ...WORKFLOWS, ...globSync('scripts/**/*.{ts,mjs}', { cwd: ROOT }), '.ci/run'];
    expect(recipes).toContain('scripts/bootstrap.mjs');
    for (const file of recipes) {
      // A program, not a word of a sentence or of a list of what a pod has.
      const fetches = text(file).match(
        /^\s*(?:RUN |- run: |.*(?:&&|\||;) )?(?:curl|wget|npx) |npm (?:install|i|exec) |\bfetch\(/gm,
      );
      expect([file, fetches]).toEqual([file, null]);
    }
  });
});

/** What the workflow's host writes in. */
const expression = (name: string): string => `$\{{ ${name} }}`;

describe('the release workflow', () => {
  const release = workflow('.github/workflows/release.yml');

  it('uses others’ actions by commit, with the version beside it', () => {
    const lines = text('.github/workflows/release.yml').match(/^.*\buses: .*$/gm) ?? [];
    expect(lines).toHaveLength(steps.filter(({ uses }) => uses !== undefined).length);
    for (const line of lines) expect(line).toMatch(/ uses: [\w.-]+\/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  it('gives rights to jobs only, and the identity that signs to the one that runs no code of a dependency', () => {
    expect(release.permissions).toEqual({});
    const rights = Object.fromEntries(
      Object.entries(release.jobs).map(([name, { permissions }]) => [name, permissions]),
    );
    expect(rights).toEqual({
      check: { contents: 'read' },
      images: { contents: 'read' },
      packages: { contents: 'read' },
      publish: { contents: 'write', packages: 'write', 'id-token': 'write', attestations: 'write' },
    });
    const { publish } = release.jobs;
    expect(publish?.environment).toBe('release');
    expect(JSON.stringify(publish?.steps)).not.toMatch(/actions\/checkout|npm |node_modules|scripts\//);
    for (const { uses, with: inputs } of steps)
      if (uses?.startsWith('actions/checkout@')) expect(inputs).toEqual({ 'persist-credentials': false });
  });

  it('publishes only what every other job has made and checked', () => {
    const { publish, ...others } = release.jobs;
    expect([...(publish?.needs ?? [])].sort()).toEqual(Object.keys(others).sort());
    expect(Object.values(release.jobs).filter((job) => job['timeout-minutes'] === undefined)).toEqual([]);
    const script = publish?.steps.map(({ run }) => run ?? '').join('\n') ?? '';
    const order = [
      'sha256sum --check --strict',
      'skopeo copy',
      'cosign attest',
      'cosign sign --yes',
      'gh release create',
    ];
    const places = order.map((command) => script.indexOf(command));
    expect(places).toEqual([...places].sort((a, b) => a - b));
    expect(places[0]).toBeGreaterThanOrEqual(0);
  });

  it('has provenance for both images and for every file', () => {
    const subjects = steps.flatMap(({ uses, with: inputs }) =>
      uses?.startsWith('actions/attest-build-provenance@') ? [inputs] : [],
    );
    expect(subjects).toEqual([
      {
        'subject-name': `${expression('vars.REGISTRY')}/operator`,
        'subject-digest': expression('steps.push.outputs.operator'),
        'push-to-registry': true,
      },
      {
        'subject-name': `${expression('vars.REGISTRY')}/node-agent`,
        'subject-digest': expression('steps.push.outputs.node-agent'),
        'push-to-registry': true,
      },
      { 'subject-path': 'files/*' },
    ]);
    const push = steps.find(({ id }) => id === 'push')?.run ?? '';
    expect(push).toContain('for name in operator node-agent; do');
    expect(push).toContain('echo "$name=$digest" >> "$GITHUB_OUTPUT"');
  });

  it('has scripts that bash can read, that fail where a part of a pipe does, and that no expression writes into', () => {
    expect(release.defaults.run.shell).toBe('bash');
    for (const script of scripts) {
      execFileSync('bash', ['-n'], { input: script });
      expect(script).not.toMatch(/\$\{\{/);
    }
  });
});

describe('a workflow', () => {
  const diagnose = (files: readonly string[]): unknown =>
    JSON.parse(
      execFileSync(process.execPath, [join(ROOT, 'test/workflow-diagnostics.ts'), ...files], {
        cwd: ROOT,
        encoding: 'utf8',
      }),
    );

  it('is one that GitHub takes, by its own language service', () => {
    expect(WORKFLOWS.length).toBeGreaterThan(0);
    expect(diagnose(WORKFLOWS)).toEqual(WORKFLOWS.map(() => []));
  });

  it('that names what does not exist is found', () => {
    const folder = mkdtempSync(join(tmpdir(), 'weir-workflows-'));
    try {
      const slips = [
        ['steps.push.outputs.operator', 'steps.pull.outputs.operator'],
        ['needs: [check,', 'needs: [checks,'],
        ['attestations: write', 'attestation: write'],
        ['timeout-minutes: 90', 'timeout: 90'],
        [expression('matrix.arch'), expression('matrix.architecture')],
        [expression('github.token'), expression('github.tokens')],
      ] as const;
      const release = text('.github/workflows/release.yml');
      const files = slips.map(([right, wrong], at) => {
        const file = join(folder, `${at}.yml`);
        writeFileSync(file, release.replace(right, wrong));
        return file;
      });
      expect(diagnose(files)).toEqual(
        ['pull', 'checks', 'attestation', 'timeout', 'architecture', 'tokens'].map((name) =>
          expect.arrayContaining([expect.stringMatching(new RegExp(`^line \\d+: .*\\b${name}\\b`))]),
        ),
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

interface Locked {
  readonly version?: string;
  readonly integrity?: string;
  readonly link?: boolean;
  readonly resolved?: string;
  readonly os?: string | readonly string[];
  readonly cpu?: string | readonly string[];
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

function lock(): { readonly packages: Readonly<Record<string, Locked>> } {
  return JSON.parse(text('package-lock.json')) as { readonly packages: Readonly<Record<string, Locked>> };
}

/** name@version -> checksum as hex, of what production needs on this machine: found as Node finds packages, from `start` on. */
function production(start: readonly string[]): Map<string, string> {
  const { packages } = lock();
  const allows = (list: string | readonly string[] | undefined, mine: string): boolean =>
    list === undefined || [list].flat().includes(mine);
  const found = new Map<string, string>();
  const seen = new Set<string>();
  const visit = (path: string): void => {
    const entry = packages[path];
    if (entry === undefined || seen.has(path)) return;
    seen.add(path);
    const { link, resolved, version, integrity, os, cpu, dependencies, optionalDependencies } = entry;
    if (!allows(os, 'linux') || !allows(cpu, process.arch)) return;
    if (link === true) {
      visit(resolved ?? '');
      return;
    }
    if (integrity !== undefined)
      found.set(
        `${path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)}@${version}`,
        Buffer.from(integrity.slice('sha512-'.length), 'base64').toString('hex'),
      );
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      for (let folder = path; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf('/')))) {
        const candidate = `${folder === '' ? '' : `${folder}/`}node_modules/${name}`;
        if (candidate in packages) visit(candidate);
        if (candidate in packages || folder === '') break;
      }
    }
  };
  for (const path of start) visit(path);
  return found;
}

/** Of all programs and libraries. */
const everything = (): Map<string, string> =>
  production(Object.keys(lock().packages).filter((path) => !path.includes('node_modules/')));

/** Of its components those that npm fetched; workspaces have no checksum. */
const fetched = ({ components }: Sbom): Map<string, string> =>
  new Map(
    components
      .filter(({ purl, hashes }) => purl?.startsWith('pkg:npm/') && hashes !== undefined)
      .map(({ name, version, hashes, purl }) => [
        `${decodeURIComponent(purl?.slice('pkg:npm/'.length, purl.lastIndexOf('@')) ?? name)}@${version}`,
        hashes?.find(({ alg }) => alg === 'SHA-512')?.content ?? '',
      ]),
  );

describe('a bill of materials', () => {
  it('lists exactly the production dependencies of package-lock.json, with their checksums', () => {
    const expected = everything();
    expect(expected.size).toBeGreaterThan(50);
    expect([...expected.keys()]).toEqual(
      expect.arrayContaining([expect.stringMatching(/^node-linux-/), expect.stringMatching(/^koffi@/)]),
    );
    expect(fetched(npmSbom('weir'))).toEqual(expected);
  });

  it('of an image is of that image, and the same each time', () => {
    const sbom = imageSbom('operator');
    expect(sbom.metadata.component.name).toBe('localhost/weir/operator');
    expect(fetched(sbom)).toEqual(everything());
    expect(JSON.stringify(imageSbom('operator'))).toBe(JSON.stringify(sbom));
    expect(sbom).toMatchObject({ bomFormat: 'CycloneDX', specVersion: '1.5' });
  });

  it.each(LIBRARIES)('of the library %s lists what that library needs', (library) => {
    const { name } = JSON.parse(text(`shared/${library}/package.json`)) as { readonly name: string };
    const sbom = npmSbom(name, name);
    expect(sbom.metadata.component.name).toBe(name);
    expect(fetched(sbom)).toEqual(production([`shared/${library}`]));
  });
});

describe('engines', () => {
  interface Locked {
    readonly packages: Readonly<Record<string, { readonly engines?: { readonly node?: string } }>>;
  }
  const numbers = (version: string): number[] => [0, 1, 2].map((at) => Number(version.split('.')[at] ?? 0));
  const reaches = (version: string, least: string): boolean => {
    const [have, need] = [numbers(version), numbers(least)];
    const at = have.findIndex((part, index) => part !== need[index]);
    return at < 0 || (have[at] ?? 0) > (need[at] ?? 0);
  };
  /** Of the forms that the packages use: `>=20`, `^22.13.0`, `22`, `10.x`, `*`, and alternatives of them. */
  const satisfies = (version: string, range: string): boolean =>
    range.split('||').some((part) => {
      const [, operator = '', least = ''] = /^\s*(>=|>|\^|~|v)?\s*([\d.x*]+)/.exec(part) ?? [];
      if (least === '*') return true;
      const same = numbers(version)[0] === numbers(least)[0];
      return operator.startsWith('>') ? reaches(version, least) : same && reaches(version, least.replace(/\.x/g, ''));
    });

  it('name a Node that every dependency takes', () => {
    const { packages } = JSON.parse(text('package-lock.json')) as Locked;
    const own = (JSON.parse(text('package.json')) as { readonly engines: { readonly node: string } }).engines.node;
    expect(packages['']?.engines?.node).toBe(own);
    const least = /^>=([\d.]+)$/.exec(own)?.[1] ?? '';
    const refused = Object.entries(packages).flatMap(([path, { engines }]) =>
      engines?.node === undefined || satisfies(least, engines.node) ? [] : [`${path} needs ${engines.node}`],
    );
    expect(refused).toEqual([]);
  });
});
