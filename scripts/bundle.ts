/**
 * What runs in production is one file a program. Images (`images.ts`) and the cluster on one machine run the same bundles.
 */
import { createHash } from 'node:crypto';
import { existsSync, globSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, type Plugin } from 'esbuild';

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/**
 * client-node re-exports a thousand generated classes that run nothing when loaded, but does not say so: told here, the bundler
 * leaves out those that nobody names. That is 3 MB of code and 20 MB of memory.
 */
const pureClientNode: Plugin = {
  name: 'pure-client-node',
  setup(builder) {
    builder.onResolve({ filter: /./ }, async ({ path, pluginData, ...rest }) => {
      if (
        pluginData === pureClientNode ||
        !(path === '@kubernetes/client-node' || rest.importer.includes('@kubernetes/client-node'))
      )
        return undefined;
      const found = await builder.resolve(path, { ...rest, pluginData: pureClientNode });
      return found.errors.length > 0 || found.external ? found : { ...found, sideEffects: false };
    });
  },
};

async function bundle(out: string, entries: Readonly<Record<string, string>>): Promise<void> {
  await build({
    entryPoints: Object.entries(entries).map(([name, file]) => ({ in: join(root, file), out: name })),
    outdir: out,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    platform: 'node',
    target: 'node24',
    format: 'esm',
    sourcemap: true,
    logLevel: 'warning',
    // koffi finds its native library beside its package; bundled CommonJS parts need a require.
    external: ['koffi'],
    minifyWhitespace: true,
    minifySyntax: true,
    // A name in a licence is not ASCII, and V8 keeps the whole of such a source in two bytes a character: 4 MB. They get a file beside.
    legalComments: 'external',
    plugins: [pureClientNode],
    banner: {
      js: "import { createRequire as weirCreateRequire } from 'node:module'; const require = weirCreateRequire(import.meta.url);",
    },
  });
}

/** Writes operator.mjs. */
export function bundleOperator(out: string): Promise<void> {
  return bundle(out, { operator: 'operator/main.ts' });
}

/** Writes agent.mjs, dns-proxy.mjs and weir.mjs (the CLI). The first two need koffi at run time. */
export function bundleAgent(out: string): Promise<void> {
  return bundle(out, {
    agent: 'node-agent/main.ts',
    'dns-proxy': 'node-agent/dns/proxy/main.ts',
    weir: 'node-agent/cli/main.ts',
  });
}

/** Writes pod.mjs: what runs in test pods on a real cluster. */
export function bundlePod(out: string): Promise<void> {
  return bundle(out, { pod: 'test/cluster/pod/main.ts' });
}

/** Both programs in a folder of the cache, made anew when a source file has changed. Returns the folder. */
export async function bundlePrograms(): Promise<string> {
  const sources = globSync(['{bpf,node-agent,operator,shared}/**/*.ts', 'scripts/bundle.ts', 'package-lock.json'], {
    cwd: root,
    exclude: (path) => path.includes('node_modules') || path.endsWith('.test.ts'),
  });
  const hash = createHash('sha256');
  for (const file of sources.sort()) hash.update(file).update(readFileSync(join(root, file)));
  const folder = join(root, '.cache/dist', hash.digest('hex').slice(0, 16));
  if (existsSync(folder)) return folder;
  // Complete before it has its name: a concurrent run never sees half of it.
  const draft = `${folder}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  await Promise.all([bundleOperator(draft), bundleAgent(draft)]);
  if (existsSync(folder)) rmSync(draft, { recursive: true });
  else renameSync(draft, folder);
  return folder;
}
