/** docs/flags.md, from the typed configuration of the programs: what `--help` prints, by part. */
import { variableOf } from '@weir/process/flags';
import type { Option } from 'commander';
import { BASE_FLAGS, VARIABLES } from '../../node-agent/config/config.ts';
import { PROXY_FLAGS, PROXY_VARIABLES } from '../../node-agent/dns/proxy/config.ts';
import { AGENT_PARTS } from '../../node-agent/part-list.ts';
import type { AnyAgentPart } from '../../node-agent/parts/contract.ts';
import { commands } from '../../operator/config.ts';
import { OPERATOR_PARTS } from '../../operator/part-list.ts';

/** The whole page, for an agent of these parts. */
export function flagsPage(parts: readonly AnyAgentPart[] = AGENT_PARTS): string {
  const [run, uninstall] = commands({}, OPERATOR_PARTS, () => {});
  const lines = [
    '# Flags',
    '',
    'Written by `npm run docs` from the configuration of the programs. The chart sets what its values name; `agent.extraArgs`, `operator.extraArgs`',
    'and `agent.extraEnv` give the programs more. A flag that is absent has its default.',
    '',
    '## weir-agent',
    '',
    'Commands: `run` (the default), `cleanup`, `mount-bpffs`. A variable counts where its flag is absent.',
    '',
    '### Every part',
    '',
    ...table(Object.values(BASE_FLAGS), VARIABLES),
  ];
  for (const { name, flags = {} } of parts)
    if (Object.keys(flags).length > 0)
      lines.push('', `### Part ${name}`, '', ...table(Object.values(flags), VARIABLES));
  lines.push(
    '',
    '## weir-dns-proxy',
    '',
    'A process of its own beside the agent, which goes on while the agent is away.',
    '',
  );
  lines.push(...table(Object.values(PROXY_FLAGS), PROXY_VARIABLES));
  lines.push('', '## weir-operator', '', ...table(ownOptions(run.options)));
  lines.push('', '## weir-operator uninstall', '', uninstall.description(), '');
  lines.push(...table(ownOptions(uninstall.options)));
  return `${lines.join('\n')}\n`;
}

function ownOptions(options: readonly Option[]): readonly Option[] {
  return options.filter(({ long }) => long !== '--version');
}

/** @param variables what the names of variables begin with; absent: there are none */
function table(options: readonly Option[], variables?: string): string[] {
  const head = variables !== undefined ? ['flag', 'variable', 'default', 'meaning'] : ['flag', 'default', 'meaning'];
  const rows = options.map((option) => [
    `\`${option.flags}\``,
    ...(variables !== undefined ? [`\`${variableOf(option, variables)}\``] : []),
    defaultOf(option),
    `${option.description}${option.argChoices === undefined ? '' : `; one of ${option.argChoices.map((choice) => `\`${choice}\``).join(', ')}`}`,
  ]);
  return [head, head.map(() => '---'), ...rows].map((row) =>
    row.every((cell) => cell === '---')
      ? `|${row.join('|')}|`
      : `| ${row.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`,
  );
}

function defaultOf(option: Option): string {
  if (option.defaultValueDescription !== undefined) return option.defaultValueDescription;
  const value: unknown = option.defaultValue;
  if (value === undefined || option.negate) return '';
  return `\`${typeof value === 'string' ? value : JSON.stringify(value)}\``;
}
