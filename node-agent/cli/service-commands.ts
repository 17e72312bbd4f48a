import type { Command } from 'commander';
import type { ServiceAddressModel, ServiceBackendModel, ServiceModel } from '../api/models.ts';
import type { AgentClient } from './client.ts';
import { type CliContext, printJson } from './context.ts';
import { AgentError, CliError, UsageError } from './errors.ts';
import { formatTable } from './table.ts';

/** Addresses of one cell. */
const MOST = 3;

export interface ServiceContext extends Omit<CliContext, 'client'> {
  client(command: Command): Pick<AgentClient, 'get'>;
}

export function addServiceCommands(program: Command, context: ServiceContext): void {
  const service = program.command('service').description('Services that this node translates');
  service
    .command('list')
    .description('All frontends, with their backends')
    .action(async (_options, command: Command) => {
      const list = await listOf(context.client(command));
      if (context.json(command)) printJson(context, list);
      else context.out.write(formatTable(HEADING, list.map(rowOf)));
    });
  service
    .command('get')
    .description('One frontend, or all of a Service, with what is wanted and what the kernel has')
    .argument('<service>', 'its number, or NAMESPACE/NAME, of one port alone NAMESPACE/NAME:PORT-NAME')
    .action(async (which: string, _options, command: Command) => {
      const client = context.client(command);
      if (/^\d+$/.test(which)) return printJson(context, await client.get<ServiceModel>(`/service/${which}`));
      if (!which.includes('/')) throw new UsageError(`${JSON.stringify(which)} is no Service: write NAMESPACE/NAME`);
      const list = await listOf(client);
      const own = list.filter((model) => [serviceOf(model), portOf(model)].includes(which));
      if (own.length === 0)
        throw new UsageError(
          `no Service ${JSON.stringify(which)} is translated; \`weir service list\` shows those that are`,
        );
      printJson(context, own);
    });
}

/** The agent has this path while it translates Services. */
async function listOf(client: Pick<AgentClient, 'get'>): Promise<readonly ServiceModel[]> {
  try {
    return await client.get<readonly ServiceModel[]>('/service');
  } catch (error) {
    if (!(error instanceof AgentError) || error.status !== 404) throw error;
    throw new CliError('this node translates no Services: its agent runs with --services off', 1, { cause: error });
  }
}

const HEADING = ['ID', 'SERVICE', 'KIND', 'FRONTEND', 'AFFINITY', 'BACKENDS', 'KERNEL'];

function rowOf(model: ServiceModel): string[] {
  const { spec } = model;
  const { flags } = spec;
  const seconds = flags['affinity-seconds'];
  return [
    spec.id === 0 ? '-' : String(spec.id),
    portOf(model),
    spec['frontend-address'].scope === 'external' ? `${flags.type} (from outside)` : flags.type,
    some(spec['frontend-addresses'].map(addressText)),
    seconds === 0 ? '-' : `${seconds} s`,
    some(spec['backend-addresses'].map(backendText)),
    kernelText(model),
  ];
}

function serviceOf({ spec: { flags } }: ServiceModel): string {
  return `${flags.namespace}/${flags.name}`;
}

/** With the name of the port, where it has one. */
function portOf(model: ServiceModel): string {
  const port = model.spec.flags['port-name'];
  return port === '' ? serviceOf(model) : `${serviceOf(model)}:${port}`;
}

/** Whether the kernel has what is wanted. */
function kernelText({ spec, status: { realized, error } }: ServiceModel): string {
  if (error !== undefined) return error;
  if (realized === undefined) return 'not yet';
  const texts = (addresses: readonly (ServiceAddressModel | ServiceBackendModel)[]): string =>
    addresses.map(addressText).sort().join();
  const isSame = (['frontend-addresses', 'backend-addresses'] as const).every(
    (field) => texts(spec[field]) === texts(realized[field]),
  );
  return isSame ? 'ok' : 'not yet';
}

function some(texts: readonly string[]): string {
  if (texts.length === 0) return 'none';
  const shown = texts.slice(0, MOST).join(' ');
  return texts.length > MOST ? `${shown} (+${texts.length - MOST})` : shown;
}

function addressText({ ip, port, protocol }: ServiceAddressModel | ServiceBackendModel): string {
  return `${ip.includes(':') ? `[${ip}]` : ip}:${port}/${protocol.toUpperCase()}`;
}

function backendText(backend: ServiceBackendModel): string {
  const { ip, port, state } = backend;
  return `${ip.includes(':') ? `[${ip}]` : ip}:${port}${state === 'terminating' ? '(terminating)' : ''}`;
}
