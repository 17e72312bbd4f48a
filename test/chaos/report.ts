import type { ChaosReport } from './run.ts';

/** Whether everything was right. */
export const passed = ({ wrongAllows, wrongDrops, unsettled }: ChaosReport): boolean =>
  wrongAllows === 0 && wrongDrops === 0 && unsettled.length === 0;

const counted = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, count]) => `${name} ${count}`)
    .join(', ');

export function print(report: ChaosReport): string {
  const { packets, actions, effects } = report;
  const total = Object.values(actions).reduce((sum, count) => sum + count, 0);
  return [
    ...report.findings.map(({ text }) => `${text}\n`),
    ...report.unsettled,
    `seed ${report.seed}: ${report.rounds} rounds, ${report.calms} times calm, ${total} actions, ${report.kills} kills`,
    `  played: ${counted(actions)}`,
    `  took place: ${counted(effects)}`,
    ...(report.vain.length === 0 ? [] : [`  without effect: ${report.vain.join(', ')}`]),
    `  packets that had to arrive ${packets.arrive}, had not to ${packets['not arrive']}, either ${packets.either}, exempt ${packets.exempt}`,
    `  wrong allows ${report.wrongAllows}, wrong drops ${report.wrongDrops}, not settled ${report.unsettled.length}`,
    passed(report)
      ? '  all right'
      : `  again: npm run chaos -- cluster --minutes ${report.minutes} --seed ${report.seed}`,
  ].join('\n');
}
