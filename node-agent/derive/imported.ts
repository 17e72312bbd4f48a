import { createHash } from 'node:crypto';
import { compareText, type LabelSelector, matches } from '@weir/labels';
import { type ParseResult, parseBareRules, resolve, type SelectorHash } from '@weir/policy';
import type { ChangeStream, StateDB, WriteTxn } from '@weir/statedb';
import type { ImportedRule, Tables } from '../core.ts';
import type { IdentityRow, PeerSetRow, PolicyRow } from '../tables.ts';

const FIRST_COOKIE = 0x80000000;

interface Imported extends ImportedRule {
  readonly uid: string;
  readonly hashes: readonly SelectorHash[];
}

export interface ImportOptions {
  readonly replace?: boolean;
  readonly replaceWithLabels?: readonly string[];
}

/** Rules imported on this node: a policy row each, and the peer sets that they name, kept up to date from the identities. */
export class ImportedRules {
  readonly #db: StateDB;
  readonly #tables: Tables;
  readonly #rules = new Map<string, Imported>();
  readonly #cookies = new Map<number, string>();
  readonly #selectors = new Map<
    SelectorHash,
    { readonly selector: LabelSelector; users: number; readonly members: Set<number>; dirty: boolean }
  >();
  readonly #identities: ChangeStream<IdentityRow>;
  readonly #labels = new Map<number, IdentityRow>();

  constructor(db: StateDB, tables: Tables) {
    this.#db = db;
    this.#tables = tables;
    this.#identities = db.changes(tables.identities, { name: 'imported-rules' });
  }

  /** Parses and puts in force; with any problem that is no warning, nothing changes. */
  import(json: unknown, options: ImportOptions = {}): ParseResult['problems'] {
    const { problems } = parseBareRules(json);
    if (problems.some(({ code }) => code !== 'Warning')) return problems;
    const added = (Array.isArray(json) ? json : [json]).map((element: unknown) => this.#read(element));
    const gone = new Set<string>();
    for (const [uid, rule] of this.#rules) {
      const replaced =
        (options.replace === true && added.some(({ labels }) => labels.length > 0 && carries(rule, labels))) ||
        (options.replaceWithLabels !== undefined &&
          options.replaceWithLabels.length > 0 &&
          carries(rule, options.replaceWithLabels));
      if (replaced && !added.some((each) => each.row.uid === uid)) gone.add(uid);
    }
    this.sync();
    this.#db.write([this.#tables.policies, this.#tables.peerSets], (txn) => {
      for (const { row, labels, json: written, selectors } of added) {
        if (this.#rules.has(row.uid)) continue;
        this.#rules.set(row.uid, { uid: row.uid, labels, json: written, hashes: [...selectors.keys()] });
        for (const rule of row.rules) this.#cookies.set(rule.cookie, row.uid);
        for (const [hash, selector] of selectors) this.#need(hash, selector);
        txn.upsert(this.#tables.policies, row);
      }
      for (const uid of gone) this.#remove(txn, uid);
      this.#writeSets(txn);
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
    this.#db.write([this.#tables.policies, this.#tables.peerSets], (txn) => {
      for (const { uid } of gone) this.#remove(txn, uid);
      this.#writeSets(txn);
    });
    return gone.length;
  }

  /** Takes in identity changes, and puts back sets that the cluster has dropped. Cheap when nothing is to do. */
  sync(): void {
    for (const { row, deleted } of this.#identities.next()) {
      if (deleted) this.#labels.delete(row.id);
      else this.#labels.set(row.id, row);
      for (const set of this.#selectors.values()) {
        const member = !deleted && row.id < 0x03000000 && matches(set.selector, row.labels);
        if (member === set.members.has(row.id)) continue;
        if (member) set.members.add(row.id);
        else set.members.delete(row.id);
        set.dirty = true;
      }
    }
    if (this.#selectors.size === 0) return;
    using snapshot = this.#db.read();
    for (const [hash, set] of this.#selectors) if (!snapshot.has(this.#tables.peerSets, hash)) set.dirty = true;
    if ([...this.#selectors.values()].some((set) => set.dirty)) {
      this.#db.write([this.#tables.peerSets], (txn) => this.#writeSets(txn));
    }
  }

  dispose(): void {
    this.#identities[Symbol.dispose]();
  }

  #read(json: unknown): {
    row: PolicyRow;
    labels: readonly string[];
    json: unknown;
    selectors: ReadonlyMap<SelectorHash, LabelSelector>;
  } {
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
    return { row, labels, json, selectors: resolved.selectors };
  }

  /** The same for the same rule on every start, unless two rules' hashes meet. */
  #cookie(uid: string, element: number): number {
    const hash = createHash('sha1').update(`${uid}/${element}`).digest().readUInt32BE(0) & 0x7fffffff;
    for (let step = 0; ; step += 1) {
      const cookie = FIRST_COOKIE + ((hash + step) % 0x80000000);
      const owner = this.#cookies.get(cookie);
      if (owner === undefined || owner === uid) return cookie;
    }
  }

  #need(hash: SelectorHash, selector: LabelSelector): void {
    const known = this.#selectors.get(hash);
    if (known) {
      known.users += 1;
      return;
    }
    const members = new Set<number>();
    for (const [id, row] of this.#labels) if (id < 0x03000000 && matches(selector, row.labels)) members.add(id);
    this.#selectors.set(hash, { selector, users: 1, members, dirty: true });
  }

  #remove(txn: WriteTxn, uid: string): void {
    const rule = this.#rules.get(uid);
    if (rule === undefined) return;
    this.#rules.delete(uid);
    for (const [cookie, owner] of this.#cookies) if (owner === uid) this.#cookies.delete(cookie);
    txn.delete(this.#tables.policies, uid);
    for (const hash of rule.hashes) {
      const set = this.#selectors.get(hash);
      if (set === undefined) continue;
      set.users -= 1;
      if (set.users > 0) continue;
      this.#selectors.delete(hash);
      if (txn.get(this.#tables.peerSets, hash)?.origin === 'local') txn.delete(this.#tables.peerSets, hash);
    }
  }

  #writeSets(txn: WriteTxn): void {
    for (const [hash, set] of this.#selectors) {
      if (!set.dirty) continue;
      set.dirty = false;
      if (txn.get(this.#tables.peerSets, hash)?.origin === 'cluster') continue;
      const identities = [...set.members].sort((a, b) => a - b);
      const row: PeerSetRow = { hash, selector: set.selector, identities, origin: 'local' };
      txn.upsert(this.#tables.peerSets, row);
    }
  }
}

function carries(rule: ImportedRule, labels: readonly string[]): boolean {
  return labels.every((label) => rule.labels.includes(label));
}
