import { createHash } from 'node:crypto';
import { compareText, type LabelSelector } from '@weir/labels';
import { type ParseResult, parseBareRules, resolve, type SelectorHash } from '@weir/policy';
import { type Key, keys, type StateDB, type WriteTxn } from '@weir/statedb';
import type { ImportedRule, Tables } from '../core.ts';
import type { PeerSetRow, PolicyRow } from '../tables.ts';
import { Rows } from './working.ts';

const FIRST_COOKIE = 0x80000000;

interface Imported extends ImportedRule {
  /** Rules are listed in the order in which they came. */
  readonly place: number;
  readonly uid: string;
  readonly selectors: ReadonlyMap<SelectorHash, LabelSelector>;
  readonly cookies: readonly number[];
}

/** A rule as it is read, and the row that puts it in force. */
type Added = Omit<Imported, 'place'> & { readonly row: PolicyRow };

export interface ImportOptions {
  readonly replace?: boolean;
  readonly replaceWithLabels?: readonly string[];
}

/** Rules imported on this node: a policy row each, and the peer sets that they name: selectors alone, as labels say who is in them. */
export class ImportedRules {
  readonly #db: StateDB;
  readonly #tables: Tables;
  readonly #rules: Rows<number, Imported>;

  constructor(db: StateDB, tables: Tables) {
    this.#db = db;
    this.#tables = tables;
    this.#rules = new Rows<number, Imported>(
      db,
      {
        name: 'importedRules',
        key: ({ place }) => keys.uint(place),
        indexes: [
          { name: 'uid', unique: true, keys: ({ uid }) => [uid] },
          { name: 'hash', keys: ({ selectors }) => selectors.keys() },
          { name: 'cookie', keys: ({ cookies }) => cookies.map((cookie) => cookieKey(cookie)) },
        ],
      },
      (place) => keys.uint(place),
    );
  }

  /** Parses and puts in force; with any problem that is no warning, nothing changes. */
  import(json: unknown, options: ImportOptions = {}): ParseResult['problems'] {
    const { problems } = parseBareRules(json);
    if (problems.some(({ code }) => code !== 'Warning')) return problems;
    const added = (Array.isArray(json) ? json : [json]).map((element: unknown) => this.#read(element));
    const { replace = false, replaceWithLabels = [] } = options;
    const rules = [...this.#rules.values()];
    const gone = rules.filter((rule) => {
      const replaced =
        (replace && added.some(({ labels }) => labels.length > 0 && carries(rule, labels))) ||
        (replaceWithLabels.length > 0 && carries(rule, replaceWithLabels));
      return replaced && !added.some(({ uid }) => uid === rule.uid);
    });
    this.sync();
    let place = rules.at(-1)?.place ?? 0;
    this.#write((txn) => {
      for (const { row, ...rule } of added) {
        if (known(txn.list(this.#rules.table, 'uid', rule.uid))) continue;
        place += 1;
        txn.insert(this.#rules.table, { ...rule, place });
        txn.upsert(this.#tables.policies, row);
        for (const [hash, selector] of rule.selectors)
          if (!txn.has(this.#tables.peerSets, hash)) txn.insert(this.#tables.peerSets, ownSet(hash, selector));
      }
      for (const rule of gone) this.#remove(txn, rule);
    });
    return problems;
  }

  list(labels: readonly string[] = []): readonly ImportedRule[] {
    return [...this.#rules.values()]
      .filter((rule) => carries(rule, labels))
      .map(({ labels: own, json }) => ({ labels: own, json }));
  }

  /** Deletes rules that carry all the labels; returns how many. */
  delete(labels: readonly string[]): number {
    const gone = [...this.#rules.values()].filter((rule) => carries(rule, labels));
    if (gone.length === 0) return 0;
    this.#write((txn) => {
      for (const rule of gone) this.#remove(txn, rule);
    });
    return gone.length;
  }

  /** Puts back sets that the cluster has dropped. Cheap when nothing is to do. */
  sync(): void {
    if (this.#rules.size === 0) return;
    const { peerSets } = this.#tables;
    using snapshot = this.#db.read();
    const dropped = new Map<SelectorHash, LabelSelector>();
    for (const { selectors } of snapshot.all(this.#rules.table))
      for (const [hash, selector] of selectors) if (!snapshot.has(peerSets, hash)) dropped.set(hash, selector);
    if (dropped.size === 0) return;
    this.#db.write([peerSets], (txn) => {
      for (const [hash, selector] of dropped) txn.upsert(peerSets, ownSet(hash, selector));
    });
  }

  #write(fn: (txn: WriteTxn) => void): void {
    this.#db.write([this.#rules.table, this.#tables.policies, this.#tables.peerSets], fn);
  }

  #read(json: unknown): Added {
    const { rules } = parseBareRules([json]);
    const labels = [...new Set(rules.flatMap((rule) => rule.labels))].sort(compareText);
    const uid = `bare-${createHash('sha1')
      .update(JSON.stringify([labels, json]))
      .digest('hex')
      .slice(0, 20)}`;
    let element = 0;
    const resolved = resolve(rules, { cookieOf: () => this.#cookie(uid, element++) });
    const row: PolicyRow = {
      uid,
      kind: 'BareRules',
      name: labels.length > 0 ? labels.join(',') : uid,
      generation: 1,
      rules: resolved.rules,
    };
    const cookies = resolved.rules.map(({ cookie }) => cookie);
    return { row, uid, labels, json, selectors: resolved.selectors, cookies };
  }

  /** The same for the same rule on every start, unless two rules' hashes meet. */
  #cookie(uid: string, element: number): number {
    const hash = createHash('sha1').update(`${uid}/${element}`).digest().readUInt32BE(0) & 0x7fffffff;
    for (let step = 0; ; step += 1) {
      const cookie = FIRST_COOKIE + ((hash + step) % 0x80000000);
      const [owner] = this.#rules.list('cookie', cookieKey(cookie));
      if (owner === undefined || owner.uid === uid) return cookie;
    }
  }

  #remove(txn: WriteTxn, { place, uid, selectors }: Imported): void {
    const { policies, peerSets } = this.#tables;
    txn.delete(this.#rules.table, this.#rules.keyOf(place));
    txn.delete(policies, uid);
    for (const hash of selectors.keys()) {
      if (known(txn.list(this.#rules.table, 'hash', hash))) continue;
      if (txn.get(peerSets, hash)?.origin === 'local') txn.delete(peerSets, hash);
    }
  }
}

function ownSet(hash: SelectorHash, selector: LabelSelector): PeerSetRow {
  return { hash, selector, identities: [], origin: 'local' };
}

function cookieKey(cookie: number): Key {
  return keys.uint(cookie, 32);
}

function known(rows: Iterable<unknown>): boolean {
  const [row] = rows;
  return row !== undefined;
}

function carries(rule: ImportedRule, labels: readonly string[]): boolean {
  return labels.every((label) => rule.labels.includes(label));
}
