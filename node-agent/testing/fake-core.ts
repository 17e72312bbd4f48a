/**
 * A core without a kernel, for tests of what is built on the core: real tables, instant "enforcement" that a test can fail or hold.
 */
import { createStateDB, type StateDB } from '@weir/statedb';
import { Subject } from 'rxjs';
import type { Core, ImportedRule, Logger, Naming, PolicyInKernel, Realised, Tables, Verification } from '../core.ts';
import { createTables, tableKey } from '../create-tables.ts';
import { LocalNumbers } from '../derive/index.ts';
import { UnknownMapError } from '../errors.ts';
import type { FlowEvent } from '../flows/types.ts';
import type { EndpointRow, EndpointStateRow, IdentityRow, KernelEndpoint, SlotContent } from '../tables.ts';

export const quiet: Logger = {
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  debug: () => undefined,
};

/** A logger that keeps what it is told. */
export function recordingLogger(): Logger & {
  readonly lines: { readonly level: string; readonly message: string; readonly fields: object }[];
} {
  const lines: { level: string; message: string; fields: object }[] = [];
  const at = (level: string) => (fields: object, message: string) => {
    lines.push({ level, message, fields });
  };
  return { lines, info: at('info'), warn: at('warn'), error: at('error'), debug: at('debug') };
}

/** Files that remember nothing. */
const FORGETFUL: Core['files'] = {
  provide: () => undefined,
  load: () => 'absent',
  save: async () => true,
  saved: async () => undefined,
  unsaved: () => undefined,
};

