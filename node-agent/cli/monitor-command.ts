import { line } from '@weir/process/printable';
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { FlowEvent, FlowPeer } from '../api/models.ts';
import { type AgentClient, within } from './client.ts';
import type { CliContext } from './context.ts';
import { type Duration, parseDuration } from './duration.ts';
import { AgentError } from './errors.ts';

interface MonitorOptions {
  readonly type?: string;
  readonly endpoint?: string;
  readonly json?: boolean;
  readonly timeout?: Duration;
}

export function addMonitorCommand(program: Command, context: CliContext): void {
  program
    .command('monitor')
    .description(
      'Drops, allowed new flows, and what pods ask of DNS, as they happen, until ctrl-C (exit code 130) or for a time (0); 1 when the agent ends or has not answered',
    )
    .addOption(new Option('-t, --type <type>', "only these: drop, allow, dns, or the verdict of a part's events"))
    .option('-e, --endpoint <id>', 'only those that this endpoint judged', endpointNumber)
    .option('--json', 'one JSON object a line')
    .option('--timeout <time>', 'follow for this time, as 30s, 5m; default: until it is ended', parseDuration)
    .action(async (options: MonitorOptions, command: Command) => {
      const query = new URLSearchParams();
      if (options.type !== undefined) query.set('type', options.type);
      if (options.endpoint !== undefined) query.set('endpoint', options.endpoint);
      const raw = options.json === true || context.json(command);
      const over = options.timeout === undefined ? undefined : within(options.timeout.ms);
      const client = context.client(command, over);
      if (options.endpoint !== undefined) await warnIfAbsent(context, client, options.endpoint);
      for await (const event of client.follow(`/monitor?${query.toString()}`)) {
        context.out.write(line(raw ? event : eventText(JSON.parse(event) as FlowEvent | { lost: number })));
      }
    });
}

/** Its events may come yet: it is followed all the same. */
async function warnIfAbsent(context: CliContext, client: AgentClient, endpoint: string): Promise<void> {
  try {
    await client.get(`/endpoint/${endpoint}`);
  } catch (error) {
    if (!(error instanceof AgentError) || error.status !== 404) throw error;
    context.err.write(
      `weir: warning: no endpoint ${endpoint} is on this node now; \`weir endpoint list\` shows those there are\n`,
    );
  }
}

function endpointNumber(text: string): string {
  if (!/^\d{1,5}$/.test(text))
    throw new InvalidArgumentError('It must be an endpoint number; `weir endpoint list` shows them.');
  return text;
}

/** One line: time, verdict, who to whom, why, by which policy. */
function eventText(event: FlowEvent | { readonly lost: number }): string {
  if ('lost' in event) return `(${event.lost} events left out: this reader is too slow)`;
  const flow = `${peerText(event.source, event.sourcePort)} -> ${peerText(event.destination, event.destinationPort)}`;
  const kind = event.icmpType === undefined ? event.protocol : `${event.protocol} type ${event.icmpType}`;
  const unnamed = event.policies.filter((policy) => !event.message.includes(policy));
  const policies = unnamed.length === 0 ? '' : ` [${unnamed.join(', ')}]`;
  return `${event.time} ${event.verdict.toUpperCase()} ${event.direction} ${kind} ${flow} endpoint ${event.endpoint}: ${event.reason}: ${event.message}${policies}`;
}

function peerText(peer: FlowPeer, port: number | undefined): string {
  const address =
    port === undefined
      ? peer.address
      : peer.address.includes(':')
        ? `[${peer.address}]:${port}`
        : `${peer.address}:${port}`;
  const names = [
    peer.name,
    peer.service === undefined ? undefined : `service ${peer.service}`,
    peer.backendOf === undefined ? undefined : `backend of ${peer.backendOf.join(' and ')}`,
    peer.hostNames?.join(' and '),
  ];
  const known = `(${[...names, `identity ${peer.identity}`].filter((name) => name !== undefined).join(', ')})`;
  return peer.address === '' ? known : `${address} ${known}`;
}
