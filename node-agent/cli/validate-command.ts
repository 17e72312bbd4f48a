import type { Stack } from '@weir/policy';
import { line } from '@weir/process/printable';
import type { Command } from 'commander';
import { type CliContext, printJson } from './context.ts';
import { UsageError } from './errors.ts';
import { isNamespaceName } from './metadata.ts';
import { sarifLog, textOf } from './sarif.ts';
import { readSources } from './sources.ts';
import { exitCodeOf, type Finding, type Validation, validateFiles } from './validate.ts';

export const VALIDATE_HELP = `
Exit codes: 0 enforced as written, 1 something is invalid, 2 something is not fully enforced (UnsupportedField), 64 wrong arguments,
66 a file or folder cannot be read. Documents of other kinds are skipped with a note.`;

interface Options {
  readonly namespace: string;
  readonly dualStack?: boolean;
}

export function addValidate(policy: Command, context: CliContext, version: string): void {
  policy
    .command('validate')
    .description(
      'Checks files without a cluster: CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy, CiliumCIDRGroup, NetworkPolicy, lists of them, or bare ' +
        'rules, in YAML or JSON; one line for each problem, as file:line:column. The limits are the operator’s defaults for one policy, which bare ' +
        'rules do not have. Only a cluster knows what selectors match, and whether pods have the ports that are named',
    )
    .argument('<files...>', 'files; folders, with every *.yaml, *.yml and *.json below; "-" for stdin')
    .option('-n, --namespace <name>', 'namespace of a CiliumNetworkPolicy or NetworkPolicy that names none', 'default')
    .option('--dual-stack', 'pods of the cluster have IPv4 and IPv6 addresses: what world-ipv4 and its like select')
    .option('--no-dual-stack', 'they have addresses of one family; without either both are doubted')
    .addHelpText('after', VALIDATE_HELP)
    .action(async (paths: readonly string[], options: Options, command: Command) => {
      if (!isNamespaceName(options.namespace))
        throw new UsageError(`"${options.namespace}" is no name of a namespace`, 64);
      const { files, unreadable } = await readSources(paths);
      const validation = validateFiles(files, options.namespace, stackOf(options));
      const { output } = command.optsWithGlobals<{ output: string }>();
      if (output === 'sarif') printJson(context, sarifLog(validation.findings, version, process.cwd()));
      else if (output === 'json') printJson(context, validation);
      else context.out.write(textsOf(validation));
      for (const error of unreadable) context.err.write(line(`weir: ${error.message}`));
      context.setExitCode(unreadable.length > 0 ? 66 : exitCodeOf(validation));
    });
}

function stackOf({ dualStack }: Options): Stack {
  return dualStack === undefined ? 'unknown' : dualStack ? 'dual' : 'single';
}

function textsOf({ objects, findings }: Validation): string {
  const count = (reasons: readonly string[]): number => objects.filter(({ reason }) => reasons.includes(reason)).length;
  const skipped = findings.filter(({ code }) => code === 'OtherKind').length;
  const parts = [
    `${count(['Valid'])} valid`,
    `${count(['InvalidSpec', 'BudgetExceeded'])} invalid`,
    `${count(['UnsupportedField'])} not fully enforced`,
    ...(skipped === 0 ? [] : [`${skipped} of other kinds skipped`]),
  ];
  return [...findings.map(textOfFinding), line(`${objects.length} judged: ${parts.join(', ')}`)].join('');
}

function textOfFinding(finding: Finding): string {
  const { file, line: at, column, severity, code, object } = finding;
  const of = object === undefined ? '' : `${object}, `;
  return line(`${file}:${at}:${column}: ${severity}: ${textOf(finding)} [${of}${code}]`);
}
