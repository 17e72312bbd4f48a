/** One case on one server: does what the case asks and keeps what was seen. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Answer, type Client, isObject } from './client.ts';
import { Normaliser } from './normalise.ts';
import type { CallOptions, Json, JsonObject, Reply, RunOptions, Session, Step, Target, WatchOptions } from './types.ts';

const MEDIA = {
  json: 'application/json-patch+json',
  merge: 'application/merge-patch+json',
  strategic: 'application/strategic-merge-patch+json',
  apply: 'application/apply-patch+yaml',
};

/** Where the project keeps kubectl and helm when the machine has none. */
const TOOLS = join(dirname(fileURLToPath(import.meta.url)), '../../../.cache/bin');

/** Controllers of a real cluster act within seconds; past this something is wrong. */
const PATIENCE = 30_000;

export class CaseSession implements Session {
  readonly ns: string;
  readonly run: string;
  readonly folder: string;
  readonly #client: Client;
  readonly #target: Target;
  readonly #steps: Step[] = [];
  readonly #labels = new Set<string>();
  readonly #aliases: (readonly [string, string])[] = [];
  readonly #undo: (() => Promise<unknown>)[] = [];

  private constructor(client: Client, target: Target, name: string, run: string, folder: string) {
    this.#client = client;
    this.#target = target;
    this.run = run;
    this.folder = folder;
    this.ns = `${name.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')}-${run}`;
  }

  static async open(client: Client, target: Target, name: string, run: string): Promise<CaseSession> {
    const folder = await mkdtemp(join(tmpdir(), 'weir-conformance-'));
    const session = new CaseSession(client, target, name, run, folder);
    const made = await session.quiet('POST', '/api/v1/namespaces', { body: { metadata: { name: session.ns } } });
    if (made.status !== 201)
      throw new Error(`namespace ${session.ns}: HTTP ${made.status} ${JSON.stringify(made.body)}`);
    return session;
  }

