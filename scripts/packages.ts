/**
 * The libraries as others install them: `npm run packages` compiles each to JavaScript with declarations and packs it into a
 * tarball, with a bill of materials beside it. In this repository they are used as they are written, without a build.
 */
import { execFile } from 'node:child_process';
import { copyFileSync, existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { argv, env } from 'node:process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { npmSbom, writeSbom } from './sbom.ts';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const run = promisify(execFile);

/** Folders of `shared` that stand for themselves; each only needs those before it. */
export const LIBRARIES = ['statedb', 'reconciler', 'libbpf'] as const;

/** The oldest Node that runs what is published. */
export const OLDEST_NODE = '22';

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly exports: string | Readonly<Record<string, string>>;
  readonly [field: string]: unknown;
}

/** Compiles a library into `into`, a folder that is emptied first, with the manifest that npm is to see. */
export async function buildLibrary(name: (typeof LIBRARIES)[number], into: string): Promise<void> {
  const source = join(root, 'shared', name);
  const manifest = JSON.parse(readFileSync(join(source, 'package.json'), 'utf8')) as Manifest;
  const exports = typeof manifest.exports === 'string' ? { '.': manifest.exports } : manifest.exports;
  const entries = Object.values(exports).filter((file) => file.endsWith('.ts'));
  rmSync(into, { recursive: true, force: true });
  const build = `${into}.build`;
  rmSync(build, { recursive: true, force: true });
  mkdirSync(build, { recursive: true });
  const project = join(build, 'tsconfig.json');
  writeFileSync(
    project,
    JSON.stringify({
      extends: relative(build, join(root, 'tsconfig.json')),
      compilerOptions: {
        noEmit: false,
        declaration: true,
        rewriteRelativeImportExtensions: true,
        allowImportingTsExtensions: false,
        // Node 22 does not know `using`.
        target: 'es2022',
        types: ['node'],
        typeRoots: [join(root, 'node_modules/@types')],
        rootDir: join(root, 'shared'),
        outDir: join(build, 'out'),
      },
      include: [],
      files: entries.map((entry) => join(source, entry)),
    }),
  );
  await run(join(root, 'node_modules/.bin/tsc'), ['-p', project]);
  const compiled = join(build, 'out', name);
  for (const file of globSync('**/*.{js,d.ts}', { cwd: compiled })) {
    mkdirSync(dirname(join(into, file)), { recursive: true });
    copyFileSync(join(compiled, file), join(into, file));
  }
  rmSync(build, { recursive: true });
  for (const file of ['README.md', 'CHANGELOG.md']) {
    if (existsSync(join(source, file))) copyFileSync(join(source, file), join(into, file));
  }
  copyFileSync(join(root, 'LICENSE'), join(into, 'LICENSE'));
  writeFileSync(join(into, 'package.json'), `${JSON.stringify(publishable(name, manifest, exports), null, 2)}\n`);
}

/** Where the sources of a library are, as the workflow that publishes it knows: a checkout does not. */
export function repositoryOf(
  name: string,
  { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: repository }: Readonly<Record<string, string | undefined>>,
): object | undefined {
  if (server === undefined || repository === undefined) return undefined;
  return { type: 'git', url: `git+${server}/${repository}.git`, directory: `shared/${name}` };
}

function publishable(name: string, manifest: Manifest, exports: Readonly<Record<string, string>>): object {
  const { private: _private, files: _files, ...rest } = manifest;
  return {
    ...rest,
    exports: Object.fromEntries(
      Object.entries(exports).map(([path, file]) => [
        path,
        file.endsWith('.ts') ? { types: file.replace(/\.ts$/, '.d.ts'), default: file.replace(/\.ts$/, '.js') } : file,
      ]),
    ),
    engines: { node: `>=${OLDEST_NODE}` },
    repository: repositoryOf(name, env),
  };
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const out = join(root, '.cache/packages');
  mkdirSync(out, { recursive: true });
  for (const name of LIBRARIES) {
    await buildLibrary(name, join(out, name));
    const { stdout } = await run('npm', ['pack', '--silent', '--pack-destination', out], { cwd: join(out, name) });
    const tarball = stdout.trim();
    const { name: workspace } = JSON.parse(readFileSync(join(out, name, 'package.json'), 'utf8')) as Manifest;
    writeSbom(npmSbom(workspace, workspace), join(out, tarball.replace(/\.tgz$/, '.sbom.json')));
    console.log(join('.cache/packages', tarball));
  }
}
