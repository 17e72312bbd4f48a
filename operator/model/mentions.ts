/**
 * Of which policies the nodes' reports speak: found in as much time as what a report says anew takes. Policies that a report names before they
 * exist are not among them: a node can make up as many as it may name. Those that have gone are, as long as it names them.
 */
import { keys, query, type Reader, type WriteTxn } from '@weir/statedb';
import type { PolicyBook, PolicyEntry } from './policy-book.ts';
import type { CountedReport, Mention, StatusTables } from './status-tables.ts';

/** Uids of one policy key that are kept of a report: with two, one is another than the policy's own. */
const UIDS_OF_KEY = 2;

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
    if (txn.count(countedReports) === 0) txn.upsert(acquainted, { uid, key });
  }

  /** Notes the reports that speak of a policy and were counted before it was known. */
  acquaint(txn: WriteTxn, { row: { key, uid } }: PolicyEntry): void {
    const { acquainted, countedReports, strangers } = this.#tables;
    if (txn.has(acquainted, uid)) return;
    this.forget(txn, key);
    txn.upsert(acquainted, { uid, key });
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
    for (const { uid } of [...txn.list(acquainted, 'key', key)]) txn.delete(acquainted, uid);
  }

  #of(reader: Reader, node: string): Iterable<Mention> {
    return reader.prefix(this.#tables.mentions, keys.join(node));
  }

  #note(txn: WriteTxn, node: string, uid: string, change: Partial<Mention>): void {
    const { mentions } = this.#tables;
    const before = txn.get(mentions, keys.join(node, uid)) ?? { node, uid, says: false, key: undefined };
    txn.upsert(mentions, { ...before, ...change });
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
