/**
 * Leader election on a Lease.
 *
 * Guarantees: at most one elector believes it leads, as long as clocks run at about the same speed (their readings may
 * differ: another's lease is judged by how long *we* have seen it unchanged). A leader that cannot renew within
 * `renewDeadlineMs` (shorter than the lease) stops leading before anybody else may start, also when its process was frozen
 * meanwhile: `fence` goes by the clock at every write, not by a timer that may come late. A lease that somebody deletes while another holds it is
 * not taken before it would have expired, by those who have seen it. stop() releases the lease, so that the next leader need not wait.
 */
import { delay } from '@weir/process/delay';
import { messageOf } from '@weir/process/errors';
import { ApiError, LeadershipLostError } from './errors.ts';
import type { Lease } from './kubernetes-objects.ts';
import { resources } from './resources.ts';
import type { FencingClient, KubeClient, WriteFence } from './types.ts';

export interface LeaderElectorOptions {
  readonly client: Pick<FencingClient, 'within'>;
  readonly namespace: string;
  readonly name: string;
  /** Unique for each process: pod name plus something random. */
  readonly identity: string;
  /** Milliseconds; more than `renewDeadlineMs`. Default 4_000: another leads at most 5 s after one that was killed. */
  readonly leaseDurationMs?: number;
  /** Milliseconds. Default 3_000. */
  readonly renewDeadlineMs?: number;
  /** Milliseconds between attempts, jittered. Default 700. Each is one request: the leader writes, the others read. */
  readonly retryPeriodMs?: number;
  /** Called once when leadership is won. */
  readonly onElected: () => void;
  /** Called once when leadership is lost, but not by stop(). The elector has ended: who wants to lead again makes a new one. */
  readonly onLost: (error: LeadershipLostError) => void;
  /** Another (or this) process is seen to lead. */
  readonly onLeader?: (identity: string) => void;
  readonly onError?: (error: Error) => void;
  /** Milliseconds of a clock that never goes back. Default performance.now. */
  readonly now?: () => number;
}

export class LeaderElector {
  readonly #options: LeaderElectorOptions;
  readonly #leaseMs: number;
  readonly #deadlineMs: number;
  readonly #retryMs: number;
  readonly #now: () => number;
  /** Each request may take half of the time that a leader has: one that hangs must not hide that the deadline has passed. */
  readonly #client: KubeClient;
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;
  readonly #lost = new AbortController();
  #expiry: NodeJS.Timeout | undefined;
  #leading = false;
  /** When the request that renewed the lease last was begun. */
  #renewedAt = 0;
  #lease: Lease | undefined;
  /** What was written last, as long as nothing speaks against its being the newest. */
  #own: Lease | undefined;
  /** What we saw last of the lease, and when we saw it first. */
  #seen = { record: '', at: 0 };
  #announced = '';
  /** When the API server last answered for the lease; undefined: never. */
  #reachedAt: number | undefined;
  /** Why it did not, the last time. */
  #failure: unknown;

  constructor(options: LeaderElectorOptions) {
    this.#options = options;
    this.#leaseMs = options.leaseDurationMs ?? 4_000;
    this.#deadlineMs = options.renewDeadlineMs ?? 3_000;
    this.#retryMs = options.retryPeriodMs ?? 700;
    this.#now = options.now ?? (() => performance.now());
    if (this.#deadlineMs >= this.#leaseMs || this.#retryMs >= this.#deadlineMs) {
      throw new RangeError(
        `leader election needs retryPeriodMs < renewDeadlineMs < leaseDurationMs, not ${this.#retryMs}, ${this.#deadlineMs}, ${this.#leaseMs}`,
      );
    }
    if (options.identity === '')
      throw new RangeError('leader election needs an identity: a lease without a holder is free');
    this.#client = options.client.within(this.#deadlineMs / 2);
  }

  get leading(): boolean {
    return this.#leading && this.#leftMs() > 0;
  }

