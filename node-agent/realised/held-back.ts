import { type LabelMap, labelsKey, matches } from '@weir/labels';
import type { Reader, StateDB } from '@weir/statedb';
import type { Held, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { Model } from '../derive/index.ts';
import type { EarlierReportRow, PolicyRow } from '../tables.ts';
import { type Fault, generationsOf } from './policy-failures.ts';

export interface HeldBackOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'policies' | 'peerSets' | 'identities' | 'endpoints' | 'earlierReport'>;
  readonly model: Model;
}

/** What this node said before its start; undefined: nothing. */
export function earlierReport(
  reader: Reader,
  { earlierReport: table }: Pick<Tables, 'earlierReport'>,
): EarlierReportRow | undefined {
  const [row] = reader.all(table);
  return row;
}

/**
 * Policies of which the kernel has another generation, as this node said before; and those that it never said, of endpoints found there. Where that
 * lasts, all that it said.
 */
export function heldBackFaults(options: HeldBackOptions, { reason, message, lasting }: Held): Fault[] {
  const { db, tables } = options;
  using snapshot = db.read();
  const earlier = earlierReport(snapshot, tables);
  if (earlier === undefined) return [];
  const found = foundLabels(options, snapshot);
  const selects = ({ rules }: PolicyRow): boolean =>
    rules.some(({ subject }) => {
      const selector = snapshot.get(tables.peerSets, subject)?.selector;
      // Whom it selects is not known: it may be somebody here.
      return selector === undefined ? lasting : found.some((labels) => matches(selector, labels));
    });
  const held = [...snapshot.all(tables.policies)].filter((row) => {
    const said = earlier.policies[row.uid]?.generation;
    return said === undefined ? selects(row) : lasting || said !== row.generation;
  });
  // Whether they are still there is not known.
  const unread =
    lasting && !snapshot.initialised(tables.policies)
      ? Object.entries(earlier.policies).flatMap(([uid, { generation }]) =>
          snapshot.has(tables.policies, uid) ? [] : { uid, generation },
        )
      : [];
  return [...held, ...unread].map((policy) => ({ of: generationsOf([policy]), reason, message }));
}

/** The labels of endpoints that the kernel had at start, of each label set once. */
function foundLabels({ model, tables }: HeldBackOptions, reader: Reader): readonly LabelMap[] {
  const sets = new Map<string, LabelMap>();
  for (const { id, labels: own } of reader.all(tables.endpoints)) {
    const found = model.asFound(id);
    const labels =
      own ??
      (found === undefined ? undefined : reader.get(tables.identities, tableKey.identity(found.identity))?.labels);
    if (found !== undefined && labels !== undefined) sets.set(labelsKey(labels), labels);
  }
  return [...sets.values()];
}
