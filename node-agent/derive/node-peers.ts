import { withApiServer } from '@weir/identity';
import { type LabelMap, type LabelSelector, matches } from '@weir/labels';
import { nodeLabels, selectsNodes } from '@weir/policy';
import { keys, query, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import type { Inputs } from './inputs.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import type { LocalNumbers } from './numbers.ts';
import type { Pace } from './pace.ts';
import { Rows } from './working.ts';

/** Another node, as rules of this one tell it apart. */
interface NodePeer {
  readonly name: string;
  readonly id: number;
  readonly labels: LabelMap;
  /** At one of its addresses is an API server. */
  readonly serves: boolean;
}

export interface NodePeersOptions {
  readonly db: StateDB;
  readonly nodeName: string;
  readonly tables: Pick<Tables, 'nodes'>;
  readonly inputs: Pick<Inputs, 'snapshot'>;
  readonly numbers: Pick<LocalNumbers, 'node' | 'numberOfNode' | 'nodes' | 'releaseNode'>;
  readonly ipcache: Pick<IpcacheDeriver, 'setNode'>;
  readonly pace: Pace;
}

/**
 * Other nodes by their labels, while rules in use select nodes by them: then each has a number of its own at its addresses. Otherwise none has, and they are
 * remote-node or kube-apiserver, as they are to rules that select no nodes.
 */
export class NodePeers {
  readonly #options: NodePeersOptions;
  readonly #rows: Rows<string, NodePeer>;
  readonly #dirty = new Set<string>();

  constructor(options: NodePeersOptions) {
    this.#options = options;
    this.#rows = new Rows<string, NodePeer>(
      options.db,
      {
        name: 'nodePeers',
        key: ({ name }) => name,
        indexes: [{ name: 'id', keys: (peer) => idsOf(peer).map((id) => keys.uint(id, 32)) }],
      },
      (name) => name,
    );
  }

  nodeChanged(name: string): void {
    this.#dirty.add(name);
  }

  /** Undefined: the number is no node's. */
  labelsOf(id: number): LabelMap | undefined {
    const [peer] = this.#rows.list('id', keys.uint(id, 32));
    return peer?.labels;
  }

  *all(): Generator<{ readonly id: number; readonly labels: LabelMap }> {
    for (const peer of this.#rows.values()) for (const id of idsOf(peer)) yield { id, labels: peer.labels };
  }

  /** Numbers of the nodes that the selector matches. */
  *selected(selector: LabelSelector): Generator<number> {
    if (!selectsNodes(selector)) return;
    for (const peer of this.#rows.values()) if (matches(selector, peer.labels)) yield* idsOf(peer);
  }

  /**
   * Takes in what has changed. Returns the numbers that have other labels than before, with both.
   * @param told whether rules in use select nodes by labels
   */
  async settle(told: boolean): Promise<ReadonlyMap<number, readonly LabelMap[]>> {
    const { inputs, tables, numbers, nodeName, ipcache, pace } = this.#options;
    // Rules begin to tell nodes apart, or have ceased to.
    if (told && this.#rows.size === 0)
      for (const { name } of inputs.snapshot.select(query.all(tables.nodes))) this.#dirty.add(name);
    if (!told || this.#rows.size === 0) for (const name of numbers.nodes()) this.#dirty.add(name);
    const changed = new Map<number, readonly LabelMap[]>();
    for (const name of this.#dirty) {
      if (pace.due()) await pace.yieldNow();
      this.#dirty.delete(name);
      const before = this.#rows.get(name);
      const number = numbers.numberOfNode(name);
      const row = name === nodeName ? undefined : inputs.snapshot.get(tables.nodes, name);
      const after =
        told && row !== undefined
          ? { name, id: numbers.node(name), labels: nodeLabels(row.labels ?? {}), serves: row.kubeApiserver }
          : undefined;
      if (after !== undefined) this.#rows.set(after);
      else {
        this.#rows.delete(name);
        numbers.releaseNode(name);
      }
      if (number !== after?.id) ipcache.setNode(row, name);
      const both = [before, after].filter((peer) => peer !== undefined);
      for (const id of new Set(both.flatMap(idsOf)))
        changed.set(
          id,
          both.map(({ labels }) => labels),
        );
    }
    return changed;
  }
}

function idsOf({ id, serves }: Pick<NodePeer, 'id' | 'serves'>): readonly number[] {
  return serves ? [id, withApiServer(id)] : [id];
}
