/**
 * HTTPS for strangers, with a certificate that may change.
 *
 * Guarantees: the port is never open without TLS. A certificate that is missing or does not fit is told, and asked for again until it
 * does; a new one is used within `lookMs`, and while there is none that fits the one before stays. None of this keeps the program
 * from its work: `start` does not reject. Who fills the port with connections keeps nobody else from it (connection-places.ts).
 */
import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import { ConnectionPlaces } from './connection-places.ts';
import { delay } from './delay.ts';
import { messageOf } from './errors.ts';
import { LineLimit } from './line-limit.ts';

const LOOK_MS = 10_000;
/** What a client may take for the beginning of TLS, and then to send a request; and how many connections there may be. */
const HANDSHAKE_MS = 3_000;
const REQUEST_MS = 10_000;
const MOST_CONNECTIONS = 64;
/** How soon it is noticed that a client took too long: Node looks every 30 s by itself. */
const NOTICE_MS = 1_000;

/** In PEM. */
export interface Certificate {
  /** The whole chain. */
  readonly cert: string;
  readonly key: string;
}

export interface TlsServerOptions {
  /** What it serves, in the plural: `metrics`. */
  readonly name: string;
  /** Undefined: all addresses. */
  readonly host: string | undefined;
  readonly port: number;
  /** Folder of `tls.crt` (PEM, the whole chain) and `tls.key`, as a Secret of type kubernetes.io/tls is mounted; or who has them. */
  readonly certificates: string | (() => Promise<Certificate>);
  readonly answer: (request: IncomingMessage, response: ServerResponse) => Promise<void>;
  /** `answer` failed, and has not begun an answer. */
  readonly failed: (response: ServerResponse) => void;
  readonly log: Readonly<Record<'info' | 'warn' | 'error', (fields: object, message: string) => void>>;
  /** Milliseconds between two looks at the certificate. Default 10000. */
  readonly lookMs?: number;
  /** Milliseconds that a client may take for the beginning of TLS. Default 3000. */
  readonly handshakeMs?: number;
  /** Milliseconds that a client may take for a request. Default 10000. */
  readonly requestMs?: number;
}

export class TlsServer {
  readonly #options: TlsServerOptions;
  readonly #stop = new AbortController();
  readonly #places: ConnectionPlaces;
  readonly #fullness: LineLimit;
  #looking: Promise<void> = Promise.resolve();
  #server: Server | undefined;
  /** In use. */
  #certificate: Certificate | undefined;
  #problem: string | undefined;

  constructor(options: TlsServerOptions) {
    this.#options = options;
    const { name, log } = options;
    this.#fullness = new LineLimit({
      most: 1,
      onLeftOut: (_, leftOut) =>
        log.warn({ leftOut }, `more connections to the ${name} were closed, because there were too many`),
    });
    this.#places = new ConnectionPlaces({
      most: MOST_CONNECTIONS,
      onClosed: (source) => {
        if (this.#fullness.admits(''))
          log.warn(
            { source, most: MOST_CONNECTIONS },
            `too many connections to the ${name}: the oldest of this source was closed, and nothing that was let in; see who connects from there`,
          );
      },
    });
  }

  /** Listens if it can; else it is tried again. */
  async start(): Promise<void> {
    await this.#look();
    this.#looking = this.#watch();
  }

  /** Undefined while nobody is listened to. */
  get port(): number | undefined {
    return this.#server === undefined ? undefined : (this.#server.address() as AddressInfo).port;
  }

  /** Whether the connection of this request is let in: then it keeps its place. */
  judge({ socket }: IncomingMessage, letIn: boolean): void {
    this.#places.judge(socket, letIn);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#looking;
    await new Promise((resolve) => {
      if (this.#server === undefined) return resolve(undefined);
      this.#server.close(resolve);
      this.#places.closeAll();
    });
    this.#fullness.stop();
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await delay(this.#options.lookMs ?? LOOK_MS, signal, { ref: false });
      if (!signal.aborted) await this.#look();
    }
  }

  async #look(): Promise<void> {
    const { name, host, port, certificates, log } = this.#options;
    const from = typeof certificates === 'string' ? { certificates } : {};
    const fields = { address: `${host ?? '*'}:${port}`, ...from };
    try {
      const found = await (typeof certificates === 'string' ? readCertificate(certificates) : certificates());
      const { cert, key } = this.#certificate ?? {};
      if (found.cert !== cert || found.key !== key) {
        if (this.#server === undefined) {
          this.#server = await this.#listen(found);
          log.info(fields, `${name} are served by TLS`);
        } else {
          this.#server.setSecureContext(found);
          log.info(fields, `${name} have a new certificate`);
        }
        this.#certificate = found;
      }
      this.#problem = undefined;
    } catch (error) {
      const problem = messageOf(error);
      if (problem === this.#problem) return;
      this.#problem = problem;
      const what = this.#server === undefined ? `${name} are not served` : `${name} keep their certificate`;
      log.error({ ...fields, error: problem }, `${what}: put right what the error names; it is looked at again`);
    }
  }

  #listen(certificate: Certificate): Promise<Server> {
    const { name, host, port, answer, failed, log, handshakeMs = HANDSHAKE_MS, requestMs = REQUEST_MS } = this.#options;
    const server = createServer(
      {
        ...certificate,
        handshakeTimeout: handshakeMs,
        requestTimeout: requestMs,
        headersTimeout: requestMs,
        connectionsCheckingInterval: NOTICE_MS,
      },
      (request, response) => {
        answer(request, response).catch((error: unknown) => {
          log.error({ err: error }, `a request for ${name} could not be answered`);
          if (!response.headersSent) failed(response);
          else response.destroy();
        });
      },
    );
    server.on('connection', (socket: Socket) => this.#places.take(socket));
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, host, () => {
        server.off('error', reject);
        server.on('error', (error) => log.error({ err: error }, `a request for ${name} could not be accepted`));
        resolve(server);
      });
    });
  }
}

/** @throws Error that names the file */
async function readCertificate(folder: string): Promise<Certificate> {
  // One after the other: where both are missing, the first is named each time.
  const cert = await readPart(join(folder, 'tls.crt'));
  const certificate = { cert, key: await readPart(join(folder, 'tls.key')) };
  try {
    createSecureContext(certificate);
  } catch (error) {
    throw new Error(
      `${join(folder, 'tls.crt')} and ${join(folder, 'tls.key')} are not a certificate in PEM and its own key: ${messageOf(error)}`,
      { cause: error },
    );
  }
  return certificate;
}

async function readPart(path: string): Promise<string> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new Error(`${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
  if (text.trim() === '') throw new Error(`${path} is empty`);
  return text;
}
