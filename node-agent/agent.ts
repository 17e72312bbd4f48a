/** The assembled agent: its parts (parts/contract.ts), and what they bring together. */
import { MAPS, type ObjectSource } from '@weir/bpf';
import { PartListError, type PartRow, Parts } from '@weir/process/parts';
import { createStateDB, keys, type StateDB, type Table } from '@weir/statedb';
import type { BaseConfig } from './config/config.ts';
import { VERSION } from './config/version.ts';
import type { Logger } from './core.ts';
import { FOLDERS, NEXT } from './datapath/index.ts';
import { FIRST_PART_KIND } from './flows/types.ts';
import type { AgentContext, AgentPart, AgentView, AnyAgentPart } from './parts/contract.ts';
import { AllKeptRunning } from './parts/kept-running.ts';
import { viewOf } from './parts/view.ts';

const PIN = /^[a-z][a-z0-9_]{0,14}$/;

export interface AgentOptions {
  readonly config: BaseConfig;
  readonly command: AgentContext['command'];
  readonly log: Logger;
  readonly parts: readonly AnyAgentPart[];
}

export class Agent {
  readonly #options: AgentOptions;
  readonly #parts: Parts;
  readonly #running: AllKeptRunning;
  readonly view: AgentView;

  private constructor(options: AgentOptions, parts: Parts, running: AllKeptRunning, view: AgentView) {
    this.#options = options;
    this.#parts = parts;
    this.#running = running;
    this.view = view;
  }

  /** Builds the parts, and starts none. @throws PartListError */
  static async build(options: AgentOptions): Promise<Agent> {
    const { config, command, log } = options;
    const db = createStateDB({ countSnapshots: true });
    const table = partsTable(db);
    checkMaps(options.parts);
    const sources = objectsOf(options.parts);
    let parts: Parts | undefined;
    let running: AllKeptRunning | undefined;
    const built = (): readonly AgentPart[] => [
      ...(parts?.built ?? []),
      { conditions: running?.conditions() ?? [], metrics: (registry) => running?.metrics(registry) },
    ];
    const view: AgentView = {
      ...viewOf(built),
      parts: () => {
        using snapshot = db.read();
        return [...snapshot.prefix(table, '', 'order')];
      },
      maps: () => {
        const off = new Set((parts?.rows() ?? []).flatMap(({ name, state }) => (state === 'off' ? [name] : [])));
        return options.parts.filter(({ name }) => !off.has(name)).flatMap(({ maps = [] }) => maps);
      },
      objects: () =>
        sources.flatMap((source) => {
          const hooks = (parts?.built ?? []).flatMap((part: AgentPart) => part.hooks?.[source.name] ?? []);
          return hooks.length === 0 ? [] : [{ ...source, hooks }];
        }),
    };
    const context: AgentContext = { config, command, db, log, agent: view };
    parts = await Parts.build(options.parts, context, {
      onChange: (row) => db.write([table], (txn) => txn.upsert(table, row)),
      onStopFailed: (part, err) => log.error({ part, err }, 'part did not stop cleanly'),
    });
    running = new AllKeptRunning(
      parts.built.flatMap((part: AgentPart) => part.running ?? []),
      log,
    );
    checkNames(built(), sources);
    return new Agent(options, parts, running, view);
  }

  /** Rejects when a part does not start; those before it have been stopped again. */
  async start(): Promise<void> {
    const { config, log } = this.#options;
    if (!(await this.#parts.start())) return;
    this.#running.start();
    log.info({ socket: config.socket, version: VERSION }, 'agent is running');
  }

  /** Stops every part; the first failure is thrown after all have been tried. What is in the kernel goes on enforcing. */
  async stop(): Promise<void> {
    await this.#running.stop();
    await this.#parts.stop();
  }
}

/** @throws PartListError where two parts have conditions, or settings, of one name, or one has programs of an object that no part brings */
function checkNames(parts: readonly AgentPart[], objects: readonly ObjectSource[]): void {
  for (const { kind, verdict } of parts.flatMap(({ events = [] }) => events)) {
    if (verdict === 'dropped' || verdict === 'allowed')
      throw new PartListError(
        `events of kind ${kind} have the verdict "${verdict}", which is the datapath's: use another verdict`,
      );
    if (!Number.isInteger(kind) || kind < FIRST_PART_KIND || kind > 255)
      throw new PartListError(`a kind of events is number ${kind}: use ${FIRST_PART_KIND} to 255`);
  }
  for (const name of parts.flatMap(({ hooks = {} }) => Object.keys(hooks)))
    if (!objects.some((object) => object.name === name))
      throw new PartListError(`no part brings the BPF object "${name}" whose programs are to run: name it in objects`);
  const taken = new Set<string>();
  const names = parts.flatMap(({ conditions = [], settings = {}, events = [], addresses = [] }) => [
    ...events.map(({ kind }) => `kinds of events are number ${kind}`),
    ...addresses.map(({ name }) => `sources of addresses are called ${name}`),
    ...conditions.map(({ name }) => `conditions are called ${name}`),
    ...Object.keys(settings).map((name) => `settings are called ${name}`),
  ]);
  for (const name of names) {
    if (taken.has(name)) throw new PartListError(`two ${name}: give one another name`);
    taken.add(name);
  }
}

/** How far each part has come. */
function partsTable(db: StateDB): Table<PartRow> {
  return db.table<PartRow>({
    name: 'parts',
    key: ({ name }) => name,
    indexes: [{ name: 'order', keys: ({ order }) => [keys.uint(order)] }],
  });
}

/** @throws PartListError for a name that is taken, or that bpffs does not take */
function checkMaps(parts: readonly AnyAgentPart[]): void {
  const taken = new Set(Object.keys(MAPS));
  const folders: readonly string[] = FOLDERS;
  const maps = parts.flatMap(({ maps = [] }) => maps);
  for (const { name } of maps) {
    if (!PIN.test(name))
      throw new PartListError(`map "${name}" cannot be pinned: up to 15 lower-case letters, digits and underscores`);
    if (folders.includes(name) || name.startsWith(NEXT))
      throw new PartListError(
        `map "${name}" cannot be pinned: beside the pins the agent has a folder, or maps under way, of that name`,
      );
    if (taken.has(name)) throw new PartListError(`two maps are called ${name}: give one another name`);
    taken.add(name);
  }
}

/** @throws PartListError for a name that is taken, or that bpffs does not take */
function objectsOf(parts: readonly AnyAgentPart[]): readonly ObjectSource[] {
  const taken = new Set(['weir']);
  const objects = parts.flatMap(({ objects = [] }) => objects);
  for (const { name } of objects) {
    if (!PIN.test(name))
      throw new PartListError(`BPF object "${name}": use up to 15 lower-case letters, digits and underscores`);
    if (taken.has(name)) throw new PartListError(`two BPF objects are called ${name}: give one another name`);
    taken.add(name);
  }
  return objects;
}
