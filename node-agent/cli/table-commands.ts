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
    .description('Rows of one table, long cells cut; with -o json all of it, a line a row')
    .argument('<name>', 'its name')
    .option('-n, --limit <rows>', 'at most so many rows', '100')
    .action(async (name: string, options: { limit: string }, command: Command) => {
      if (!/^[0-9]{1,9}$/.test(options.limit))
        throw new UsageError(`--limit "${options.limit}" is not a number of rows`);
      const path = `/table/${encodeURIComponent(name)}${context.json(command) ? '/dump' : `?limit=${options.limit}`}`;
      for await (const line of context.client(command).lines(path)) context.out.write(`${line}\n`);
    });
}