  /**
   * Why this elector could not lead if the lease were free: the lease has not been reached, from the start or for longer than a
   * leader may be without it. Undefined: it could.
   */
  get unreached(): string | undefined {
    const forMs = this.#reachedAt === undefined ? undefined : this.#now() - this.#reachedAt;
    if (forMs !== undefined && forMs <= this.#deadlineMs) return undefined;
    const since = forMs === undefined ? 'yet' : `for ${Math.floor(forMs / 1000)} s`;
    const why = this.#failure === undefined ? '' : `: ${messageOf(this.#failure)}`;
    return `lease ${this.#options.namespace}/${this.#options.name} has not been reached ${since}${why}`;
  }

  /** For `KubeClient.fenced`: lets writes through while this elector leads, and ends those under way when it leads no more. */
  get fence(): WriteFence {
    return {
      signal: this.#lost.signal,
      check: () => {
        if (this.leading) return;
        this.#lose();
        throw this.#error();
      },
    };
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  /** Ends the election and keeps the lease, which expires: the fence lets writes through until then. */
  async abandon(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  /** Ends the election and releases the lease when it is ours. */
  async stop(): Promise<void> {
    await this.abandon();
    clearTimeout(this.#expiry);
    // The request that took it may have been under way.
    const ours = !this.#lost.signal.aborted && !this.#heldByOther() && this.#leftMs() > 0;
    this.#leading = false;
    // Nothing is written after it is given back.
    this.#lost.abort(this.#error());
    const lease = this.#lease;
    if (!ours || (lease?.spec?.holderIdentity ?? '') === '' || lease === undefined) return;
    try {
      await this.#client.replace(resources.Lease, {
        ...lease,
        spec: { ...lease.spec, holderIdentity: '', leaseDurationSeconds: 1, renewTime: timestamp() },
      });
    } catch (error) {
      // The lease then simply expires.
      this.#report(error);
    }
  }

  async #run(): Promise<void> {
    const ended = AbortSignal.any([this.#stop.signal, this.#lost.signal]);
    while (!ended.aborted) {
      const began = this.#now();
      const held = await this.#attempt();
      // Meanwhile the timer may have come, or a write may have found the lease expired: what was lost stays lost.
      if (this.#leading && (this.#leftMs() <= 0 || (!held && this.#heldByOther()))) this.#lose();
      // Counted from before the request: the lease may have been written at any time since then.
      if (held && !this.#lost.signal.aborted) this.#renewedAt = began;
      if (ended.aborted && !this.#leading) return;
      if (held) {
        if (!this.#leading && this.#leftMs() > 0) {
          this.#leading = true;
          this.#awaitExpiry();
          this.#options.onElected();
        }
      }
      const jittered = this.#retryMs * (0.8 + Math.random() * 0.4);
      const left = this.#leading ? Math.max(0, this.#leftMs()) : this.#untilExpiry(jittered);
      await delay(Math.min(jittered, left), ended);
    }
  }

  /** Milliseconds until we must not write any more. */
  #leftMs(): number {
    return this.#renewedAt + this.#deadlineMs - this.#now();
  }

  /** An attempt to renew may last longer than the lease: it is not waited for. */
  #awaitExpiry(): void {
    this.#expiry = setTimeout(
      () => {
        if (this.#leftMs() > 0) this.#awaitExpiry();
        else this.#lose();
      },
      Math.max(1, this.#leftMs()),
    );
  }

  #lose(): void {
    clearTimeout(this.#expiry);
    if (!this.#leading) return;
    this.#leading = false;
    const error = this.#error();
    this.#lost.abort(error);
    if (!this.#stop.signal.aborted) this.#options.onLost(error);
  }

  #error(): LeadershipLostError {
    return new LeadershipLostError(
      `lease ${this.#options.namespace}/${this.#options.name} was not renewed within ${this.#deadlineMs} ms: another replica may lead now`,
    );
  }

  /** Milliseconds until another's lease has expired; `otherwise` where there is none, or it has. */
  #untilExpiry(otherwise: number): number {
    const left = this.#lease === undefined ? 0 : this.#seen.at + durationOf(this.#lease, this.#leaseMs) - this.#now();
    return left > 0 ? Math.ceil(left) + 1 : otherwise;
  }

  /** One try to take or renew the lease. False: not ours, or not known. */
  async #attempt(): Promise<boolean> {
    const { namespace, name } = this.#options;
    try {
      if (await this.#renew()) return true;
      let lease: Lease;
      try {
        lease = await this.#client.get(resources.Lease, name, namespace);
      } catch (error) {
        if (!(error instanceof ApiError && error.notFound)) throw error;
        this.#reachedAt = this.#now();
        if (this.#lease !== undefined && this.#isAnothers(this.#lease)) return false;
        this.#accept(await this.#client.create(resources.Lease, this.#claim(undefined)));
        return true;
      }
      this.#observe(lease);
      if (this.#isAnothers(lease)) return false;
      this.#accept(await this.#client.replace(resources.Lease, this.#claim(lease)));
      return true;
    } catch (error) {
      // A conflict means that somebody else was faster: the next look tells who.
      if (error instanceof ApiError && error.conflict) {
        this.#reachedAt = this.#now();
        return false;
      }
      this.#failure = error;
      this.#report(error);
      return false;
    }
  }

  /** The leader writes what it has written last, anew, without a look. False: that is not the newest any more, or not known. */
  async #renew(): Promise<boolean> {
    const own = this.#own;
    this.#own = undefined;
    if (own === undefined || !this.#leading) return false;
    try {
      this.#accept(await this.#client.replace(resources.Lease, this.#claim(own)));
      return true;
    } catch (error) {
      if (error instanceof ApiError && (error.conflict || error.notFound)) return false;
      throw error;
    }
  }

  #claim(lease: Lease | undefined): Lease {
    const { namespace, name, identity } = this.#options;
    const now = timestamp();
    const ours = lease?.spec?.holderIdentity === identity;
    return {
      ...lease,
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: lease?.metadata ?? { name, namespace },
      spec: {
        holderIdentity: identity,
        leaseDurationSeconds: Math.max(1, Math.ceil(this.#leaseMs / 1000)),
        acquireTime: ours ? (lease.spec?.acquireTime ?? now) : now,
        renewTime: now,
        leaseTransitions: (lease?.spec?.leaseTransitions ?? 0) + (ours || lease === undefined ? 0 : 1),
      },
    };
  }

  #accept(lease: Lease): void {
    this.#own = lease;
    this.#observe(lease);
  }

  #observe(lease: Lease): void {
    this.#lease = lease;
    this.#reachedAt = this.#now();
    const record = JSON.stringify([lease.spec?.holderIdentity, lease.spec?.renewTime, lease.spec?.leaseTransitions]);
    if (record !== this.#seen.record) this.#seen = { record, at: this.#now() };
    const holder = lease.spec?.holderIdentity ?? '';
    if (holder !== '' && holder !== this.#announced) {
      this.#announced = holder;
      this.#options.onLeader?.(holder);
    }
  }

  /** Whether another holds it, and may lead still. */
  #isAnothers(lease: Lease): boolean {
    const holder = lease.spec?.holderIdentity ?? '';
    if (holder === '' || holder === this.#options.identity) return false;
    return this.#now() - this.#seen.at <= durationOf(lease, this.#leaseMs);
  }

  #heldByOther(): boolean {
    const holder = this.#lease?.spec?.holderIdentity ?? '';
    return holder !== '' && holder !== this.#options.identity;
  }

  #report(error: unknown): void {
    this.#options.onError?.(error instanceof Error ? error : new Error(String(error)));
  }
}

/** Milliseconds. */
function durationOf(lease: Lease, otherwise: number): number {
  const seconds = lease.spec?.leaseDurationSeconds;
  return seconds === undefined ? otherwise : seconds * 1000;
}

/** RFC 3339 with microseconds, as metav1.MicroTime wants it. */
function timestamp(): string {
  return new Date().toISOString().replace(/Z$/, '000Z');
}
