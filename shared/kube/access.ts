/**
 * Where the API server is and what proves who we are.
 *
 * A kubeconfig that holds all of it in itself (a server, and nothing or a token or certificates as data) is read here.
 * Everything else (service accounts and token files that rotate, certificate files, exec plugins, OIDC, proxies) is left
 * to @kubernetes/client-node, which is loaded when it is first needed: it has 600 modules, and loading them takes longer
 * than all the rest of a start.
 */
import { readFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import type { KubeConfig } from '@kubernetes/client-node';
import { load } from 'js-yaml';
import { KubeConfigError } from './errors.ts';

export interface Access {
  /** The server's URL, and the options of a request to it: TLS, authorization. Throws KubeConfigError. */
  prepare(): Promise<Prepared>;
}

export interface Prepared {
  readonly server: string;
  readonly options: RequestOptions;
  /** The agent in `options` leads through a proxy and must be used. */
  readonly proxied: boolean;
}

/**
 * From a kubeconfig file, or the pod's service account when `path` is undefined. Throws KubeConfigError, naming the file,
 * when it cannot be read or names no server.
 */
export function accessOf(path: string | undefined): Access {
  if (path === undefined) {
    if ((process.env.KUBERNETES_SERVICE_HOST ?? '') === '') {
      throw new KubeConfigError(
        'not in a cluster (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig with --kubeconfig',
      );
    }
    return new LibraryAccess(undefined);
  }
  const { context, cluster, user } = readKubeConfig(path);
  const server = cluster?.server;
  if (typeof server !== 'string' || !/^https?:\/\//.test(server)) {
    throw new KubeConfigError(`kubeconfig "${path}" has no cluster with a server for its current context "${context}"`);
  }
  const plain = plainOptions(cluster ?? {}, user ?? {});
  return plain === undefined ? new LibraryAccess(path) : new PlainAccess(server, plain);
}

type Fields = Readonly<Record<string, unknown>>;

const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function readKubeConfig(path: string): { context: string; cluster: Fields | undefined; user: Fields | undefined } {
  let config: unknown;
  try {
    config = load(readFileSync(path, 'utf8'));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new KubeConfigError(`cannot read kubeconfig "${path}": ${why}`, { cause: error });
  }
  const root = isFields(config) ? config : {};
  const context = typeof root['current-context'] === 'string' ? root['current-context'] : '';
  const entry = (list: string, name: unknown, key: string): Fields | undefined => {
    const entries: unknown = root[list];
    const found: unknown = Array.isArray(entries)
      ? entries.find((one: unknown) => isFields(one) && one.name === name)
      : undefined;
    const value = isFields(found) ? found[key] : undefined;
    return isFields(value) ? value : undefined;
  };
  const chosen = entry('contexts', context, 'context');
  return {
    context,
    cluster: entry('clusters', chosen?.cluster, 'cluster'),
    user: entry('users', chosen?.user, 'user'),
  };
}

const PLAIN_CLUSTER = new Set(['server', 'certificate-authority-data', 'tls-server-name']);
const PLAIN_USER = new Set(['token', 'client-certificate-data', 'client-key-data']);

/** Undefined when the file says anything that is not read here. */
function plainOptions(cluster: Fields, user: Fields): RequestOptions | undefined {
  const { 'insecure-skip-tls-verify': insecure = false, ...rest } = cluster;
  const clusterTexts = plainTexts(rest, PLAIN_CLUSTER);
  const userTexts = plainTexts(user, PLAIN_USER);
  if (typeof insecure !== 'boolean' || clusterTexts === undefined || userTexts === undefined) return undefined;
  const data = (text: string | undefined): Buffer | undefined =>
    text === undefined ? undefined : Buffer.from(text, 'base64');
  const ca = data(clusterTexts.get('certificate-authority-data'));
  const cert = data(userTexts.get('client-certificate-data'));
  const key = data(userTexts.get('client-key-data'));
  const servername = clusterTexts.get('tls-server-name');
  const token = userTexts.get('token');
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(insecure ? { rejectUnauthorized: false } : {}),
    ...(servername === undefined ? {} : { servername }),
    ...(token === undefined ? {} : { headers: { Authorization: `Bearer ${token.trim()}` } }),
  };
}

/** The fields when each is known and a text, else undefined. */
function plainTexts(fields: Fields, known: ReadonlySet<string>): ReadonlyMap<string, string> | undefined {
  const texts = new Map<string, string>();
  for (const [key, value] of Object.entries(fields)) {
    if (!known.has(key) || typeof value !== 'string' || value === '') return undefined;
    texts.set(key, value);
  }
  return texts;
}

class PlainAccess implements Access {
  readonly #prepared: Prepared;

  constructor(server: string, options: RequestOptions) {
    this.#prepared = { server, options, proxied: false };
  }

  async prepare(): Promise<Prepared> {
    return this.#prepared;
  }
}

class LibraryAccess implements Access {
  readonly #path: string | undefined;
  #config: Promise<KubeConfig> | undefined;

  constructor(path: string | undefined) {
    this.#path = path;
  }

  async prepare(): Promise<Prepared> {
    // A failure is not kept: a service account's files may come a moment later.
    this.#config ??= loadWithLibrary(this.#path).catch((error: unknown) => {
      this.#config = undefined;
      throw error;
    });
    const config = await this.#config;
    const cluster = config.getCurrentCluster();
    if (cluster === null) throw new KubeConfigError('the kubeconfig has no current cluster');
    const options: RequestOptions = {};
    await config.applyToHTTPSOptions(options);
    trimAuthorization(options);
    return { server: cluster.server, options, proxied: Boolean(cluster.proxyUrl) };
  }
}

/** A token file that an editor or `echo` wrote ends in a newline, which no header may hold. */
function trimAuthorization(options: RequestOptions): void {
  const { headers } = options;
  if (headers === undefined || Array.isArray(headers)) return;
  const said = headers as Record<string, unknown>;
  const { Authorization: text } = said;
  if (typeof text === 'string') said.Authorization = text.trim();
}

async function loadWithLibrary(path: string | undefined): Promise<KubeConfig> {
  const { KubeConfig: Config } = await import('./library.ts');
  const config = new Config();
  try {
    if (path === undefined) config.loadFromCluster();
    else config.loadFromFile(path);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new KubeConfigError(
      `cannot read kubeconfig ${path === undefined ? 'of the service account' : `"${path}"`}: ${why}`,
      { cause: error },
    );
  }
  const cluster = config.getCurrentCluster();
  // client-node refuses plain http unless TLS verification is off, although there is no TLS to verify.
  if (cluster?.server.startsWith('http:') === true && !cluster.skipTLSVerify) {
    const user = config.getCurrentUser() ?? { name: 'anonymous' };
    config.loadFromClusterAndUser({ ...cluster, skipTLSVerify: true }, user);
  }
  return config;
}
