import { join } from 'node:path';
import { ROOT } from '../cluster/run.ts';

const CONFINE = join(ROOT, 'test/seccomp/confine.ts');

export const profileOf = (component: 'agent' | 'operator'): string =>
  join(ROOT, `charts/weir/files/seccomp/${component}.json`);

/** The command that runs Node with these arguments under the chart's seccomp profile of a component. */
export function confined(component: 'agent' | 'operator', args: readonly string[]): [string, ...string[]] {
  return [
    process.execPath,
    '--disable-warning=ExperimentalWarning',
    CONFINE,
    profileOf(component),
    process.execPath,
    ...args,
  ];
}
