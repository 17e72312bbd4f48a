/** The DNS proxy: its parts, and their start and stop. */
import { clearInterval, setInterval } from 'node:timers';
import { MARK_FROM_PROXY } from '@weir/bpf';
import { parseAddress } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import { LineLimit } from '@weir/process/line-limit';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { Logger } from 'pino';
import type { FromProxy, Oddity } from '../protocol.ts';
import { AgentLink } from './agent-link.ts';
import type { ProxyConfig } from './config.ts';
import type { Reporter } from './contract.ts';
import { Conversation } from './conversation.ts';
import { Expiry } from './expiry.ts';
import { Judge } from './judge.ts';
import { KernelFlows } from './kernel-flows.ts';
import { KernelRows } from './kernel-rows.ts';
import { Learning, type NameChange } from './learning.ts';
import { Names } from './names.ts';
import { Poller } from './poller.ts';
import type { Kept } from './read-message.ts';
import { Rules } from './rules.ts';
import { Store } from './store.ts';
import { createTables, type ProxyTables } from './tables.ts';
import { TcpProxy } from './tcp.ts';
import { UdpProxy } from './udp.ts';

const TICK_MS = 1000;
/** Between two looks at all connections for names whose time is over. */
const EXPIRE_EVERY_MS = 30_000;

export class DnsProxy implements Reporter {
  readonly #config: ProxyConfig;
  readonly #log: Logger;
  readonly #db: StateDB = createStateDB();
  readonly #tables: ProxyTables = createTables(this.#db);
  readonly #poller: Poller;
  readonly #flows: KernelFlows;
  readonly #rows: KernelRows;
  readonly #names: Names;
  readonly #rules: Rules;
  readonly #store: Store;
  readonly #link: AgentLink;
  readonly #udp: UdpProxy;
  readonly #tcp: TcpProxy;
  readonly #expiry: Expiry;
  readonly #oddities = new Map<Oddity, number>();
  readonly #limit: LineLimit;
  #tick: NodeJS.Timeout | undefined;

  constructor(config: ProxyConfig, log: Logger) {
    this.#config = config;
    this.#log = log;
    this.#limit = new LineLimit({
      onLeftOut: (problem, lines) => log.error({ problem, lines }, 'the same went wrong more often'),
    });
    const [db, tables] = [this.#db, this.#tables];
    const onError = (error: unknown): void => {
      if (this.#limit.admits(messageOf(error))) log.error({ err: error }, 'the DNS proxy could not handle a message');
    };
    this.#poller = new Poller(onError);
    this.#flows = new KernelFlows(db, tables, config.bpfRoot);
    this.#rows = new KernelRows(config.bpfRoot, onError, () => this.#wantedRows());
    this.#names = new Names({
      db,
      tables,
      rows: this.#rows,
      tell: (changes) => this.#changed(changes),
      onCut: () => this.count('addresses'),
      onLacking: (address) => learning.lacks(address),
      minTtl: config.dnsMinTtl,
      mostAddresses: config.dnsMaxAddressesPerName,
      mostOfEndpoint: config.dnsMaxAddressesPerEndpoint,
      mostInAll: config.dnsMaxAddresses,
    });
    this.#rules = new Rules({ db, tables, names: this.#names });
    this.#store = new Store({ folder: config.stateDir, log, all: () => this.#all() });
    const learning = new Learning({
      names: this.#names,
      tell: (message) => this.tell(message),
      connected: () => this.#link.connected,
      waitMs: config.dnsIdentityWait,
    });
    const conversation = new Conversation({
      rules: this.#rules,
      names: this.#names,
      learning,
      keep: (lines) => this.#store.append(lines),
    });
    this.#link = new AgentLink({
      path: config.socket,
      log,
      receive: (message) => conversation.receive(message),
      greeting: () => conversation.greeting(),
    });
    const judge = new Judge({
      db,
      tables,
      flows: this.#flows,
      learner: learning,
      reporter: this,
      denied: config.dnsDeny === 'refused' ? 'REFUSED' : 'NXDOMAIN',
      mostAsked: config.dnsMaxQuestions,
    });
    const common = {
      judge,
      poller: this.#poller,
      reporter: this,
      onError,
      mark: MARK_FROM_PROXY,
      answerWithinMs: config.dnsAnswerWait,
    };
    this.#udp = new UdpProxy(common);
    this.#tcp = new TcpProxy({ ...common, flows: this.#flows, mostConnections: config.dnsMaxConnections });
    this.#expiry = new Expiry({
      names: this.#names,
      connected: (rows) => this.#flows.connected(rows),
      everyMs: EXPIRE_EVERY_MS,
    });
  }

  /** Goes on with what it had: before the first question comes in, the kernel has what follows from that. */
  async start(): Promise<void> {
    const { bind, port, socket } = this.#config;
    let lines = 0;
    this.#store.open((kept) => {
      lines += 1;
      this.#restore(kept);
    });
    this.#rows.start();
    for (const text of bind) {
      const { family, bytes } = parseAddress(text);
      this.#udp.listen({ family, address: bytes, port });
      this.#tcp.listen({ family, address: bytes, port });
    }
    await this.#link.start();
    this.#poller.start();
    this.#tick = setInterval(() => this.#onTick(), TICK_MS);
    this.#log.info({ bind, port, socket, restored: lines }, 'the DNS proxy is ready');
  }

  async stop(): Promise<void> {
    clearInterval(this.#tick);
    this.#udp.close();
    this.#tcp.close();
    await this.#poller.stop();
    await this.#link.stop();
    await this.#store.close();
    this.#limit.stop();
    this.#rows.close();
    this.#flows.close();
  }

  tell(message: FromProxy): void {
    this.#link.tell(message);
  }

  count(oddity: Oddity): void {
    this.#oddities.set(oddity, (this.#oddities.get(oddity) ?? 0) + 1);
  }

  #restore(kept: Kept): void {
    if (kept.type === 'name') {
      const { type: _, ...row } = kept;
      this.#names.restore(row);
    } else if (kept.type === 'name-gone') this.#names.remove(kept, kept.why);
    else for (const _ of this.#rules.apply(kept));
  }

  #changed(changes: readonly NameChange[]): void {
    this.#store.append(changes);
    for (const change of changes) this.tell(change);
  }

  *#all(): Generator<Kept> {
    yield* this.#rules.all();
    for (const row of this.#names.all()) yield { type: 'name', ...row };
  }

  *#wantedRows(): Generator<readonly [string, number]> {
    using snapshot = this.#db.read();
    for (const { address, identity } of snapshot.all(this.#tables.addresses))
      if (identity !== undefined) yield [address, identity];
  }

  #onTick(): void {
    this.#rows.look();
    for (const [oddity, count] of this.#oddities) this.tell({ type: 'oddity', oddity, count });
    this.#oddities.clear();
    this.#expiry.look(Date.now()).catch((error: unknown) => {
      this.#log.error({ err: error }, 'names whose time is over could not be removed; it is tried again');
    });
  }
}
