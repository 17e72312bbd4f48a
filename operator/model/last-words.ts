import type { NodeReportRow } from '../types.ts';
import type { CountedReport } from './status-tables.ts';

/**
 * A report that does not say how far the node is, with what it does not name as the node said it before. Of what such reports said before it only
 * that counts which the last report named that did say it: a node that names other policies each time adds nothing.
 */
export function withLastWords(row: NodeReportRow, before: CountedReport): CountedReport {
  const { base = before } = before;
  const kept = <T>(said: Readonly<Record<string, T>>, isNamed: (uid: string) => boolean): Record<string, T> =>
    Object.fromEntries(Object.entries(said).filter(([uid]) => names(base, uid) && !isNamed(uid)));
  const said = Object.fromEntries(
    [...Object.keys(row.generations), ...Object.keys(row.failures)].map((uid) => [uid, true as const]),
  );
  const lost = before.lost === true || Object.keys(said).length === 0;
  return {
    ...row,
    policyVersion: before.policyVersion,
    generations: { ...kept(before.generations, () => false), ...row.generations },
    policyKeys: { ...kept(before.policyKeys, () => false), ...row.policyKeys },
    failures: { ...kept(before.failures, (uid) => Object.hasOwn(said, uid)), ...row.failures },
    ...(lost ? { lost, said: { ...kept(before.said ?? {}, () => false), ...said } } : {}),
    base,
  };
}

function names({ generations, policyKeys, failures }: NodeReportRow, uid: string): boolean {
  return [generations, policyKeys, failures].some((said) => Object.hasOwn(said, uid));
}
