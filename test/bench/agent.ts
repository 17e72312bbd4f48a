/** Suite `agent`: what one change costs from input tables to a computed plan, beside computing the same tables from nothing. */
import { NODE_FLAGS } from '../../scripts/images/catalog.ts';
import type { Figure } from './report.ts';
import { own } from './statedb-programs.ts';
import type { Suite } from './suite.ts';

const SMALL = 'small';
/** By what factor a case is larger than the small one. */
const GROWTH: Readonly<Record<string, number>> = { endpoints: 250 / 110, policies: 10, identities: 10 };

/** Milliseconds, or megabytes, of issue 13. */
const GOALS: Readonly<Record<string, number>> = {
  'remote pod p99': 5,
  'identity in sets p99': 5,
  'identity in no set p99': 5,
  'policy edited here p99': 20,
  'policy edited elsewhere p99': 20,
  'CIDR more p99': 20,
  'CIDR beside p99': 20,
  'longest block': 10,
};
const MEMORY_GOALS: Readonly<Record<string, number>> = { 'many policies': 300, identities: 500 };

/** `WEIR_AGENT_CASES`: only these, with commas between them; `quick` is the smallest. */
const DEFAULT_CASES = 'small,endpoints,policies,many policies,identities,cidrs,cidrs beside,ports';

export const agent: Suite = async function* () {
  const measure = own('agent-own.ts', NODE_FLAGS);
  const small = new Map<string, number>();
  for (const name of (process.env.WEIR_AGENT_CASES ?? DEFAULT_CASES).split(',')) {
    const measured = await measure(name);
    const whole = measured.find((each) => each.case === 'from nothing')?.value;
    for (const { case: what, value, unit } of measured) {
      if (name === SMALL) small.set(what, value);
      const goal = what === 'resident set' ? MEMORY_GOALS[name] : (GOALS[what] ?? blockGoal(what));
      const figure: Figure = { case: `${name}: ${what}`, value, unit };
      yield {
        ...figure,
        ...(goal === undefined ? {} : { goal }),
        ...(what.endsWith('p50') && whole !== undefined ? { peer: whole } : {}),
      };
      const before = small.get(what);
      const factor = GROWTH[name];
      if (what.endsWith('p50') && before !== undefined && factor !== undefined) {
        yield {
          case: `${name}: ${what}, growth exponent`,
          value: Math.log(value / before) / Math.log(factor),
          unit: '',
        };
      }
    }
  }
};

function blockGoal(what: string): number | undefined {
  return what.endsWith('longest block') ? GOALS['longest block'] : undefined;
}
