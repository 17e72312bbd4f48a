import { readAddress, Unreadable } from '@weir/net';
import { flag, parseArguments, path } from '@weir/process/flags';
import { Command, InvalidArgumentError } from 'commander';

export interface ProxyConfig {
  readonly port: number;
  readonly bind: readonly string[];
  readonly socket: string;
  readonly bpfRoot: string;
  readonly stateDir: string;
  readonly dnsDeny: 'refused' | 'nxdomain';
  readonly dnsMinTtl: number;
  readonly dnsIdentityWait: number;
  readonly dnsAnswerWait: number;
  readonly dnsMaxQuestions: number;
  readonly dnsMaxConnections: number;
  readonly dnsMaxAddressesPerName: number;
  readonly dnsMaxAddressesPerEndpoint: number;
  readonly dnsMaxAddresses: number;
  readonly logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent';
}

/** What the names of variables begin with. */
export const PROXY_VARIABLES = 'WEIR_DNS_PROXY';

export const PROXY_FLAGS = {
  port: flag<number>('--port <port>', 'port of the listeners').default(10053).argParser(whole(1, 65_535)),
  bind: flag<readonly string[]>(
    '--bind <addresses>',
    'addresses of the listeners, separated by commas; the datapath finds those of the loopback',
  )
    .default(['127.0.0.1', '::1'], '127.0.0.1,::1')
    .argParser(addresses),
  socket: flag<string>('--socket <path>', 'unix socket to which the agent connects')
    .default('/var/run/weir/dns-proxy.sock')
    .argParser(path),
  bpfRoot: flag<string>('--bpf-root <dir>', 'where the maps of the agent are pinned')
    .default('/sys/fs/bpf/weir')
    .argParser(path),
  stateDir: flag<string>('--state-dir <dir>', 'rules and names, kept over restarts')
    .default('/var/run/weir/dns-proxy')
    .argParser(path),
  dnsDeny: flag<ProxyConfig['dnsDeny']>(
    '--dns-deny <code>',
    'what a name is answered that no rule has: after refused, glibc asks no further search domain',
  )
    .choices(['refused', 'nxdomain'])
    .default('refused'),
  dnsMinTtl: flag<number>(
    '--dns-min-ttl <seconds>',
    'an address counts for at least so long after the answer that gave it',
  )
    .default(0)
    .argParser(whole(0, 86_400)),
  dnsIdentityWait: flag<number>(
    '--dns-identity-wait <ms>',
    'an answer waits at most so long for the agent to give its addresses an identity',
  )
    .default(200)
    .argParser(whole(0, 10_000)),
  dnsAnswerWait: flag<number>('--dns-answer-wait <ms>', 'a question is given up after so long without an answer')
    .default(10_000)
    .argParser(whole(100, 60_000)),
  dnsMaxQuestions: flag<number>('--dns-max-questions <n>', 'questions of a pod under way; more are dropped')
    .default(100)
    .argParser(whole(1, 10_000)),
  dnsMaxConnections: flag<number>('--dns-max-connections <n>', 'TCP connections of a pod; more are reset')
    .default(20)
    .argParser(whole(1, 10_000)),
  dnsMaxAddressesPerName: flag<number>(
    '--dns-max-addresses-per-name <n>',
    'addresses that a name has for a pod; the oldest go',
  )
    .default(50)
    .argParser(whole(1, 1000)),
  dnsMaxAddressesPerEndpoint: flag<number>(
    '--dns-max-addresses-per-endpoint <n>',
    'addresses of all names of a pod; those go that were not answered for longest',
  )
    .default(10_000)
    .argParser(whole(1, 1_000_000)),
  dnsMaxAddresses: flag<number>(
    '--dns-max-addresses <n>',
    'addresses of all names of all pods; those go of the pod that has most',
  )
    .default(100_000)
    .argParser(whole(1, 10_000_000)),
  logLevel: flag<ProxyConfig['logLevel']>('--log-level <level>', 'lowest level that is logged')
    .choices(['debug', 'info', 'warn', 'error', 'silent'])
    .default('info'),
};

/** A flag of the DNS proxy is wrong. @fix Correct it; `--help` lists the flags. */
export class ProxyConfigError extends Error {
  readonly code = 'ERR_WEIR_DNS_CONFIG';
}

/** Throws `ProxyConfigError`. Touches nothing. */
export function parseProxyConfig(
  args: readonly string[],
): { readonly config: ProxyConfig } | { readonly printed: string } {
  const command = new Command('weir-dns-proxy').description(
    "Weir DNS proxy: answers questions of pods by their policies' names, and lets pods reach the addresses",
  );
  const unread = parseArguments(command, args, [PROXY_FLAGS], PROXY_VARIABLES);
  if (unread !== undefined) {
    if ('printed' in unread) return unread;
    throw new ProxyConfigError(unread.complaint);
  }
  return { config: command.opts<ProxyConfig>() };
}

function whole(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : Number.NaN;
    if (!(value >= least && value <= most))
      throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
    return value;
  };
}

function addresses(text: string): readonly string[] {
  const list = text.split(',');
  for (const each of list)
    if (readAddress(each) instanceof Unreadable) throw new InvalidArgumentError(`${each} is not an IP address.`);
  return list;
}
