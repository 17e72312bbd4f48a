/** Of which policies the nodes' reports speak: found in as much time as what a report says anew takes, and kept only of policies that exist. */
import { keys, query, type Reader, type WriteTxn } from '@weir/statedb';
import type { PolicyBook, PolicyEntry } from './policy-book.ts';
import type { CountedReport, Mentions, StatusTables } from './status-tables.ts';

/** Uids of one policy key that are kept of a report: with two, one is another than the policy's own. */
const UIDS_OF_KEY = 2;

type Tables = Pick<StatusTables, 'mentions' | 'countedReports' | 'acquainted'>;

export class MentionBook {
  readonly #policies: PolicyBook;
  readonly #tables: Tables;

  constructor(policies: PolicyBook, tables: Tables) {
    this.#policies = policies;
    this.#tables = tables;
  }

  /** Takes a node's report, or that it has none any more. Returns the uids of policies that it speaks of or spoke of. */
  count(txn: WriteTxn, node: string, report: CountedReport | undefined): Set<string> {
    const { countedReports, mentions } = this.#tables;
    const [before, spoke] = [txn.get(countedReports, node), txn.get(mentions, node)];
    const speaks = report === undefined ? undefined : this.#read(txn, report, before, spoke);
    if (report === undefined) txn.delete(countedReports, node);
    else txn.upsert(countedReports, report);
    if (speaks === undefined) txn.delete(mentions, node);
    else txn.upsert(mentions, speaks);
    return new Set([...uidsOf(spoke), ...uidsOf(speaks)]);
  }

  /** Uids of policies that the node's report speaks of. */
  of(reader: Reader, node: string): Set<string> {
    return new Set(uidsOf(reader.get(this.#tables.mentions, node)));
  }

  /** The policy is known before any report is. */
  isFirst(txn: WriteTxn, { row: { key, uid } }: PolicyEntry): void {
    const { acquainted, countedReports } = this.#tables;
    if (txn.count(countedReports) === 0) txn.upsert(acquainted, { uid, key, gone: false });
  }

  /** Notes the reports that speak of a policy and were counted before it was known. */
  acquaint(txn: WriteTxn, { row: { key, uid } }: PolicyEntry): void {
    const { acquainted, countedReports, mentions } = this.#tables;
    if (txn.get(acquainted, uid)?.gone === false) return;
    this.forget(txn, key);
    txn.upsert(acquainted, { uid, key, gone: false });
    for (const speaks of [...txn.list(mentions, 'strangers', '')]) {
      const others = speaks.strangers.get(key);
      if (others === undefined) continue;
      const strangers = new Map(speaks.strangers);
      strangers.delete(key);
      const policyKeys = { ...speaks.policyKeys, ...Object.fromEntries(others.map((other) => [other, key])) };
      txn.upsert(mentions, { ...speaks, policyKeys, strangers });
    }
    const naming: string[] = [];
    txn.visit(query.all(countedReports), (report) => {
      if (names(report, uid)) naming.push(report.node);
      return undefined;
    });
    for (const node of naming) {
      const speaks = txn.get(mentions, node);
      if (speaks?.uids.includes(uid) === false) txn.upsert(mentions, { ...speaks, uids: [...speaks.uids, uid] });
    }
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

  /** Forgets one node's mention of a policy that is gone. False: there is none. */
  forgetNext(txn: WriteTxn): boolean {
    const { acquainted, mentions } = this.#tables;
    const [next] = txn.list(acquainted, 'gone', '');
    if (next === undefined) return false;
    const { uid, key } = next;
    const [naming] = txn.list(mentions, 'uid', uid);
    const [keyed] = this.#policies.get(txn, key) === undefined ? txn.prefix(mentions, keys.join(key), 'policy') : [];
    if (naming !== undefined) txn.upsert(mentions, { ...naming, uids: naming.uids.filter((other) => other !== uid) });
    else if (keyed !== undefined) txn.upsert(mentions, withStranger(keyed, key));
    else txn.delete(acquainted, uid);
    return true;
  }

  /** Asks the policies only for what the report says anew. */
  #read(
    reader: Reader,
    report: CountedReport,
    before: CountedReport | undefined,
    spoke: Mentions | undefined,
  ): Mentions {
    const knownUids = new Set(spoke?.uids);
    const isKnown = (uid: string): boolean =>
      knownUids.has(uid) || (!names(before, uid) && this.#policies.keyOfUid(reader, uid) !== undefined);
    const uids = Object.keys(report.generations).filter(isKnown);
    for (const uid of Object.keys(report.failures))
      if (!Object.hasOwn(report.generations, uid) && isKnown(uid)) uids.push(uid);

    const knownKeys = new Set(Object.values(spoke?.policyKeys ?? {}));
    const hasPolicy = (key: string): boolean =>
      knownKeys.has(key) || (spoke?.strangers.has(key) !== true && this.#policies.get(reader, key) !== undefined);
    const uidsOfKeys = new Map<string, string[]>();
    for (const [uid, key] of Object.entries(report.policyKeys)) {
      const same = uidsOfKeys.get(key);
      if (same === undefined) uidsOfKeys.set(key, [uid]);
      else if (same.length < UIDS_OF_KEY) same.push(uid);
    }
    const [policyKeys, strangers] = [new Map<string, string>(), new Map<string, readonly string[]>()];
    for (const [key, same] of uidsOfKeys) {
      if (hasPolicy(key)) for (const uid of same) policyKeys.set(uid, key);
      else strangers.set(key, same);
    }
    return { node: report.node, uids, policyKeys: Object.fromEntries(policyKeys), strangers };
  }
}

function uidsOf(mentions: Mentions | undefined): string[] {
  return mentions === undefined ? [] : [...mentions.uids, ...Object.keys(mentions.policyKeys)];
}

/** No policy has the key any more. */
function withStranger(mentions: Mentions, key: string): Mentions {
  const [said, others] = [Object.entries(mentions.policyKeys), [] as string[]];
  for (const [uid, of] of said) if (of === key) others.push(uid);
  return {
    ...mentions,
    policyKeys: Object.fromEntries(said.filter(([, of]) => of !== key)),
    strangers: new Map([...mentions.strangers, [key, others]]),
  };
}

/** Whether the report says a generation or a failure of the policy. */
function names(report: CountedReport | undefined, uid: string): boolean {
  return report?.generations[uid] !== undefined || report?.failures[uid] !== undefined;
}
