import { line } from '@weir/process/printable';
import type { Command } from 'commander';
import type { TableModel } from '../api/models.ts';
import { within } from './client.ts';
import { type CliContext, printJson } from './context.ts';
import { type Duration, parseDuration } from './duration.ts';
import { AgentError, UsageError } from './errors.ts';
import { formatTable } from './table.ts';

export function addTableCommands(program: Command, context: CliContext): void {
  const table = program.command('table').description("The agent's tables: its inputs, and what it derives from them");
  table
    .command('list')
    .description('All tables')
    .action(async (_options, command: Command) => {
      const tables = await context.client(command).get<readonly TableModel[]>('/table');
      if (context.json(command)) return printJson(context, tables);
      context.out.write(
        formatTable(
          ['NAME', 'ROWS', 'REVISION', 'INDEXES', 'WAITS FOR', 'STREAMS (LAG)'],
          tables.map(({ name, rows, revision, indexes, pending, streams }) => [
            name,
            String(rows),
            String(revision),
            indexes.join(','),
            pending.join(','),
            streams.map((stream) => `${stream.name} (${stream.lag})`).join(', '),
          ]),
        ),
      );
    });
  table
    .command('get')
    .description('Rows of one table. Long cells are cut; -o json prints all of them, one row a line')
    .argument('<name>', 'its name')
    .option('-n, --limit <rows>', 'at most so many rows; default: 100, with -o json all')
    .action(async (name: string, options: { limit?: string }, command: Command) => {
      const json = context.json(command);
      const limit = options.limit ?? (json ? '' : '100');
      if (options.limit !== undefined && !/^[0-9]{1,9}$/.test(limit))
        throw new UsageError(`--limit "${limit}" is not a number of rows`);
      const path = `/table/${encodeURIComponent(name)}${json ? '/dump' : ''}${limit === '' ? '' : `?limit=${limit}`}`;
      for await (const row of context.client(command).lines(path)) context.out.write(`${row}\n`);
    });
  table
    .command('follow')
    .description(
      'Rows of one table and then its changes, one JSON object a line, until ctrl-C (exit code 130) or for a time (0)',
    )
    .argument('<name>', 'its name')
    .option('--timeout <time>', 'follow for this time, as 30s, 5m; default: until it is ended', parseDuration)
    .action(async (name: string, options: { timeout?: Duration }, command: Command) => {
      const over = options.timeout === undefined ? undefined : within(options.timeout.ms);
      const client = context.client(command, over);
      for await (const event of client.follow(`/table/${encodeURIComponent(name)}/changes`)) {
        if (event.startsWith('{"error":')) throw new AgentError((JSON.parse(event) as { error: string }).error);
        context.out.write(line(event));
      }
    });
}
