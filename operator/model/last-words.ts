import type { NodeReportRow } from '../types.ts';
import type { CountedReport } from './status-tables.ts';

/** A report that does not say how far the node is, with what it does not name as the node said it before. */
export function withLastWords(row: NodeReportRow, before: CountedReport): CountedReport {
  const named = new Set([...Object.keys(row.generations), ...Object.keys(row.failures)]);
  const said = Object.fromEntries(Array.from(named, (uid) => [uid, true as const]));
  const unnamed = Object.entries(before.failures).filter(([uid]) => !named.has(uid));
  const lost = before.lost === true || named.size === 0;
  return {
    ...row,
    policyVersion: before.policyVersion,
    generations: { ...before.generations, ...row.generations },
    policyKeys: { ...before.policyKeys, ...row.policyKeys },
    failures: { ...Object.fromEntries(unnamed), ...row.failures },
    ...(lost ? { lost, said: { ...before.said, ...said } } : {}),
  };
}