  /** Undoes what the case left and returns its transcript. */
  async close(): Promise<Step[]> {
    for (const undo of this.#undo.reverse()) await undo();
    await this.quiet('DELETE', `/api/v1/namespaces/${this.ns}`);
    await rm(this.folder, { recursive: true });
    const words = [...this.#aliases, [this.ns, 'NS'], [this.run, 'RUN'], [this.folder, 'FOLDER']] as const;
    const normaliser = new Normaliser(this.#steps, words);
    return this.#steps.map((step) => normaliser.step(step));
  }

  at(apiVersion: string, plural: string, name = '', subresource = ''): string {
    return path(apiVersion, `namespaces/${this.ns}/${plural}`, name, subresource);
  }

  all(apiVersion: string, plural: string, name = '', subresource = ''): string {
    return path(apiVersion, plural, name, subresource);
  }

  async call(method: string, url: string, options: CallOptions = {}): Promise<Reply> {
    const answer = await this.#client.call(method, url, options);
    const seen = options.pick === undefined || answer.status >= 400 ? answer.body : options.pick(answer.body);
    this.#record(label(method, url, options), { ...facts(answer), body: seen }, options.note);
    return reply(answer);
  }

  get = (url: string, options: CallOptions = {}): Promise<Reply> => this.call('GET', url, options);
  post = (url: string, body: unknown, options: CallOptions = {}): Promise<Reply> =>
    this.call('POST', url, { ...options, body });
  put = (url: string, body: unknown, options: CallOptions = {}): Promise<Reply> =>
    this.call('PUT', url, { ...options, body });
  delete = (url: string, options: CallOptions = {}): Promise<Reply> => this.call('DELETE', url, options);

  patch(url: string, type: keyof typeof MEDIA, body: unknown, options: CallOptions = {}): Promise<Reply> {
    const note = options.note === undefined ? type : `${type}: ${options.note}`;
    return this.call('PATCH', url, { ...options, body, contentType: MEDIA[type], note });
  }

  async watch(url: string, options: WatchOptions, act: () => Promise<unknown> = async () => undefined): Promise<void> {
    const { answer, events, refused } = await this.#client.watch(url, options, act);
    const shaped = events.map((event): Json => {
      if (!isObject(event) || !isObject(event.object)) return event;
      if (event.type === 'BOOKMARK') return { ...event, object: { ...event.object, bookmark: true } };
      return options.pick === undefined ? event : { ...event, object: options.pick(event.object) };
    });
    const body = refused === undefined ? { events: shaped } : { body: refused };
    this.#record(label('WATCH', url, options), { ...facts(answer), ...body }, options.note);
  }

  async quiet(method: string, url: string, options: CallOptions = {}): Promise<Reply> {
    return reply(await this.#client.call(method, url, options));
  }

  async until(url: string, done: (reply: Reply) => boolean): Promise<Reply> {
    const end = Date.now() + PATIENCE;
    for (;;) {
      const seen = await this.quiet('GET', url);
      if (done(seen)) return seen;
      if (Date.now() > end) throw new Error(`GET ${url}: still ${JSON.stringify(seen.body)} after ${PATIENCE} ms`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  kubectl(args: readonly string[], options: RunOptions = {}): Promise<string> {
    return this.#command('kubectl', args, options);
  }

  helm(args: readonly string[], options: RunOptions = {}): Promise<string> {
    return this.#command('helm', args, options);
  }

  alias(value: string, stands: string): void {
    this.#aliases.push([value, stands]);
  }

  after(undo: () => Promise<unknown>): void {
    this.#undo.push(undo);
  }

  async #command(program: string, args: readonly string[], options: RunOptions): Promise<string> {
    const { code, stdout, stderr } = await run(program, ['-n', this.ns, ...args], options.input, {
      KUBECONFIG: this.#target.kubeconfig,
      HOME: this.folder,
      PATH: `${TOOLS}:${process.env.PATH ?? ''}`,
    });
    if (code !== 0 && options.fails !== true)
      throw new Error(`${program} ${args.join(' ')}: exit ${code}\n${stderr}${stdout}`);
    const seen: JsonObject = { code };
    if (options.silent !== true) seen.stdout = stdout.split('\n');
    if (options.fails === true) seen.stderr = stderr.split('\n');
    this.#record(`${program} ${args.join(' ')}`, seen, options.note);
    return stdout;
  }

  #record(what: string, seen: JsonObject, note: string | undefined): void {
    const base = note === undefined ? what : `${what} (${note})`;
    let unique = base;
    for (let n = 2; this.#labels.has(unique); n++) unique = `${base} #${n}`;
    this.#labels.add(unique);
    this.#steps.push({ step: unique, seen });
  }
}

function path(apiVersion: string, middle: string, name: string, subresource: string): string {
  const root = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  return [root, middle, name, subresource].filter((part) => part !== '').join('/');
}

function label(method: string, url: string, options: { query?: CallOptions['query']; accept?: string }): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options.query ?? {})) {
    // A token or a revision of this server says nothing to a reader.
    if (name === 'continue') query.append(name, 'CONTINUE');
    else if (name === 'resourceVersion' && typeof value === 'string' && value.length > 1) query.append(name, 'RV');
    else for (const one of typeof value === 'string' ? [value] : value) query.append(name, one);
  }
  const asked = query.toString() === '' ? '' : `?${decodeURIComponent(query.toString())}`;
  const as = options.accept === undefined ? '' : ` as ${/as=(\w+)/.exec(options.accept)?.[1] ?? options.accept}`;
  return `${method} ${url}${asked}${as}`;
}

/** The answer apart from its body: what clients act on. */
function facts(answer: Omit<Answer, 'body'>): JsonObject {
  const out: JsonObject = { status: answer.status };
  const type = String(answer.headers['content-type'] ?? '');
  if (type !== 'application/json') out.contentType = type;
  const retry = answer.headers['retry-after'];
  if (retry !== undefined) out.retryAfter = retry;
  const warning = answer.headers.warning;
  if (warning !== undefined) out.warning = warning.split(/, (?=299 )/);
  return out;
}

const reply = (answer: Answer): Reply => ({
  status: answer.status,
  body: answer.body,
  object: isObject(answer.body) ? answer.body : {},
});

function run(
  program: string,
  args: readonly string[],
  input: string | object | undefined,
  env: Record<string, string>,
): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => err.push(chunk));
    // A program that ends without reading its input closes the pipe; its exit code tells the story.
    child.stdin.on('error', () => undefined);
    child.once('error', (error) => reject(new Error(`${program}: ${error.message}; npm test puts it into .cache/bin`)));
    child.once('close', (code) =>
      resolve({ code: code ?? -1, stdout: Buffer.concat(out).toString(), stderr: Buffer.concat(err).toString() }),
    );
    child.stdin.end(input === undefined ? undefined : typeof input === 'string' ? input : JSON.stringify(input));
  });
}
