/**
 * Who may read a program's metrics: whoever Kubernetes knows by their bearer token, and lets `get` the URL /metrics. As controller-runtime
 * and kube-rbac-proxy ask it: a TokenReview, then a SubjectAccessReview.
 *
 * Guarantees: nobody is let in while the API server cannot be asked, unless it let them in within the last minute. Whoever sends
 * tokens that nobody has costs the API server a bounded number of questions at once, and takes no place from those who were let in before.
 */
import { createHash } from 'node:crypto';
import { messageOf } from '@weir/process/errors';
import { clipped } from '@weir/process/printable';
import type { KubeReviewer } from './types.ts';

const ALLOWED_MS = 60_000;
const REFUSED_MS = 10_000;
/** Of each kind. */
const MOST_REMEMBERED = 128;
const MOST_QUESTIONS = 4;
const LONGEST_TEXT = 300;
/** RFC 6750, section 2.1. */
const BEARER = /^Bearer +([A-Za-z0-9._~+/-]+=*)$/i;

export interface ScrapeAccessOptions {
  readonly client: KubeReviewer;
  /** Milliseconds of a clock that never goes back. Default performance.now. */
  readonly now?: () => number;
}

interface Refusal {
  readonly status: number;
  readonly text: string;
}

interface Remembered {
  readonly until: number;
  readonly refusal: Refusal | undefined;
}

export class ScrapeAccess {
  readonly #client: KubeReviewer;
  readonly #now: () => number;
  /** By the hash of the token. Apart, so that refusals push no allowance out. */
  readonly #allowed = new Map<string, Remembered>();
  readonly #refused = new Map<string, Remembered>();
  /** Questions under way. */
  readonly #asking = new Map<string, Promise<Refusal | undefined>>();
  /** How many of them are about tokens that were not let in before. */
  #strangers = 0;

  constructor({ client, now = () => performance.now() }: ScrapeAccessOptions) {
    this.#client = client;
    this.#now = now;
  }

  /** Judges the header Authorization of a scrape; undefined: it may go on. Does not reject. */
  async refusal(authorization: string | undefined): Promise<Refusal | undefined> {
    const token = BEARER.exec(authorization ?? '')?.[1];
    if (token === undefined)
      return { status: 401, text: 'send the token of a service account: Authorization: Bearer TOKEN' };
    const key = createHash('sha256').update(token).digest('base64');
    for (const memory of [this.#allowed, this.#refused]) {
      const known = memory.get(key);
      if (known !== undefined && known.until > this.#now()) return known.refusal;
    }
    const asking = this.#asking.get(key);
    if (asking !== undefined) return asking;
    // There are few tokens that were let in, even where the allowance has ended: they need no limit.
    const stranger = this.#allowed.has(key) ? 0 : 1;
    if (stranger > 0 && this.#strangers >= MOST_QUESTIONS)
      return { status: 429, text: 'too many tokens are being looked at; try again' };
    this.#strangers += stranger;
    const answer = this.#ask(key, token).finally(() => {
      this.#asking.delete(key);
      this.#strangers -= stranger;
    });
    this.#asking.set(key, answer);
    return answer;
  }

  async #ask(key: string, token: string): Promise<Refusal | undefined> {
    let refusal: Refusal | undefined;
    try {
      refusal = await this.#judge(token);
    } catch (error) {
      const why = clipped(messageOf(error), LONGEST_TEXT);
      return { status: 503, text: `the API server cannot be asked who may read metrics: ${why}` };
    }
    const [memory, other] = refusal === undefined ? [this.#allowed, this.#refused] : [this.#refused, this.#allowed];
    other.delete(key);
    memory.delete(key);
    memory.set(key, { until: this.#now() + (refusal === undefined ? ALLOWED_MS : REFUSED_MS), refusal });
    // The longest known; its token is asked for again.
    for (const oldest of memory.keys()) if (memory.size > MOST_REMEMBERED) memory.delete(oldest);
    return refusal;
  }

  async #judge(token: string): Promise<Refusal | undefined> {
    const { authenticated, user } = members(await this.#client.review('TokenReview', { token }));
    const { username, uid, groups, extra } = members(user);
    if (authenticated !== true || typeof username !== 'string' || username === '')
      return { status: 401, text: 'the API server does not know this token, or not any more' };
    const nonResourceAttributes = { path: '/metrics', verb: 'get' };
    const { allowed, denied } = members(
      await this.#client.review('SubjectAccessReview', { user: username, uid, groups, extra, nonResourceAttributes }),
    );
    if (allowed === true && denied !== true) return undefined;
    const who = clipped(username, LONGEST_TEXT);
    return { status: 403, text: `${who} may not get /metrics: bind ClusterRole weir-metrics-reader to it` };
  }
}

function members(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
}
