import type { Command } from 'commander';
import type { EndpointModel, IdentityModel, StatusResponse, VerificationModel } from '../api/models.ts';

import { type CliContext, printJson } from './context.ts';
import { AgentError, UsageError } from './errors.ts';
import { formatFields, formatLabelCell, formatTable } from './table.ts';

export function addStatusCommands(program: Command, context: CliContext, version: string): void {
  program
    .command('status')
    .description('Health of the agent, its datapath and its connections; exit code 1 when not healthy')
    .option('-v, --verbose', 'also how far each part of the agent has come, and what it waits for')
    .action(async (options: { verbose?: true }, command: Command) => {
      const status = await context.client(command).status<StatusResponse>();
      if (context.json(command)) printJson(context, status);
      else {
        context.out.write(statusText(status));
        if (options.verbose === true) context.out.write(`\n${partsText(status)}`);
      }
      if (status.cilium.state !== 'Ok') context.setExitCode(1);
    });

  program
    .command('version')
    .description('Version of this command and of the agent')
    .action(async (_options, command: Command) => {
      let agent: string;
      try {
        agent = (await context.client(command).status<StatusResponse>()).weir.version;
      } catch (error) {
        if (!(error instanceof AgentError)) throw error;
        agent = `not known (${error.message})`;
      }
      if (context.json(command)) printJson(context, { client: version, agent });
      else
        context.out.write(
          formatFields([
            ['Client', version],
            ['Agent', agent],
          ]),
        );
    });
}

function statusText(status: StatusResponse): string {
  const { weir } = status;
  return formatFields([
    ['Agent', `${agentWord(status)}   ${agentText(status)}`],
    ['Version', weir.version],
    ['Node', `${weir.node} (cluster ${weir.clusterName})`],
    ['Kubernetes', `${status.kubernetes.state}   ${status.kubernetes.msg}`],
    ...weir.conditions.map(({ title, state, msg }) => [title, `${state}   ${msg}`] as const),
    ['IPAM', status.ipam.status],
    [
      'Endpoints',
      [`${weir.endpoints.ready}/${weir.endpoints.total} ready`, ...(weir.endpoints.unready ?? [])].join('; '),
    ],
    ['Policies', `${weir.policies} (enforcement ${weir.policyEnforcement})`],
    ['Revision', `${weir.policyRevision} (in the kernel: ${weir.realisedRevision})`],
    ...weir.checks.map((check) => [`  ${check.name}`, `${checkWord(check)}   ${check.message}`] as const),
  ]);
}

function partsText({ weir }: StatusResponse): string {
  return formatTable(
    ['PART', 'STATE', 'SINCE', 'NEEDS', 'WAITS FOR', 'MESSAGE'],
    weir.parts.map(({ name, state, since, needs, waitsFor, message }) => [
      name,
      state,
      new Date(since).toISOString(),
      needs.join(', ') || '-',
      waitsFor.join(', ') || '-',
      message ?? '',
    ]),
  );
}

function checkWord({ ok, warning }: StatusResponse['weir']['checks'][number]): string {
  if (!ok) return 'FAILED';
  return warning === true ? 'warning' : 'ok';
}

/** What is wrong outside of an agent that does its work is a warning. */
function agentWord({ cilium, kubernetes, weir }: StatusResponse): StatusResponse['cilium']['state'] {
  const warned = [kubernetes, ...weir.conditions].some(({ state }) => state === 'Warning');
  return cilium.state === 'Ok' && warned ? 'Warning' : cilium.state;
}

/** What checks say is printed with each. */
function agentText({ cilium, weir }: StatusResponse): string {
  const failing = weir.checks.filter(({ ok }) => !ok).map(({ name }) => name);
  return cilium.state !== 'Failure' || failing.length === 0 ? cilium.msg : `${failing.join(', ')}: see below`;
}

export function addEndpointCommands(program: Command, context: CliContext): void {
  const endpoint = program.command('endpoint').description('Local endpoints: pods of this node');
  endpoint
    .command('list')
    .description('All endpoints')
    .option('-l, --labels <labels>', 'only those that carry all these labels (comma-separated)')
    .action(async (options: { labels?: string }, command: Command) => {
      const query = options.labels === undefined ? '' : `?labels=${encodeURIComponent(options.labels)}`;
      const list = await context.client(command).get<readonly EndpointModel[]>(`/endpoint${query}`);
      if (context.json(command)) return printJson(context, list);
      context.out.write(
        formatTable(
          ['ENDPOINT', 'INGRESS', 'EGRESS', 'IDENTITY', 'IPV4', 'IPV6', 'STATE', 'NAME', 'LABELS'],
          list.map(({ id, status }) => {
            const { build, 'policy-enabled': enabled } = status.policy.realized;
            const enforcement = (direction: string): string =>
              enabled === direction || enabled === 'both' ? 'enforced' : 'open';
            return [
              String(id),
              // Of what the kernel does not have it is not known.
              build === 0 ? '-' : enforcement('ingress'),
              build === 0 ? '-' : enforcement('egress'),
              build === 0 ? '-' : String(status.identity.id),
              status.networking.addressing[0]?.ipv4 ?? '-',
              status.networking.addressing[0]?.ipv6 ?? '-',
              status.state,
              status['external-identifiers']['pod-name'] ?? status.networking['interface-name'],
              formatLabelCell(status.labels['security-relevant']),
            ];
          }),
        ),
      );
    });
  endpoint
    .command('get')
    .description('One endpoint, with its policy')
    .argument(
      '<id>',
      'a number, or prefix:value (pod-name:NAMESPACE/NAME, ipv4:ADDRESS, ipv6:ADDRESS, container-id:ID)',
    )
    .action(async (id: string, _options, command: Command) => {
      printJson(context, await context.client(command).get<EndpointModel>(`/endpoint/${encodeURIComponent(id)}`));
    });
}

