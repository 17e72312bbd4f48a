/** HTTP to a target: single requests, and watches as streams of events. */
import { readFileSync } from 'node:fs';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { load } from 'js-yaml';
import type { CallOptions, Json, JsonObject, Target, WatchOptions } from './types.ts';

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: Json;
}

interface KubeConfig {
  readonly clusters: readonly { cluster: { server: string; 'certificate-authority-data'?: string } }[];
  readonly users?: readonly { user: { 'client-certificate-data'?: string; 'client-key-data'?: string } }[];
}

/** The target that the first cluster and user of a kubeconfig file name. @throws Error naming the file. */
export function targetOf(kubeconfig: string): Target {
  const config = load(readFileSync(kubeconfig, 'utf8')) as KubeConfig;
  const cluster = config.clusters[0]?.cluster;
  if (cluster === undefined) throw new Error(`${kubeconfig} names no cluster: give the kubeconfig of an API server`);
  const user = config.users?.[0]?.user;
  const pem = (data: string | undefined): string | undefined =>
    data === undefined ? undefined : Buffer.from(data, 'base64').toString();
  const [ca, cert, key] = [
    pem(cluster['certificate-authority-data']),
    pem(user?.['client-certificate-data']),
    pem(user?.['client-key-data']),
  ];
  return {
    url: cluster.server,
    kubeconfig,
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
}

const USER_AGENT = 'conformance/1';

export class Client {
  readonly #target: Target;
  readonly #agent: HttpAgent;

  constructor(target: Target) {
    this.#target = target;
    const tls = Object.fromEntries(
      Object.entries({ ca: target.ca, cert: target.cert, key: target.key }).filter(([, v]) => v),
    );
    this.#agent = target.url.startsWith('https:')
      ? new HttpsAgent({ keepAlive: true, ...tls })
      : new HttpAgent({ keepAlive: true });
  }

  close(): void {
    this.#agent.destroy();
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const response = await this.#send(method, path, options);
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    const bytes = Buffer.concat(chunks);
    return { status: response.statusCode ?? 0, headers: response.headers, body: parse(bytes.toString()) };
  }

  /** `opened` runs once the server answered; resolves with the events, or with the answer that refused the watch. */
  async watch(
    path: string,
    options: WatchOptions,
    opened: () => Promise<unknown>,
  ): Promise<{ answer: Omit<Answer, 'body'>; events: Json[]; refused?: Json }> {
    const query = { watch: 'true', timeoutSeconds: '20', ...options.query };
    const response = await this.#send('GET', path, { ...options, query });
    const answer = { status: response.statusCode ?? 0, headers: response.headers };
    const events: Json[] = [];
    if (answer.status !== 200) {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk as Buffer);
      return { answer, events, refused: parse(Buffer.concat(chunks).toString()) };
    }
    const finished = new Promise<void>((resolve, reject) => {
      let rest = '';
      response.on('data', (chunk: Buffer) => {
        rest += chunk.toString();
        for (let end = rest.indexOf('\n'); end >= 0 && events.length < options.events; end = rest.indexOf('\n')) {
          events.push(parse(rest.slice(0, end)));
          rest = rest.slice(end + 1);
        }
        if (events.length >= options.events) resolve();
      });
      response.once('end', resolve);
      response.once('error', reject);
    });
    await opened();
    await finished;
    response.destroy();
    return { answer, events };
  }

  #send(method: string, path: string, options: CallOptions): Promise<IncomingMessage> {
    const url = new URL(this.#target.url + path);
    for (const [name, value] of Object.entries(options.query ?? {})) {
      for (const one of typeof value === 'string' ? [value] : value) url.searchParams.append(name, one);
    }
    const payload = options.raw ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
    const headers: Record<string, string> = { accept: options.accept ?? 'application/json', 'user-agent': USER_AGENT };
    if (payload !== undefined) {
      headers['content-type'] = options.contentType ?? 'application/json';
      headers['content-length'] = String(Buffer.byteLength(payload));
    }
    const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
    return new Promise((resolve, reject) => {
      const sent = send(url, { method, headers, agent: this.#agent }, resolve);
      sent.once('error', reject);
      sent.end(payload);
    });
  }
}

function parse(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A string or a number as text; anything else is no text. */
export const textOf = (value: Json | undefined): string =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : '';
