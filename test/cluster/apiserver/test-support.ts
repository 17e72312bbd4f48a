/** What the tests of this folder share: a server with a kubeconfig on disk, and the real kubectl. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createApiServer } from './index.ts';
import type { JsonObject } from './json.ts';
import type { ApiServer, ApiServerOptions, ObjectRef, ResourceRef } from './types.ts';

export interface Output {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Cluster {
  readonly server: ApiServer;
  readonly url: string;
  readonly folder: string;
  /** Runs kubectl; `input` goes to its stdin. */
  kubectl(args: readonly string[], input?: string | object, env?: Record<string, string>): Promise<Output>;
  /** As kubectl(), but a failure rejects with what it printed. */
  ok(args: readonly string[], input?: string | object, env?: Record<string, string>): Promise<string>;
  close(): Promise<void>;
}

export async function startCluster(options: ApiServerOptions = {}): Promise<Cluster> {
  const server = createApiServer(options);
  const { url } = await server.listen();
  const folder = await mkdtemp(join(tmpdir(), 'weir-apiserver-'));
  const config = join(folder, 'kubeconfig');
  await writeFile(config, server.kubeconfig());
  const kubectl: Cluster['kubectl'] = (args, input, env = {}) => run(config, folder, args, input, env);
  return {
    server,
    url,
    folder,
    kubectl,
    ok: async (args, input, env) => {
      const result = await kubectl(args, input, env);
      if (result.code !== 0)
        throw new Error(`kubectl ${args.join(' ')}: exit ${result.code}\n${result.stderr}${result.stdout}`);
      return result.stdout;
    },
    close: async () => {
      await server.stop();
      await rm(folder, { recursive: true });
    },
  };
}

function run(
  config: string,
  folder: string,
  args: readonly string[],
  input: string | object | undefined,
  env: Record<string, string>,
): Promise<Output> {
  return new Promise((resolve, reject) => {
    const child = spawn('kubectl', args, {
      env: { ...process.env, KUBECONFIG: config, HOME: folder, ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => err.push(chunk));
    // A kubectl that ends without reading its input closes the pipe; its exit code tells the story.
    child.stdin.on('error', () => undefined);
    child.once('error', (error: NodeJS.ErrnoException) => {
      const missing =
        error.code === 'ENOENT' ? 'kubectl is not on PATH: install it, these tests drive the real one' : error.message;
      reject(new Error(missing, { cause: error }));
    });
    child.once('close', (code) => {
      resolve({ code: code ?? -1, stdout: Buffer.concat(out).toString(), stderr: Buffer.concat(err).toString() });
    });
    child.stdin.end(input === undefined ? undefined : typeof input === 'string' ? input : JSON.stringify(input));
  });
}

export const core = (plural: string, namespace = 'default'): ResourceRef => ({
  group: '',
  version: 'v1',
  plural,
  namespace,
});

export const named = (ref: ResourceRef, name: string): ObjectRef => ({ ...ref, name });

export const configMap = (name: string, data: Record<string, string> = {}): JsonObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name },
  data,
});

export const pod = (name: string, spec: JsonObject = {}): JsonObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, labels: { app: name } },
  spec: { containers: [{ name: 'main', image: 'app:1' }], ...spec },
});

/** A kind with a status, defaults, a keyed list and printer columns. */
export const widgetDefinition = (): JsonObject => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'widgets.example.com' },
  spec: {
    group: 'example.com',
    scope: 'Namespaced',
    names: { plural: 'widgets', kind: 'Widget', shortNames: ['wd'] },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {} },
        additionalPrinterColumns: [
          { name: 'Size', type: 'integer', jsonPath: '.spec.size' },
          { name: 'Ready', type: 'string', jsonPath: '.status.conditions[?(@.type=="Ready")].status' },
          { name: 'Color', type: 'string', jsonPath: '.spec.color', priority: 1 },
        ],
        schema: {
          openAPIV3Schema: {
            type: 'object',
            description: 'A widget of the example.',
            properties: {
              spec: {
                type: 'object',
                required: ['size'],
                properties: {
                  size: { type: 'integer', minimum: 1, maximum: 10, description: 'How big it is.' },
                  color: { type: 'string', enum: ['red', 'blue'], default: 'red' },
                  target: { 'x-kubernetes-int-or-string': true },
                  tags: { type: 'array', 'x-kubernetes-list-type': 'set', items: { type: 'string' } },
                  ports: {
                    type: 'array',
                    'x-kubernetes-list-type': 'map',
                    'x-kubernetes-list-map-keys': ['port'],
                    items: {
                      type: 'object',
                      required: ['port'],
                      properties: { port: { type: 'integer' }, name: { type: 'string' } },
                    },
                  },
                  free: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
                },
              },
              status: {
                type: 'object',
                properties: {
                  conditions: {
                    type: 'array',
                    items: { type: 'object', properties: { type: { type: 'string' }, status: { type: 'string' } } },
                  },
                },
              },
            },
          },
        },
      },
    ],
  },
});

export const WIDGETS: ResourceRef = { group: 'example.com', version: 'v1', plural: 'widgets', namespace: 'default' };

export const widget = (name: string, spec: JsonObject = { size: 3 }): JsonObject => ({
  apiVersion: 'example.com/v1',
  kind: 'Widget',
  metadata: { name },
  spec,
});

/** Resolves once `condition` holds; the test's own timeout is the limit. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}
