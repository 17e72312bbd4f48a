import { clipped, line } from '@weir/process/printable';
import type { Command } from 'commander';
import type { PolicyModel } from '../api/models.ts';
import { within } from './client.ts';
import { type CliContext, printJson } from './context.ts';
import { addDiff } from './diff-command.ts';
import { parseDocuments } from './documents.ts';
import { type Duration, parseDuration } from './duration.ts';
import { CliError, TimeoutError, UnreadableError, UsageError } from './errors.ts';
import { addPolicyStatusCommand } from './policy-status-command.ts';
import { nameOf, readText } from './sources.ts';
import { formatTable } from './table.ts';
import { addValidate } from './validate-command.ts';

export function addPolicyCommands(program: Command, context: CliContext, version: string): void {
  const policy = program
    .command('policy')
    .description('Policies on this node, rules imported over the socket, and checks of policy files');
  addPolicyStatusCommand(policy, context);

  addImport(policy, context);
  addGet(policy, context);
  addDelete(policy, context);
  addWait(policy, context);
  addValidate(policy, context, version);
  addDiff(policy, context);
  addSelectors(policy, context);
}

function addImport(policy: Command, context: CliContext): void {
  policy
    .command('import')
    .description('Imports bare rules from a JSON or YAML file ("-" for stdin); all or nothing')
    .argument('<file>')
    .option('--replace', 'delete the imported rules that have the same labels')
    .option('--replace-with-labels <labels>', 'delete the rules that carry all these labels first (comma-separated)')
    .action(async (file: string, options: { replace?: boolean; replaceWithLabels?: string }, command: Command) => {
      const documents = parseDocuments(await readInput(file), nameOf(file)).map((document) => document.value);
      const rules = documents.flatMap((value) => (Array.isArray(value) ? value : [value]));
      const kind = rules.map(kindOf).find((found) => found !== undefined);
      if (kind !== undefined)
        throw new CliError(
          `${nameOf(file)} holds a ${kind}, and nothing was imported: apply it to the cluster (\`kubectl apply -f\`); bare rules have no kind`,
        );
      if (rules.length === 0)
        throw new CliError(`${nameOf(file)} holds no rule; to delete rules use \`weir policy delete\``);
      const query = new URLSearchParams();
      if (options.replace === true) query.set('replace', 'true');
      if (options.replaceWithLabels !== undefined) query.set('replace-with-labels', options.replaceWithLabels);
      const answer = await context.client(command).send<PolicyModel>('PUT', `/policy?${query.toString()}`, rules);
      printRevision(context, command, answer);
    });
}

function addGet(policy: Command, context: CliContext): void {
  policy
    .command('get')
    .description('Imported rules, as JSON')
    .argument('[labels...]', 'only those that carry all these labels')
    .action(async (labels: readonly string[], _options, command: Command) => {
      const query = labels.length === 0 ? '' : `?labels=${encodeURIComponent(labels.join(','))}`;
      const answer = await context.client(command).get<PolicyModel>(`/policy${query}`);
      if (context.json(command))
        return printJson(context, { revision: answer.revision, policy: JSON.parse(answer.policy) as unknown });
      context.out.write(`${answer.policy}\nRevision: ${answer.revision}\n`);
    });
}

function addDelete(policy: Command, context: CliContext): void {
  policy
    .command('delete')
    .description('Deletes the imported rules that carry all the labels')
    .argument('[labels...]', 'source:key=value, or key=value')
    .option('--all', 'delete every imported rule')
    .action(async (labels: readonly string[], options: { all?: boolean }, command: Command) => {
      if (options.all === true && labels.length > 0) throw new UsageError('give labels or --all, not both');
      if (options.all !== true && labels.length === 0)
        throw new UsageError('give the labels of the rules to delete, or --all');
      printRevision(context, command, await context.client(command).send<PolicyModel>('DELETE', '/policy', labels));
    });
}

function addWait(policy: Command, context: CliContext): void {
  policy
    .command('wait')
    .description(
      'Waits until everything up to a revision is in the kernel; exit code 1 when an endpoint failed, 124 when the time is over',
    )
    .argument('<revision>', 'as printed by import and delete')
    .option('--timeout <time>', 'give up after this time, as 30s, 5m; default: never', parseDuration)
    .action(async (revision: string, { timeout }: { timeout?: Duration }, command: Command) => {
      if (!/^\d+$/.test(revision))
        throw new UsageError(`revision "${revision}" is not a whole number; \`weir policy import\` prints it`);
      const over = timeout === undefined ? undefined : within(timeout.ms);
      const client = context.client(command, over);
      const waited = async (): Promise<{ revision: number; failing: readonly string[] }> => {
        const { revision: now } = await client.get<PolicyModel>('/policy');
        if (Number(revision) > now)
          context.err.write(
            `weir: warning: the agent is at revision ${now}, and ${revision} comes with later changes; numbers restart with each agent\n`,
          );
        return client.await(`/policy/wait?revision=${revision}`);
      };
      const answer = await waited().catch((error: unknown) => {
        if (error !== over?.reason) throw error;
        throw new TimeoutError(`revision ${revision} was not in the kernel after ${timeout?.text}`);
      });
      if (context.json(command)) printJson(context, answer);
      else context.out.write(`Revision: ${answer.revision}\n`);
      if (answer.failing.length > 0) throw new CliError(`not in the kernel for: ${answer.failing.join('; ')}`);
    });
}

function addSelectors(policy: Command, context: CliContext): void {
  policy
    .command('selectors')
    .description('Selectors in use, and the identities they match')
    .action(async (_options, command: Command) => {
      const list = await context
        .client(command)
        .get<readonly { selector: string; identities: readonly number[]; users: number }[]>('/policy/selectors');
      if (context.json(command)) return printJson(context, list);
      context.out.write(
        formatTable(
          ['USERS', 'IDENTITIES', 'SELECTOR'],
          list.map((entry) => [String(entry.users), entry.identities.join(' '), entry.selector]),
        ),
      );
    });
}

/** Of a Kubernetes object. */
function kindOf(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null || !('kind' in value) || !('apiVersion' in value)) return undefined;
  return typeof value.kind === 'string' ? clipped(value.kind, 80) : undefined;
}

function printRevision(context: CliContext, command: Command, answer: PolicyModel): void {
  for (const warning of answer.warnings ?? []) context.err.write(line(`weir: warning: ${warning}`));
  if (context.json(command)) printJson(context, { revision: answer.revision });
  else context.out.write(`Revision: ${answer.revision}\n`);
}

async function readInput(file: string): Promise<string> {
  try {
    return await readText(file);
  } catch (error) {
    throw new UnreadableError(nameOf(file), error);
  }
}
