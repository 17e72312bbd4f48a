/**
 * `node scripts/bundle.ts operator|node-agent OUT`: what an image needs, in one folder. The operator is one file; the agent is its
 * bundle, the CLI, koffi's native library, the compiled datapath and the static CNI shim.
 */
import { cpSync, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildDatapath } from '@weir/bpf';
import { buildCni } from '@weir/node-agent/cni/build.ts';
import { build } from 'esbuild';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const [target, out] = process.argv.slice(2);
if ((target !== 'operator' && target !== 'node-agent') || out === undefined) {
  console.error('usage: node scripts/bundle.ts operator|node-agent OUT_FOLDER');
  process.exit(2);
}

async function bundle(entry: string, file: string): Promise<void> {
  await build({
    entryPoints: [join(root, entry)],
    outfile: join(out ?? '', file),
    bundle: true,
    platform: 'node',
    target: 'node24',
    format: 'esm',
    sourcemap: true,
    // koffi finds its native library beside its package; bundled CommonJS parts need a require.
    external: ['koffi'],
    banner: { js: "import { createRequire as weirCreateRequire } from 'node:module'; const require = weirCreateRequire(import.meta.url);" },
  });
}

mkdirSync(out, { recursive: true });
if (target === 'operator') await bundle('operator/main.ts', 'operator.mjs');
else {
  await bundle('node-agent/main.ts', 'agent.mjs');
  await bundle('node-agent/cli/main.ts', 'weir.mjs');
  // The ring buffer is read by a worker thread, which is a file of its own.
  await bundle('shared/libbpf/ring-worker.ts', 'ring-worker.mjs');
  const koffi = dirname(createRequire(import.meta.url).resolve('koffi/package.json'));
  cpSync(koffi, join(out, 'node_modules/koffi'), { recursive: true, dereference: true });
  cpSync((await buildDatapath()).objectPath, join(out, 'weir.o'));
  cpSync(await buildCni(), join(out, 'weir-cni'));
}
