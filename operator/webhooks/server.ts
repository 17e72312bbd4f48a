/**
 * One HTTPS server for the webhooks of all parts.
 *
 * Guarantees: a body of more than MOST_BYTES is not read, and a review takes no more than `reviewMs`. Every answer is an AdmissionReview. One that no
 * webhook gave has another HTTP status than 200 as well: the API server takes it for a call that failed, and the webhook's failurePolicy decides.
 * Whoever reaches the port may ask, and yet reviews take no more than a quarter of this process's time: they are done one after the other, and after
 * each comes a pause of three times as long as it took.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { TlsServer, type TlsServerOptions } from '@weir/process/tls-server';
import type { AdmissionAnswer, AdmissionRequest, Webhook } from '../parts/contract.ts';
import { ReviewError, requestIn, reviewOf } from './review.ts';

/** An object of up to 1.5 MB, which is what etcd takes, as it was and as it is to be, with the request around it. */
const MOST_BYTES = 4_194_304;
/** Half of what an API server waits by default. */
const REVIEW_MS = 5_000;
/** Of a pause after a review, for each millisecond that it took. */
const PAUSE = 3;

export interface WebhookServerOptions extends Omit<TlsServerOptions, 'name' | 'answer' | 'failed'> {
  /** Asked for each request: another term has parts of its own. */
  readonly webhooks: () => readonly Webhook[];
  /** A review threw, or took too long. */
  readonly onError: (path: string, error: unknown) => void;
  /** Milliseconds. Default 5000. */
  readonly reviewMs?: number;
}

export class WebhookServer extends TlsServer {
  readonly #options: WebhookServerOptions;
  /** When the next review may begin. */
  #turn: Promise<void> = Promise.resolve();

  constructor(options: WebhookServerOptions) {
    super({
      ...options,
      name: 'webhooks',
      answer: (request, response) => this.#answer(request, response),
      failed: (response) => end(response, 500, refusalOf('', new ReviewError(500, FAILED))),
    });
    this.#options = options;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let uid = '';
    try {
      const webhook = this.#webhookFor(request);
      const body = await bodyOf(request);
      const answer = await this.#inTurn(async () => {
        // Whoever asked has given up.
        if (response.destroyed) return undefined;
        const asked = requestIn(body);
        uid = asked.uid;
        return this.#review(webhook, asked);
      });
      if (answer !== undefined) end(response, 200, reviewOf(uid, answer));
    } catch (error) {
      if (!(error instanceof ReviewError)) throw error;
      end(response, error.status, refusalOf(uid, error));
    }
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#turn;
    const over = Promise.withResolvers<void>();
    this.#turn = over.promise;
    await before;
    const begin = performance.now();
    try {
      return await work();
    } finally {
      setTimeout(over.resolve, PAUSE * (performance.now() - begin)).unref();
    }
  }

  /** @throws ReviewError */
  #webhookFor({ url = '/', method }: IncomingMessage): Webhook {
    const [path = '/'] = url.split('?');
    const webhook = this.#options.webhooks().find((each) => each.path === path);
    if (webhook === undefined) throw new ReviewError(404, 'there is no webhook of this path');
    if (method !== 'POST') throw new ReviewError(405, 'a webhook is asked by POST');
    return webhook;
  }

  /** @throws ReviewError */
  async #review({ path, review }: Webhook, request: AdmissionRequest): Promise<AdmissionAnswer> {
    const { reviewMs = REVIEW_MS, onError } = this.#options;
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(
      () => late.reject(new ReviewError(504, `the review took more than ${reviewMs} ms`)),
      reviewMs,
    );
    try {
      return await Promise.race([review(request), late.promise]);
    } catch (error) {
      onError(path, error);
      throw error instanceof ReviewError ? error : new ReviewError(500, FAILED, error);
    } finally {
      clearTimeout(timer);
    }
  }
}

const FAILED = "the review failed; see the operator's log";

function refusalOf(uid: string, { status, message }: ReviewError): object {
  return reviewOf(uid, { allowed: false, message }, status);
}

/** @throws ReviewError */
async function bodyOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  try {
    // The answer goes by the same socket.
    for await (const piece of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      bytes += piece.length;
      if (bytes > MOST_BYTES) throw new ReviewError(413, `the body has more than ${MOST_BYTES} bytes`);
      pieces.push(piece);
    }
  } catch (error) {
    throw error instanceof ReviewError ? error : new ReviewError(400, 'the body was not received', error);
  }
  return Buffer.concat(pieces).toString();
}

function end(response: ServerResponse, status: number, review: object): void {
  // What is left of a body that is too large is not read.
  const rest = response.req.complete ? {} : { connection: 'close' };
  response.writeHead(status, { 'content-type': 'application/json', ...rest });
  response.end(JSON.stringify(review));
}
