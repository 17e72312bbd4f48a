/**
 * What the images are called and how they start. `rootfs.ts` says what is in them. The Dockerfiles repeat user, environment and entry
 * point; a test compares.
 */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The checkout's root. */
export const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

export type ImageName = 'operator' | 'node-agent' | 'pod';
export const IMAGE_NAMES: readonly ImageName[] = ['operator', 'node-agent', 'pod'];

export interface ImageSpec {
  readonly name: ImageName;
  /** Under which name a container runtime knows it. */
  readonly reference: string;
  readonly user: string;
  readonly env: readonly string[];
  readonly entrypoint: readonly string[];
  /** The most that its files may take, in bytes. */
  readonly limit: number;
}

/** Where programs are: ours first, then Node and what the agent calls, then the pod image's busybox. */
const PATH = 'PATH=/usr/local/bin:/usr/bin:/bin';

/**
 * Of every program: a small young generation, one helper thread, one heap of the C library, which gives back what is freed: together 7 MB,
 * and what a load needed. What is 16 KB or more is mapped by itself, as that heap gives back its end only.
 */
export const NODE_FLAGS: readonly string[] = ['--max-semi-space-size=1', '--v8-pool-size=1'];
/** No TurboFan, whose own code takes 5 to 8 MB: Maglev is as fast for the operator. The agent's plans would cost 1.7 times as much. */
export const OPERATOR_FLAGS: readonly string[] = [...NODE_FLAGS, '--max-opt=2'];
export const NODE_ENV = {
  MALLOC_ARENA_MAX: '1',
  MALLOC_MMAP_THRESHOLD_: '16384',
  MALLOC_TRIM_THRESHOLD_: '65536',
};

function environment(variables: Readonly<Record<string, string>>): readonly string[] {
  return [PATH, ...Object.entries(variables).map(([name, value]) => `${name}=${value}`)];
}

export function imageSpec(name: ImageName): ImageSpec {
  switch (name) {
    case 'operator':
      return {
        name,
        reference: `localhost/weir/operator:${version()}`,
        user: '65532',
        env: environment(NODE_ENV),
        entrypoint: ['node', ...OPERATOR_FLAGS, '/app/operator.mjs'],
        limit: 120e6,
      };
    case 'node-agent':
      return {
        name,
        reference: `localhost/weir/node-agent:${version()}`,
        user: '0',
        env: environment(NODE_ENV),
        entrypoint: [
          'node',
          ...NODE_FLAGS,
          '/app/agent.mjs',
          '--datapath-object',
          '/app/weir.o',
          '--cni-binary',
          '/app/weir-cni',
        ],
        limit: 150e6,
      };
    case 'pod':
      return {
        name,
        reference: 'localhost/weir-pod:1',
        user: '0',
        env: environment(NODE_ENV),
        entrypoint: ['node', '/app/pod.mjs'],
        limit: 120e6,
      };
  }
}

/** The project's version, which is the chart's appVersion and the images' tag. */
function version(): string {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { readonly version: string };
  return version;
}

/** How OCI calls this machine's processor. Throws on any that Weir has no images for. */
export function architecture(): string {
  const known: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' };
  const found = known[process.arch];
  if (found === undefined) throw new Error(`images are made on x64 and arm64; this is ${process.arch}`);
  return found;
}
