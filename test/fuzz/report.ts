import type { Hostile } from './hostile.ts';
import type { FuzzReport } from './run.ts';

/** Characters that are printed of one object, and of one sentence. */
const LONGEST = 2_000;

export const passed = ({ findings }: FuzzReport): boolean => findings.length === 0;

export function print(report: FuzzReport): string {
  return [
    ...report.findings.flatMap(({ author, seed, what, objects }) => [
      `found with seed ${seed}, of ${objects.length} objects by a ${author}:`,
      ...what.map((sentence) => `  ${clip(sentence)}`),
      ...objects.map((object) => `  ${clip(described(object))}`),
      `  again: npm run fuzz -- objects --count ${report.count} --seed ${seed}`,
    ]),
    `seed ${report.seed}: ${report.count} objects`,
    ...Object.entries(report.made).map(([kind, count]) => `  ${kind} ${count}`),
    passed(report) ? '  all right' : `  ${report.findings.length} findings`,
  ].join('\n');
}

/** As JSON; `«…»` stands for a value that is too large to print, `§…§` for a uid. */
function described({ kind, namespace, name, body }: Hostile): string {
  return `${kind.name} ${namespace === undefined ? '' : `${namespace}/`}${name} ${JSON.stringify(body)}`;
}

function clip(text: string): string {
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST)}... (${text.length - LONGEST} more characters)`;
}
