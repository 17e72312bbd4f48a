/** Programs that ask for names as pods do: by the C libraries glibc and musl, by Go with each of its resolvers, and by Node. */
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { sharedLibrary } from '../../../scripts/images/native.ts';
import { findGo, type RealCluster } from '../../cluster/real/index.ts';
import { ROOT, run } from '../../cluster/run.ts';

const SOURCES = join(ROOT, 'test/real/dns');
/** Where pods have them. */
export const CLIENTS = '/clients';
/** Of the node, which mounts it into pods. */
const FOLDER = '/opt/dns-clients';

/** How each prints the addresses of a name that is given to it last. */
export const KINDS = {
  glibc: [`${CLIENTS}/glibc`],
  musl: [`${CLIENTS}/musl`],
  netgo: [`${CLIENTS}/netgo`],
  cgo: [`${CLIENTS}/cgo`],
  'node lookup': ['node', `${CLIENTS}/resolve.mjs`, 'lookup'],
  'node resolve': ['node', `${CLIENTS}/resolve.mjs`, 'resolve'],
} as const;
export type Kind = keyof typeof KINDS;

export const clientsVolume = { name: 'clients', hostPath: { path: FOLDER, type: 'Directory' } };
export const clientsMount = { name: 'clients', mountPath: CLIENTS, readOnly: true };

/** Builds them, and puts them on every node. */
export async function buildClients(cluster: RealCluster): Promise<void> {
  const folder = join(cluster.folder, 'dns-clients');
  mkdirSync(folder);
  const at = (name: string) => join(folder, name);
  const source = (name: string) => join(SOURCES, name);
  await run('gcc', ['-O1', '-o', at('glibc'), source('resolve.c')]);
  await run('musl-gcc', ['-O1', '-static', '-o', at('musl'), source('resolve.c')]);
  const go = await findGo();
  for (const [name, file, cgo, ...tags] of [
    ['netgo', 'resolve.go', '0'],
    ['cgo', 'resolve.go', '1', '-tags', 'netcgo'],
    ['ask', 'ask.go', '0'],
  ] as const)
    await run(go, ['build', ...tags, '-o', at(name), source(file)], {
      env: { CGO_ENABLED: cgo, GOFLAGS: '-buildvcs=false' },
      timeoutMs: 300_000,
    });
  cpSync(source('resolve.mjs'), at('resolve.mjs'));
  cpSync(sharedLibrary('libresolv.so.2', 'libc6'), at('libresolv.so.2'), { dereference: true });
  for (const node of cluster.nodes) cpSync(folder, join(node.folder, FOLDER), { recursive: true });
}

/** What a program in a pod finds: addresses, or what it says of a failure. */
export async function resolve(cluster: RealCluster, pod: string, kind: Kind, name: string): Promise<string> {
  const { code, stdout, stderr } = await cluster.tryKubectl([
    ...['exec', pod, '--', 'env', `LD_LIBRARY_PATH=${CLIENTS}`, ...KINDS[kind], name],
  ]);
  return code === 0 ? stdout.trim() : `failed: ${stderr.trim().slice(-300)}`;
}

/** Of ask.go. */
export interface Account {
  readonly asked: number;
  readonly answered: number;
  readonly lost: number;
  readonly away: number;
  readonly wrong: readonly string[];
}

/** Asks from a pod ten times a second, until the function that it returns is called. */
export function keepAsking(cluster: RealCluster, pod: string, names: readonly string[]): () => Promise<Account> {
  const asking = spawn(
    'kubectl',
    ['--kubeconfig', cluster.kubeconfig, 'exec', '-i', pod, '--', `${CLIENTS}/ask`, '100ms', ...names],
    { stdio: ['pipe', 'pipe', 'pipe'] },
  );
  let [stdout, stderr] = ['', ''];
  asking.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  asking.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const { promise, resolve: end, reject } = Promise.withResolvers<Account>();
  asking.on('error', reject);
  asking.on('close', (code) => {
    if (code === 0) end(JSON.parse(stdout) as Account);
    else reject(new Error(`asking from ${pod} ended with code ${code}: ${stderr}`));
  });
  // Whoever stops hears of it.
  promise.catch(() => undefined);
  return () => {
    asking.stdin.end();
    return promise;
  };
}
