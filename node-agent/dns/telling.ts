/** What a proxy is told over one connection: all that tables have, and then what changes. */
import type { Socket } from 'node:net';
import { type Change, type ChangeStream, keys } from '@weir/statedb';
import type { Core, NodeNumber } from '../core.ts';
import type { EndpointRow, NameIdentityRow } from '../tables.ts';
import type { ToProxy } from './protocol.ts';

/** A proxy that has not read more than this is cut off: after the next connect it is told all. */
const MOST_UNREAD_BYTES = 64 << 20;

export type TellingCore = Pick<Core, 'db' | 'tables' | 'numbers' | 'policyRevision' | 'waitPolicyRevision'>;

export class Telling implements Disposable {
  readonly #core: TellingCore;
  readonly #socket: Socket;
  readonly #numbers: ChangeStream<NodeNumber>;
  readonly #endpoints: ChangeStream<EndpointRow>;
  readonly #identities: ChangeStream<NameIdentityRow>;

  constructor(core: TellingCore, socket: Socket) {
    const { db, tables, numbers } = core;
    this.#core = core;
    this.#socket = socket;
    this.#numbers = db.changes(numbers.table, { name: 'dns-listeners' });
    this.#endpoints = db.changes(tables.endpoints, { name: 'dns-endpoints' });
    this.#identities = db.changes(tables.nameIdentities, { name: 'dns-identities' });
  }

  [Symbol.dispose](): void {
    for (const stream of [this.#numbers, this.#endpoints, this.#identities]) stream[Symbol.dispose]();
  }

  async all(signal: AbortSignal): Promise<void> {
    // What the proxy is not told is gone: so not before it is known what there is, and the kernel has it.
    await this.#realised(signal);
    await this.#step(signal);
    this.#say([{ type: 'complete' }]);
  }

  async changes(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const waiting = new AbortController();
      const either = AbortSignal.any([signal, waiting.signal]);
      const watches = [this.#numbers, this.#endpoints, this.#identities].map((stream) => stream.watch().wait(either));
      try {
        await Promise.race(watches);
      } finally {
        waiting.abort();
        await Promise.allSettled(watches);
      }
      await this.#step(signal);
    }
  }

  async #step(signal: AbortSignal): Promise<void> {
    if (this.#socket.writableLength > MOST_UNREAD_BYTES) throw new Error('it does not read what it is told');
    this.#say(this.#numbers.next().flatMap(listenerMessages));
    this.#say(this.#endpoints.next().map(endpointMessage));
    const identities = this.#identities.next();
    if (identities.length === 0) return;
    this.#say(identities.flatMap(selectorMessages));
    // An address may have it once the kernel has rows of it.
    await this.#realised(signal);
    this.#say(identities.flatMap((change) => this.#identityMessages(change)));
  }

  async #realised(signal: AbortSignal): Promise<void> {
    await this.#core.waitPolicyRevision(this.#core.policyRevision(), signal);
  }

  #identityMessages({ row: { identity, patterns }, deleted }: Change<NameIdentityRow>): readonly ToProxy[] {
    if (deleted) return [{ type: 'identity-gone', identity }];
    const { db, tables, numbers } = this.#core;
    using snapshot = db.read();
    // It may be gone again.
    if (snapshot.get(tables.nameIdentities, keys.uint(identity)) === undefined) return [];
    const selectors = patterns.map((pattern) => numbers.names([pattern])).sort((a, b) => a - b);
    return [{ type: 'identity', identity, selectors }];
  }

  #say(messages: readonly ToProxy[]): void {
    if (messages.length > 0) this.#socket.write(messages.map((message) => `${JSON.stringify(message)}\n`).join(''));
  }
}

function listenerMessages({ row: { kind, id: listener, name }, deleted }: Change<NodeNumber>): readonly ToProxy[] {
  if (kind !== 'listener') return [];
  return [deleted ? { type: 'listener-gone', listener } : { type: 'listener', listener, names: patternsIn(name) }];
}

/** The identity of a pattern alone is the pattern's number, too. */
function selectorMessages({ row: { identity, patterns }, deleted }: Change<NameIdentityRow>): readonly ToProxy[] {
  const [pattern] = patterns;
  if (patterns.length !== 1 || pattern === undefined) return [];
  return [deleted ? { type: 'selector-gone', selector: identity } : { type: 'selector', selector: identity, pattern }];
}

function endpointMessage({ row: { id, addresses, gone }, deleted }: Change<EndpointRow>): ToProxy {
  return deleted || gone !== undefined
    ? { type: 'endpoint-gone', endpoint: id }
    : { type: 'endpoint', endpoint: id, addresses };
}

function patternsIn(text: string): readonly string[] {
  return text === '' ? [] : text.split(' ');
}
