/**
 * What the agent says, in force. After a connect the agent says all that it has, and then `complete`: what it had said before and did not say again is gone
 * then, and not earlier.
 */
import type { StateDB } from '@weir/statedb';
import type { ToProxy } from '../protocol.ts';
import type { Names } from './names.ts';
import { listenerOf, numberKey, type ProxyTables } from './tables.ts';

export interface RulesOptions {
  readonly db: StateDB;
  readonly tables: ProxyTables;
  readonly names: Names;
}

/** What is kept until it is said to be gone. */
export type Rule = Extract<ToProxy, { readonly type: 'listener' | 'endpoint' | 'selector' | 'identity' }>;

export class Rules {
  readonly #options: RulesOptions;

  constructor(options: RulesOptions) {
    this.#options = options;
  }

  /** Puts a message in force. Yields between pieces of the work. */
  *apply(message: ToProxy): Generator<void> {
    const { db, tables, names } = this.#options;
    switch (message.type) {
      case 'listener': {
        const { listener } = message;
        db.write([tables.listeners], (txn) => txn.upsert(tables.listeners, listenerOf(listener, message.names)));
        return;
      }
      case 'listener-gone':
        db.write([tables.listeners], (txn) => txn.delete(tables.listeners, numberKey(message.listener)));
        return;
      case 'endpoint': {
        const { endpoint, addresses } = message;
        db.write([tables.endpoints], (txn) => txn.upsert(tables.endpoints, { endpoint, addresses }));
        return;
      }
      case 'endpoint-gone':
        db.write([tables.endpoints], (txn) => txn.delete(tables.endpoints, numberKey(message.endpoint)));
        yield* names.forgetEndpoint(message.endpoint);
        return;
      case 'selector':
        yield* names.select(message.selector, message.pattern);
        return;
      case 'selector-gone':
        yield* names.select(message.selector, undefined);
        return;
      case 'identity':
        yield* names.identify(message.identity, message.selectors);
        return;
      case 'identity-gone':
        yield* names.identify(message.identity, undefined);
        return;
      case 'forget':
        yield* names.forget(message.pattern);
        return;
      case 'complete':
        return;
    }
  }

  /** All that is in force, as messages that say it. */
  *all(): Generator<Rule> {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    for (const { listener, names } of snapshot.all(tables.listeners)) yield { type: 'listener', listener, names };
    for (const { endpoint, addresses } of snapshot.all(tables.endpoints))
      yield { type: 'endpoint', endpoint, addresses };
    for (const { selector, pattern } of snapshot.all(tables.selectors)) yield { type: 'selector', selector, pattern };
    for (const { identity, selectors } of snapshot.all(tables.identities))
      yield { type: 'identity', identity, selectors };
  }
}

/** Tells rules apart: `listener 3`. */
export function ruleKey(rule: Rule): string {
  switch (rule.type) {
    case 'listener':
      return `listener ${rule.listener}`;
    case 'endpoint':
      return `endpoint ${rule.endpoint}`;
    case 'selector':
      return `selector ${rule.selector}`;
    case 'identity':
      return `identity ${rule.identity}`;
  }
}

export function goneOf(rule: Rule): ToProxy {
  switch (rule.type) {
    case 'listener':
      return { type: 'listener-gone', listener: rule.listener };
    case 'endpoint':
      return { type: 'endpoint-gone', endpoint: rule.endpoint };
    case 'selector':
      return { type: 'selector-gone', selector: rule.selector };
    case 'identity':
      return { type: 'identity-gone', identity: rule.identity };
  }
}

export function isRule(message: ToProxy): message is Rule {
  return ['listener', 'endpoint', 'selector', 'identity'].includes(message.type);
}
