import { line } from '@weir/process/printable';
import type { Command } from 'commander';
import { type CliContext, printJson } from './context.ts';
import { UsageError } from './errors.ts';
import { isNamespaceName } from './metadata.ts';
import { policiesIn } from './policies-in-files.ts';
import { diffPolicies, type FlowChange, type PolicyDiff } from './policy-diff.ts';
import { readSources, type SourceFile } from './sources.ts';
import { type FileWorld, worldOf } from './world.ts';

const HELP = `
Pods are those of the files. Where there are none, one pod stands for each selector of the policies, and one that none selects for each namespace.

Exit codes: 0 nothing changes, 1 something does, 64 wrong arguments, 65 a file is no YAML, 66 a file cannot be read.`;

interface Options {
  readonly file: readonly string[];
  readonly namespace: string;
  readonly clusterName: string;
  readonly limit: string;
}

export function addDiff(policy: Command, context: CliContext): void {
  policy
    .command('diff')
    .description('Says which flows two sets of policies judge differently: from whom to whom, and on which ports')
    .argument('<old>', 'file or folder; "-" for stdin')
    .argument('<new>')
    .option(
      '-f, --file <paths...>',
      'files and folders with what both are judged with: Pods or workloads, Namespaces, Services',
      [],
    )
    .option('-n, --namespace <name>', 'namespace of policies that name none', 'default')
    .option('--cluster-name <name>', 'name of the cluster', 'default')
    .option('--limit <lines>', 'changes that are printed', '200')
    .addHelpText('after', HELP)
    .action(async (old: string, next: string, options: Options, command: Command) => {
      if (!isNamespaceName(options.namespace))
        throw new UsageError(`"${options.namespace}" is no name of a namespace`, 64);
      if (!/^[1-9]\d{0,6}$/.test(options.limit)) throw new UsageError(`"${options.limit}" is no number of lines`, 64);
      if (old === '-' && next === '-') throw new UsageError('standard input can be one of the two only', 64);
      const sides = await readAll([[old], [next], options.file], context);
      if (sides === undefined) return;
      const [before = [], after = [], both = []] = sides;
      const world = worldIn([...before, ...after, ...both], options);
      const rulesOf = (files: readonly SourceFile[]) =>
        policiesIn(files, worldIn([...files, ...both], options).referents, options.namespace);
      const [was, is] = [rulesOf(before), rulesOf(after)];
      for (const { file, line: at, column, policy: name, path, code, message } of [...was.doubts, ...is.doubts])
        context.err.write(line(`weir: ${file}:${at}:${column}: ${name} ${path}: ${message} [${code}]`));
      const diff = diffPolicies(was.rules, is.rules, world);
      if (context.json(command)) printJson(context, diff);
      else context.out.write(textOf(diff, Number(options.limit)));
      if (!diff.complete)
        context.err.write(
          line(`weir: the comparison was ended after ${diff.pairs} pairs: compare fewer policies or pods`),
        );
      context.setExitCode(diff.changes.length === 0 && diff.complete ? 0 : 1);
    });
}

function worldIn(files: readonly SourceFile[], { clusterName }: Options): FileWorld {
  return worldOf(
    files.flatMap(({ documents }) => documents.map(({ value }) => value)),
    clusterName,
  );
}

/** Undefined, with an exit code, where something cannot be read: an answer without it may be the wrong one. */
async function readAll(
  groups: readonly (readonly string[])[],
  context: CliContext,
): Promise<readonly (readonly SourceFile[])[] | undefined> {
  const sides: (readonly SourceFile[])[] = [];
  let code = 0;
  for (const paths of groups) {
    const { files, unreadable } = await readSources(paths);
    const broken = files.flatMap(({ error }) => (error === undefined ? [] : [error]));
    for (const error of [...unreadable, ...broken]) context.err.write(line(`weir: ${error.message}`));
    if (broken.length > 0) code = Math.max(code, 65);
    if (unreadable.length > 0) code = 66;
    sides.push(files);
  }
  if (code === 0) return sides;
  context.setExitCode(code);
  return undefined;
}

function textOf({ changes, pairs }: PolicyDiff, limit: number): string {
  const lines = changes.slice(0, limit).map(textOfChange);
  const more = changes.length > limit ? [line(`and ${changes.length - limit} more`)] : [];
  const count = (after: FlowChange['after']): number => changes.filter((change) => change.after === after).length;
  const summary = line(`${pairs} pairs compared: ${count('allowed')} gain flows, ${count('denied')} lose some`);
  return [...lines, ...more, summary].join('');
}

function textOfChange({ source, destination, before, after, ports }: FlowChange): string {
  return line(`${source} -> ${destination}: ${ports}: ${before} -> ${after}`);
}
