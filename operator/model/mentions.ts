/** Of which policies the nodes' reports speak: found in as much time as what a report says anew takes, and kept only of policies that exist. */
import { keys, query, type Reader, type WriteTxn } from '@weir/statedb';
import type { PolicyBook, PolicyEntry } from './policy-book.ts';
import type { CountedReport, Mention, StatusTables } from './status-tables.ts';

/** Uids of one policy key that are kept of a report: with two, one is another than the policy's own. */
const UIDS_OF_KEY = 2;

/** Mentions that are forgotten in one piece. */
const PIECE = 200;

type Tables = Pick<StatusTables, 'mentions' | 'strangers' | 'countedReports' | 'acquainted'>;

/** Uids by key of the policy that they are said to have. */
type UidsOfKeys = ReadonlyMap<string, readonly string[]>;

export class MentionBook {
  readonly #policies: PolicyBook;
  readonly #tables: Tables;

  constructor(policies: PolicyBook, tables: Tables) {
    this.#policies = policies;
    this.#tables = tables;
  }

  /** Takes a node's report, or that it has none any more. Returns the uids of policies that it speaks of or spoke of. */
  count(txn: WriteTxn, node: string, report: CountedReport | undefined): Set<string> {
    const { countedReports, mentions, strangers } = this.#tables;
    const spoke = new Map(Array.from(this.#of(txn, node), (mention) => [mention.uid, mention]));
    const speaks = report === undefined ? new Map<string, Mention>() : this.#read(txn, report, spoke);
    if (report === undefined) {
      txn.delete(countedReports, node);
      txn.delete(strangers, node);
    } else txn.upsert(countedReports, report);
    for (const uid of spoke.keys()) if (!speaks.has(uid)) txn.delete(mentions, keys.join(node, uid));
    for (const [uid, mention] of speaks) {
      const before = spoke.get(uid);
      if (before?.says !== mention.says || before.key !== mention.key) txn.upsert(mentions, mention);
    }
    return new Set([...spoke.keys(), ...speaks.keys()]);
  }

  /** Uids of policies that the node's report speaks of. */
  of(reader: Reader, node: string): Set<string> {
    return new Set(Array.from(this.#of(reader, node), ({ uid }) => uid));
  }

  /** The policy is known before any report is. */
  isFirst(txn: WriteTxn, { row: { key, uid } }: PolicyEntry): void {
    const { acquainted, countedReports } = this.#tables;
    if (txn.count(countedReports) === 0) txn.upsert(acquainted, { uid, key, gone: false });
  }

  /** Notes the reports that speak of a policy and were counted before it was known. */
  acquaint(txn: WriteTxn, { row: { key, uid } }: PolicyEntry): void {
    const { acquainted, countedReports, strangers } = this.#tables;
    if (txn.get(acquainted, uid)?.gone === false) return;
    this.forget(txn, key);
    txn.upsert(acquainted, { uid, key, gone: false });
    for (const { node, uids } of txn.all(strangers))
      for (const other of uids.get(key) ?? []) this.#note(txn, node, other, { key });
    const naming: string[] = [];
    txn.visit(query.all(countedReports), (report) => {
      if (names(report, uid)) naming.push(report.node);
      return undefined;
    });
    for (const node of naming) this.#note(txn, node, uid, { says: true });
  }

  /** The policy of this key is gone, or another has taken its place. */
  forget(txn: WriteTxn, key: string): void {
    const { acquainted } = this.#tables;
    for (const row of [...txn.list(acquainted, 'key', key)])
      if (!row.gone) txn.upsert(acquainted, { ...row, gone: true });
  }

  /** Whether something is kept of policies that are gone. */
  hasGone(reader: Reader): boolean {
    for (const _ of reader.list(this.#tables.acquainted, 'gone', '')) return true;
    return false;
  }

  /** Forgets some mentions of policies that are gone. False: there is none. */
  forgetNext(txn: WriteTxn): boolean {
    const { acquainted, mentions } = this.#tables;
    const unknown: Mention[] = [];
    let left = PIECE;
    let found = false;
    for (const { uid, key } of txn.list(acquainted, 'gone', '')) {
      found = true;
      for (const { node } of Iterator.from(txn.list(mentions, 'uid', uid)).take(left)) {
        this.#note(txn, node, uid, { says: false });
        left -= 1;
      }
      const keyed = this.#policies.get(txn, key) === undefined ? txn.prefix(mentions, keys.join(key), 'policy') : [];
      for (const mention of Iterator.from(keyed).take(left)) {
        this.#note(txn, mention.node, mention.uid, { key: undefined });
        unknown.push(mention);
        left -= 1;
      }
      if (left === 0) break;
      txn.delete(acquainted, uid);
    }
    this.#estrange(txn, unknown);
    return found;
  }

  /** No policy has the keys of these any more. */
  #estrange(txn: WriteTxn, unknown: readonly Mention[]): void {
    const { strangers } = this.#tables;
    for (const [node, mentions] of Map.groupBy(unknown, (mention) => mention.node)) {
      const uids = new Map(txn.get(strangers, node)?.uids);
      for (const { uid, key = '' } of mentions) uids.set(key, [...new Set([...(uids.get(key) ?? []), uid])]);
      txn.upsert(strangers, { node, uids });
    }
  }

  #of(reader: Reader, node: string): Iterable<Mention> {
    return reader.prefix(this.#tables.mentions, keys.join(node));
  }

  #note(txn: WriteTxn, node: string, uid: string, change: Partial<Mention>): void {
    const { mentions } = this.#tables;
    const before = txn.get(mentions, keys.join(node, uid)) ?? { node, uid, says: false, key: undefined };
    const after = { ...before, ...change };
    if (after.says || after.key !== undefined) txn.upsert(mentions, after);
    else txn.delete(mentions, keys.join(node, uid));
  }

  /** What the report says of policies, by uid. Asks those only for what it says anew. Notes of which keys there is none. */
  #read(txn: WriteTxn, report: CountedReport, spoke: ReadonlyMap<string, Mention>): Map<string, Mention> {
    const { countedReports, strangers } = this.#tables;
    const { node } = report;
    const speaks = new Map<string, Mention>();
    const before = txn.get(countedReports, node);
    for (const said of [report.generations, report.failures]) {
      for (const uid of Object.keys(said)) {
        const isKnown =
          spoke.get(uid)?.says === true || (!names(before, uid) && this.#policies.keyOfUid(txn, uid) !== undefined);
        if (isKnown) speaks.set(uid, { node, uid, says: true, key: undefined });
      }
    }
    const knownKeys = new Set(Array.from(spoke.values(), ({ key }) => key));
    const knownStrangers = txn.get(strangers, node)?.uids;
    const unknown = new Map<string, readonly string[]>();
    for (const [key, uids] of uidsOfKeys(report)) {
      const isKnown =
        knownKeys.has(key) || (knownStrangers?.has(key) !== true && this.#policies.get(txn, key) !== undefined);
      if (!isKnown) unknown.set(key, uids);
      else for (const uid of uids) speaks.set(uid, { node, uid, says: speaks.has(uid), key });
    }
    if (unknown.size > 0) txn.upsert(strangers, { node, uids: unknown });
    else txn.delete(strangers, node);
    return speaks;
  }
}

function uidsOfKeys({ policyKeys }: CountedReport): UidsOfKeys {
  const uids = new Map<string, string[]>();
  for (const [uid, key] of Object.entries(policyKeys)) {
    const same = uids.get(key);
    if (same === undefined) uids.set(key, [uid]);
    else if (same.length < UIDS_OF_KEY) same.push(uid);
  }
  return uids;
}

/** Whether the report says a generation or a failure of the policy. */
function names(report: CountedReport | undefined, uid: string): boolean {
  return report?.generations[uid] !== undefined || report?.failures[uid] !== undefined;
}
