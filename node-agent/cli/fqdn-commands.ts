import type { Command } from 'commander';
import type { FqdnCacheModel, FqdnNamesModel } from '../api/models.ts';
import type { AgentClient } from './client.ts';
import { type CliContext, printJson } from './context.ts';
import { UsageError } from './errors.ts';
import { formatTable } from './table.ts';

export interface FqdnContext extends Omit<CliContext, 'client'> {
  client(command: Command): Pick<AgentClient, 'get' | 'send'>;
}

const ANY = '*';

export function addFqdnCommands(program: Command, context: FqdnContext): void {
  const fqdn = program.command('fqdn').description('Names that pods of this node have looked up');
  const cache = fqdn.command('cache').description('Addresses that names have, each for the pod that asked');
  cache
    .command('list')
    .description('All of them, until their time is over and no connection to them lives')
    .option('-e, --endpoint <id>', 'those of one endpoint')
    .option('-p, --matchpattern <pattern>', 'those of names of this pattern, such as *.example.com', ANY)
    .action(async ({ endpoint, matchpattern }: ListOptions, command: Command) => {
      if (endpoint !== undefined && !/^\d{1,5}$/.test(endpoint))
        throw new UsageError(
          `${JSON.stringify(endpoint)} is no number of an endpoint; \`weir endpoint list\` shows them`,
        );
      const path = endpoint === undefined ? '/fqdn/cache' : `/fqdn/cache/${endpoint}`;
      const list = await context.client(command).get<readonly FqdnCacheModel[]>(`${path}${queryOf(matchpattern)}`);
      if (context.json(command)) printJson(context, list);
      else context.out.write(formatTable(HEADING, list.map(rowOf)));
    });
  cache
    .command('clean')
    .description('Forgets names: pods reach their addresses again once they have asked anew')
    .option('-p, --matchpattern <pattern>', 'names of this pattern; all when absent', ANY)
    .action(async ({ matchpattern }: ListOptions, command: Command) => {
      await context.client(command).send('DELETE', `/fqdn/cache${queryOf(matchpattern)}`);
      context.out.write(`forgotten: names of ${matchpattern}\n`);
    });
  fqdn
    .command('names')
    .description('Patterns of toFQDNs that rules name, and identities of addresses by them')
    .action(async (_options, command: Command) => {
      const names = await context.client(command).get<FqdnNamesModel>('/fqdn/names');
      if (context.json(command)) return printJson(context, names);
      const rows = names.FQDNPolicySelectors.map(({ selectorString, identities }) => [
        selectorString,
        identities.join(', '),
      ]);
      context.out.write(formatTable(['SELECTOR', 'IDENTITIES'], rows));
    });
}

interface ListOptions {
  readonly endpoint?: string;
  readonly matchpattern: string;
}

const HEADING = ['ENDPOINT', 'NAME', 'ADDRESSES', 'TTL', 'EXPIRES'];

function queryOf(pattern: string): string {
  return pattern === ANY ? '' : `?matchpattern=${encodeURIComponent(pattern)}`;
}

function rowOf(model: FqdnCacheModel): string[] {
  return [String(model['endpoint-id']), model.fqdn, model.ips.join(', '), `${model.ttl} s`, model['expiration-time']];
}