export class FakeCore implements Core {
  readonly db: StateDB;
  readonly tables: Tables;
  files: Core['files'] = FORGETFUL;
  readonly numbers: LocalNumbers;
  /** Those of its flows. */
  readonly events = new Subject<FlowEvent>();
  readonly naming: Naming = {
    labelsOf: () => undefined,
    prefixOf: () => undefined,
    ownerOf: () => undefined,
    endpoint: () => undefined,
    rulesOf: () => [],
    portNames: { peers: () => new Map(), of: () => [], addresses: () => [], every: () => [] },
  };
  readonly realisedChanges = new Subject<Realised>();
  /** Called before an endpoint counts as enforced; a throw is the kernel's refusal. */
  beforeEnforce: (endpoint: EndpointRow) => void | Promise<void> = () => undefined;
  readonly calls: string[] = [];
  verbose = false;
  healthy = true;
  verification: Verification = { seconds: 0.5, mended: [], faults: [], left: 0 };
  failing: readonly string[] = [];
  started = false;
  #revision = 1;
  #realised: Realised = {
    revision: 1,
    settled: 1,
    acknowledged: 1,
    counts: { endpoints: 0, policies: 0 },
    failures: [],
  };
  #rules: ImportedRule[] = [];

  /** Default: tables of its own. */
  constructor(db: StateDB = createStateDB({ freeze: true }), tables: Tables = createTables(db)) {
    this.db = db;
    this.tables = tables;
    // Of its own: a model may have the database's.
    this.numbers = new LocalNumbers(createStateDB());
  }

  async start(): Promise<void> {
    this.started = true;
  }
  async stop(): Promise<void> {
    this.started = false;
  }
  async remove(): Promise<void> {
    this.calls.push('remove');
    await this.stop();
  }

  async upsertEndpoint(
    endpoint: EndpointRow,
    options: { readonly timeoutMs?: number } = {},
  ): Promise<EndpointStateRow> {
    // As the real one does, and as strict about the number.
    if (options.timeoutMs !== undefined) AbortSignal.timeout(options.timeoutMs);
    this.calls.push(`upsert ${endpoint.id}`);
    this.db.write([this.tables.endpoints], (txn) => txn.upsert(this.tables.endpoints, endpoint));
    await this.beforeEnforce(endpoint);
    const state: EndpointStateRow = {
      id: endpoint.id,
      ifindex: endpoint.ifindex,
      addresses: endpoint.addresses,
      identity: 1000 + endpoint.id,
      labels: endpoint.labels ?? { 'k8s:app': 'web' },
      slot: 0,
      enforced: { ingress: true, egress: false },
      revision: 1,
      policies: {},
      state: 'ready',
    };
    this.acknowledge(state);
    return state;
  }

  /** It is wanted so, and the kernel has it so. */
  acknowledge(state: EndpointStateRow): void {
    const { endpointStates, kernelEndpoints } = this.tables;
    const { id, ifindex, slot } = state;
    this.db.write([endpointStates, kernelEndpoints], (txn) => {
      txn.upsert(endpointStates, state);
      txn.upsert(kernelEndpoints, { id, ifindex, slot, doubted: false, acknowledged: state, written: state });
    });
  }

  /** It was found in the kernel at start. */
  adopt(found: KernelEndpoint): void {
    const { id, ifindex, slot } = found;
    const row = { id, ifindex, slot, doubted: false, found };
    this.db.write([this.tables.kernelEndpoints], (txn) => txn.upsert(this.tables.kernelEndpoints, row));
  }

  async deleteEndpoint(id: number): Promise<boolean> {
    this.calls.push(`delete ${id}`);
    const { endpoints, endpointStates, kernelEndpoints } = this.tables;
    return this.db.write([endpoints, endpointStates, kernelEndpoints], (txn) => {
      txn.delete(endpointStates, tableKey.endpoint(id));
      txn.delete(kernelEndpoints, tableKey.endpoint(id));
      return txn.delete(endpoints, tableKey.endpoint(id)) !== undefined;
    });
  }

  allocateEndpointId(): number {
    using snapshot = this.db.read();
    const used = new Set([...snapshot.all(this.tables.endpoints)].map((endpoint) => endpoint.id));
    let id = 1;
    while (used.has(id)) id++;
    return id;
  }

  policyRevision(): number {
    return this.#revision;
  }

  waitPolicyRevision(
    revision: number,
    signal?: AbortSignal,
  ): Promise<{ revision: number; failing: readonly string[] }> {
    if (revision <= this.#revision) return Promise.resolve({ revision: this.#revision, failing: this.failing });
    return new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));
  }

  /** Takes any list whose items have an `endpointSelector`; what the real parser says of others is its own tests' matter. */
  importRules: Core['importRules'] = (json, options = {}) => {
    const list = Array.isArray(json) ? json : [json];
    const problems = list.flatMap((rule: { endpointSelector?: unknown }, at) =>
      rule.endpointSelector === undefined
        ? [
            {
              code: 'InvalidSpec' as const,
              path: `[${at}].endpointSelector`,
              message: 'is missing: give the pods that the rule is for',
            },
          ]
        : [],
    );
    if (problems.length > 0) return { revision: this.#revision, problems };
    if (options.replace === true) this.#rules = [];
    const replaced = options.replaceWithLabels;
    if (replaced !== undefined)
      this.#rules = this.#rules.filter((rule) => !replaced.every((label) => rule.labels.includes(label)));
    for (const rule of list as { labels?: { key: string; value?: string }[] }[]) {
      this.#rules.push({
        labels: (rule.labels ?? []).map((label) => `unspec:${label.key}=${label.value ?? ''}`),
        json: rule,
      });
    }
    return { revision: ++this.#revision, problems: [] };
  };

  importedRules(labels: readonly string[] = []): readonly ImportedRule[] {
    return this.#rules.filter((rule) => labels.every((label) => rule.labels.includes(label)));
  }

  deleteRules(labels: readonly string[]): { readonly revision: number; readonly deleted: number } {
    const gone = new Set(this.importedRules(labels));
    this.#rules = this.#rules.filter((rule) => !gone.has(rule));
    if (gone.size > 0) this.#revision++;
    return { revision: this.#revision, deleted: gone.size };
  }

  /** By number. */
  slots: ReadonlyMap<number, SlotContent> = new Map();
  kernelSlot(slot: number): SlotContent | undefined {
    return this.slots.get(slot);
  }
  own: readonly Pick<IdentityRow, 'id' | 'labels'>[] = [];
  localIdentities(): ReturnType<Core['localIdentities']> {
    return this.own;
  }
  waitingRules: ReturnType<Core['rulesWait']>;
  rulesWait(): ReturnType<Core['rulesWait']> {
    return this.waitingRules;
  }

  realised(): Realised {
    return this.#realised;
  }
  inKernel = new Map<string, PolicyInKernel>();
  policiesInKernel(): ReturnType<Core['policiesInKernel']> {
    return this.inKernel;
  }
  /** `settled` and `acknowledged`: by default, as far as `revision`. */
  setRealised(realised: Pick<Realised, 'revision'> & Partial<Realised>): void {
    const { revision } = realised;
    const counts = { counts: { endpoints: 0, policies: 0 }, failures: [] };
    this.#realised = { settled: revision, acknowledged: revision, ...counts, ...realised };
    this.realisedChanges.next(this.#realised);
  }

  setVerbose(on: boolean): void {
    this.verbose = on;
  }

  reconcilers(): ReturnType<Core['reconcilers']> {
    return [];
  }

  repairs(): ReturnType<Core['repairs']> {
    return [{ part: 'endpoint', count: 2 }];
  }

  async verify(): ReturnType<Core['verify']> {
    return this.verification;
  }

  comparisons(): ReturnType<Core['comparisons']> {
    return [{ part: 'address', at: '2026-01-02T03:04:05.000Z', seconds: 1.5 }];
  }

  spentShares(): ReturnType<Core['spentShares']> {
    return { endpoints: [1], peers: [Uint8Array.of(192, 0, 2, 1)] };
  }

  maps(): ReturnType<Core['maps']> {
    return [{ name: 'endpoints', type: 'hash', entries: 1, maxEntries: 4096, path: '/sys/fs/bpf/fake/endpoints' }];
  }
  map(name: string): ReturnType<Core['map']> {
    throw new UnknownMapError(name, []);
  }

  mapEntries(): ReturnType<Core['mapEntries']> {
    return [{ key: { ifindex: 7 }, value: { id: 1, identity: 1001 } }];
  }
  metrics(): ReturnType<Core['metrics']> {
    return [{ reason: 'policy', direction: 'ingress', packets: 3n, bytes: 222n }];
  }
  health(): ReturnType<Core['health']> {
    return {
      ok: this.healthy,
      checks: [{ name: 'datapath', ok: this.healthy, message: this.healthy ? 'attached' : 'no datapath' }],
    };
  }
}
