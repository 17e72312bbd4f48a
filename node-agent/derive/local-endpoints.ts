import type { EndpointRow, LocalPodRow, NamespaceRow } from '../tables.ts';
import { type EndpointContext, type EndpointIdentity, endpointIdentity } from './identities.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import { Multi } from './multi.ts';
import type { Pace } from './pace.ts';
import type { PeerPortNames } from './peer-port-names.ts';

export interface LocalEndpointsOptions extends Pick<EndpointContext, 'clusterName' | 'identities' | 'numbers'> {
  readonly ipcache: Pick<IpcacheDeriver, 'setLocal'>;
  readonly portNames: Pick<PeerPortNames, 'set'>;
  readonly pace: Pace;
}

/** This node's endpoints and the identity of each, from endpoint, pod, namespace and identity rows. */
export class LocalEndpoints {
  /** What is concluded of each endpoint. */
  readonly infos = new Map<number, EndpointIdentity>();
  /** This node's own label sets that are in use, by number. */
  readonly localLabels = new Map<number, EndpointIdentity>();
  readonly #options: LocalEndpointsOptions;
  readonly #context: EndpointContext;
  readonly #rows = new Map<number, EndpointRow>();
  readonly #pods = new Map<string, LocalPodRow>();
  readonly #namespaces = new Map<string, NamespaceRow>();
  readonly #dirty = new Set<number>();
  readonly #podsChanged = new Set<string>();
  readonly #namespacesChanged = new Set<string>();

  constructor(options: LocalEndpointsOptions) {
    this.#options = options;
    this.#context = {
      clusterName: options.clusterName,
      identities: options.identities,
      numbers: options.numbers,
      pod: (key) => this.#pods.get(key),
      namespace: (name) => this.#namespaces.get(name),
    };
  }

  setEndpoint(row: EndpointRow, deleted: boolean): void {
    if (deleted) this.#rows.delete(row.id);
    else this.#rows.set(row.id, row);
    this.#dirty.add(row.id);
  }

  setPod(row: LocalPodRow, deleted: boolean): void {
    const key = `${row.namespace}/${row.name}`;
    if (deleted) this.#pods.delete(key);
    else this.#pods.set(key, row);
    this.#podsChanged.add(key);
  }

  setNamespace(row: NamespaceRow, deleted: boolean): void {
    if (deleted) this.#namespaces.delete(row.name);
    else this.#namespaces.set(row.name, row);
    this.#namespacesChanged.add(row.name);
  }

  /**
   * Settles endpoint identities; whether the set of this node's own label sets changed. Readers see all of the old conclusions
   * or all of the new ones.
   */
  async settle(identitiesChanged: boolean): Promise<boolean> {
    const { ipcache, portNames, pace } = this.#options;
    this.#spread(identitiesChanged);
    const concluded: [number, EndpointIdentity | undefined][] = [];
    for (const id of this.#dirty) {
      const row = this.#rows.get(id);
      concluded.push([id, row && endpointIdentity(row, this.infos.get(id), this.#context)]);
      if (pace.due()) await pace.breathe();
    }
    for (const [id, info] of concluded) {
      const before = this.infos.get(id);
      if (info === undefined) {
        this.infos.delete(id);
        ipcache.setLocal(id, undefined, 0);
        portNames.set(`local ${id}`, 0, []);
        continue;
      }
      this.infos.set(id, info);
      if (before?.identity !== info.identity || before.row.ipv4 !== info.row.ipv4) {
        ipcache.setLocal(id, info.row.ipv4, info.identity);
      }
      if (before?.identity !== info.identity || before.namedPorts !== info.namedPorts)
        portNames.set(`local ${id}`, info.identity, info.namedPorts);
    }
    this.#dirty.clear();
    return this.#settleLabels();
  }

  /** Marks the endpoints that changed pods, namespaces and identities touch. */
  #spread(identitiesChanged: boolean): void {
    const waitingFor = new Multi<string, number>();
    for (const [id, row] of this.#rows) {
      if (row.pod) waitingFor.add(`${row.pod.namespace}/${row.pod.name}`, id);
      if (row.pod && this.#namespacesChanged.has(row.pod.namespace)) this.#dirty.add(id);
    }
    for (const key of this.#podsChanged) for (const id of waitingFor.get(key)) this.#dirty.add(id);
    if (identitiesChanged) for (const id of this.#rows.keys()) this.#dirty.add(id);
    this.#podsChanged.clear();
    this.#namespacesChanged.clear();
  }

  #settleLabels(): boolean {
    const local = new Map<number, EndpointIdentity>();
    for (const info of this.infos.values()) if (info.identity >= 0x03000000) local.set(info.identity, info);
    const changed = local.size !== this.localLabels.size || [...local.keys()].some((id) => !this.localLabels.has(id));
    if (changed) {
      this.localLabels.clear();
      for (const [id, info] of local) this.localLabels.set(id, info);
    }
    return changed;
  }
}