export function addIdentityCommands(program: Command, context: CliContext): void {
  const identity = program.command('identity').description('Security identities that this node knows');
  identity
    .command('list')
    .description('All identities')
    .action(async (_options, command: Command) => {
      const list = await context.client(command).get<readonly IdentityModel[]>('/identity');
      if (context.json(command)) printJson(context, list);
      else
        context.out.write(
          formatTable(
            ['ID', 'LABELS'],
            list.map((entry) => [String(entry.id), entry.labels.join(' ')]),
          ),
        );
    });
  identity
    .command('get')
    .description('One identity')
    .argument('<id>', 'its number')
    .action(async (id: string, _options, command: Command) => {
      if (!/^\d+$/.test(id))
        throw new UsageError(`identity "${id}" is not a number; \`weir identity list\` shows those there are`);
      printJson(context, await context.client(command).get<IdentityModel>(`/identity/${id}`));
    });
}

interface MapList {
  readonly maps: readonly {
    readonly name: string;
    readonly type: string;
    readonly entries: number;
    readonly maxEntries: number;
    readonly path: string;
  }[];
}
interface MapContent {
  readonly path: string;
  readonly cache: readonly { readonly key: object; readonly value: object }[];
}

export function addMapCommands(program: Command, context: CliContext): void {
  const map = program.command('map').description('BPF maps of the datapath');
  map
    .command('list')
    .description('All maps')
    .action(async (_options, command: Command) => {
      const { maps } = await context.client(command).get<MapList>('/map');
      if (context.json(command)) return printJson(context, maps);
      context.out.write(
        formatTable(
          ['NAME', 'TYPE', 'ENTRIES', 'MAX', 'PATH'],
          maps.map((entry) => [entry.name, entry.type, String(entry.entries), String(entry.maxEntries), entry.path]),
        ),
      );
    });
  map
    .command('verify')
    .description(
      'Compares what the kernel enforces with what the agent wrote and restores what differs; exit code 1 when something differed',
    )
    .action(async (_options, command: Command) => {
      const client = context.client(command);
      // An agent that is there may take its time.
      await client.get('/map');
      const found = await client.await<VerificationModel>('/map/verify', 'POST');
      if (context.json(command)) printJson(context, found);
      else context.out.write(verificationText(found));
      if (found.mended.length + found.faults.length > 0) context.setExitCode(1);
    });
  map
    .command('get')
    .description('Entries of one map')
    .argument('<name>', 'its name')
    .option('--slot <number>', 'of policy_classes and policy_verdicts: one slot (`weir map get endpoints` has them)')
    .action(async (name: string, { slot }: { readonly slot?: string }, command: Command) => {
      const query = slot === undefined ? '' : `?slot=${encodeURIComponent(slot)}`;
      const content = await context.client(command).get<MapContent>(`/map/${encodeURIComponent(name)}${query}`);
      if (context.json(command)) return printJson(context, content.cache);
      context.out.write(
        formatTable(
          ['KEY', 'VALUE'],
          content.cache.map((entry) => [words(entry.key), words(entry.value)]),
        ),
      );
    });
}

function verificationText({ seconds, mended, faults, left }: VerificationModel): string {
  const looked = `Compared programs, links, pins and map contents in ${seconds.toFixed(1)} s`;
  const but = left === 0 ? '' : `, except ${left} entries that the kernel refused`;
  if (mended.length + faults.length === 0) return `Nothing differs. ${looked}${but}\n`;
  const lines = [
    ...mended.map(({ part, count, last }) => `restored: ${part}, ${count} times, the last: ${last}`),
    ...faults.map((fault) => `DIFFERS: ${fault}`),
  ];
  return [...lines, `${looked}${but}`].map((text) => `${text}\n`).join('');
}

function words(entry: object): string {
  return Object.entries(entry)
    .map(([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ');
}
