import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { SETTING_PROXY_PORT, SETTING_PROXY_RATE, settingsKey, settingsValue } from '@weir/bpf';
import { flag, path } from '@weir/process/flags';
import { InvalidArgumentError } from 'commander';
import { podNetworkPart } from '../cni/network-part.ts';
import { datapathPart } from '../core/datapath-part.ts';
import { corePart } from '../core/part.ts';
import type { Core } from '../core.ts';
import { runCommand } from '../host/command.ts';
import { definePart } from '../parts/contract.ts';
import { ProxyDelivery } from './delivery.ts';
import { fqdnRoutes } from './faces.ts';
import { KnownNames } from './known-names.ts';
import { DnsMetrics } from './metrics.ts';
import { NameIdentities } from './name-identities.ts';
import type { FromProxy } from './protocol.ts';
import { proxyCondition } from './proxy-condition.ts';
import { ProxyFault } from './proxy-fault.ts';
import { ProxyLink } from './proxy-link.ts';
import { LookedUpNames, QuestionEvents } from './question-events.ts';

/** When the first rule may have come; others may take the rule or the route away. */
const LOOK_EVERY_MS = 1000;
const NO_PROXY =
  'DNS rules let nothing pass, and no address of a name is learned, as this node has no DNS proxy (`--dns-proxy off` of the agent, `dnsProxy.enabled` of the chart)';

/** What pods may ask of DNS, and which addresses they may reach by the names that they have asked for. The proxy is a process of its own (proxy/). */
export const dnsPart = definePart({
  name: 'dns',
  needs: { core: corePart, datapath: datapathPart, network: podNetworkPart },
  flags: {
    dnsProxy: flag<string>(
      '--dns-proxy <socket>',
      'unix socket of the DNS proxy of this node; off: there is none, and DNS rules let nothing pass',
    )
      .default('/var/run/weir/dns-proxy.sock')
      .argParser((text) => (text === 'off' ? text : path(text))),
    dnsProxyPort: flag<number>('--dns-proxy-port <port>', 'where the DNS proxy listens, at the loopback')
      .default(10053)
      .argParser(port),
    dnsRate: flag<number>(
      '--dns-rate <packets>',
      'what an endpoint may ask the DNS proxy in a second, 1 to 1,000,000; twice as much at once; more is dropped (proxy-rate)',
    )
      .default(1000)
      .argParser(rate),
    dnsProxyState: flag<string>(
      '--dns-proxy-state <dir>',
      'state of the DNS proxy (its --state-dir), which an uninstall removes',
    )
      .default('/var/run/weir/dns-proxy')
      .argParser(path),
  },
  build: ({ core, datapath, network }, { config, db, log }) => {
    const { dnsProxy, dnsProxyPort, dnsProxyState, dnsRate } = config;
    const delivery = new ProxyDelivery(runCommand, network.procSys);
    const removal = {
      enforcement: async () => [...(await delivery.remove()), ...(await removeState(dnsProxyState))],
    };
    const fault = new ProxyFault(core);
    if (dnsProxy === 'off') return { removal, start: () => fault.say(NO_PROXY) };
    const names = new KnownNames(db);
    const questions = new QuestionEvents(core);
    const identities = new NameIdentities({ core, log });
    const metrics = new DnsMetrics();
    const link = new ProxyLink({
      ...{ core, log, path: dnsProxy },
      receive: (message) => receive(message, { names, identities, metrics, questions }),
      connected: () => names.begin(),
    });
    const problem = (): string | undefined => delivery.problem ?? link.problem;
    let timer: NodeJS.Timeout | undefined;
    // A node that no policy has DNS rules for stays as it is.
    const look = async (): Promise<void> => {
      if (hasRules(core)) await delivery.look();
      fault.look(problem());
    };
    return {
      settings: { 'dns-proxy': dnsProxy },
      removal,
      eventSource: questions,
      peerNaming: new LookedUpNames(db, names.table),
      routes: (app) =>
        fqdnRoutes(app, {
          db,
          tables: core.tables,
          names: names.table,
          forget: (pattern) => link.say({ type: 'forget', pattern }),
        }),
      metrics: (registry) => metrics.register(registry, () => db.read(), names.table),
      conditions: [proxyCondition({ socket: dnsProxy, core, problem })],
      start: async () => {
        const kernel = datapath.map('settings');
        kernel.update(settingsKey.encode(SETTING_PROXY_RATE), settingsValue.encode(dnsRate));
        kernel.update(settingsKey.encode(SETTING_PROXY_PORT), settingsValue.encode(dnsProxyPort));
        await look();
        timer = setInterval(() => void look(), LOOK_EVERY_MS).unref();
        identities.start();
        link.start();
      },
      stop: async () => {
        clearInterval(timer);
        await link.stop();
        await identities.stop();
      },
    };
  },
});

function hasRules({ numbers }: Pick<Core, 'numbers'>): boolean {
  return numbers.eachListener().next().done !== true;
}

interface Receivers {
  readonly names: KnownNames;
  readonly identities: NameIdentities;
  readonly metrics: DnsMetrics;
  readonly questions: QuestionEvents;
}

/** What the proxy tells. */
function receive(message: FromProxy, { names, identities, metrics, questions }: Receivers): void {
  if (message.type === 'wanted') identities.want(message.selectors);
  else if (message.type === 'name') names.put(message);
  else if (message.type === 'name-gone') {
    names.delete(message);
    metrics.gone(message);
  } else if (message.type === 'names-complete') names.complete();
  else if (message.type === 'query') {
    metrics.query(message);
    questions.tell(message);
  } else metrics.oddity(message.oddity, message.count);
}

/** The proxy may still run: it goes on writing into files that have no name any more. */
async function removeState(folder: string): Promise<readonly string[]> {
  if (!existsSync(folder)) return [];
  await rm(folder, { recursive: true, force: true });
  return [folder];
}

function port(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || value > 65_535)
    throw new InvalidArgumentError('It must be a port, 1 to 65535.');
  return value;
}

function rate(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || value > 1_000_000)
    throw new InvalidArgumentError('It must be a number, 1 to 1000000.');
  return value;
}
