import type { Command } from 'commander';
import type { TableModel } from '../api/models.ts';
import { type CliContext, printJson } from './context.ts';
import { UsageError } from './errors.ts';
import { formatTable } from './table.ts';

export function addTableCommands(program: Command, context: CliContext): void {
  const table = program.command('table').description("The agent's tables: what it was told, and what it has concluded");
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
    .description('Rows of one table, long cells cut; with -o json whole, a line a row')
    .argument('<name>', 'its name')
    .option('-n, --limit <rows>', 'at most so many rows; default: 100, with -o json all')
    .action(async (name: string, options: { limit?: string }, command: Command) => {
      const json = context.json(command);
      const limit = options.limit ?? (json ? '' : '100');
      if (options.limit !== undefined && !/^[0-9]{1,9}$/.test(limit))
        throw new UsageError(`--limit "${limit}" is not a number of rows`);
      const path = `/table/${encodeURIComponent(name)}${json ? '/dump' : ''}${limit === '' ? '' : `?limit=${limit}`}`;
      for await (const line of context.client(command).lines(path)) context.out.write(`${line}\n`);
    });
}
