/** Test helper: an agent's sinks and model, with its plans carried out in memory, driven by hand; and what its node would decide. */
import type { CiliumEndpointSlice, CiliumIdentity, Namespace, PeerSet, Pod, ResolvedPolicyObject } from '@weir/kube';
import type { Direction } from '@weir/policy';
import type { Logger } from '../../node-agent/core.ts';
import { type KernelSlot, type KernelState, rowsByClass } from '../../node-agent/derive/index.ts';
import { addressesKey, rowsKey } from '../../node-agent/derive/rows.ts';
import { classAt } from '../../node-agent/derive/testing/class-at.ts';
import { World } from '../../node-agent/derive/testing/model-world.ts';
import {
  endpointSliceParts,
  identityParts,
  mergeEndpoint,
  mergePeerSet,
  namespaceParts,
  peerSetParts,
  podParts,
  policyParts,
} from '../../node-agent/kubernetes/rows.ts';
import { last, TableSink } from '../../node-agent/parts/table-sink.ts';
import type { SlotRow } from '../../node-agent/tables.ts';
import type { Api, Watch } from './api.ts';

const log = { info() {}, warn() {}, error() {}, debug() {} } as Logger;
const TCP = 6;
/** Watches of peer sets and of policies. */
const OF_RULES: readonly number[] = [3, 5];

/** A pod of this node, as CNI told of it. */
export interface LocalPod {
  readonly id: number;
  readonly uid: string;
  readonly name: string;
  readonly ip: string;
}

export class LaggingAgent {
  readonly node: string;
  readonly world = new World();
  readonly watches: readonly Watch[];
  readonly pods = new Map<string, LocalPod>();
  /** It has learned who has which address. */
  addressed = false;

  /**
   * @param before the agent that ran on this node until now; what the kernel holds is taken over
   * @param late watches, by number, whose list comes later
   */
  constructor(api: Api, node: string, before?: LaggingAgent, late: readonly number[] = []) {
    this.node = node;
    const { world } = this;
    const { db, tables } = world;
    db.write([tables.nodes], (txn) =>
      txn.upsert(tables.nodes, { name: 'all', addresses: [], podCidrs: ['10.0.0.0/8'], kubeApiserver: false }),
    );
    if (before !== undefined) this.#takeOver(before);
    this.watches = [
      api.watch<Namespace>(
        'Namespace',
        new TableSink({ db, log, table: tables.namespaces, parts: namespaceParts, merge: last }),
        { late: late.includes(0) },
      ),
      api.watch<Pod>('Pod', new TableSink({ db, log, table: tables.localPods, parts: podParts(node), merge: last }), {
        of: ({ spec }) => spec?.nodeName === node,
        late: late.includes(1),
      }),
      api.watch<CiliumIdentity>(
        'CiliumIdentity',
        new TableSink({ db, log, table: tables.identities, parts: identityParts, merge: last }),
        { late: late.includes(2) },
      ),
      api.watch<PeerSet>(
        'PeerSet',
        new TableSink({ db, log, table: tables.peerSets, parts: peerSetParts, merge: mergePeerSet }),
        { late: late.includes(3) },
      ),
      api.watch<CiliumEndpointSlice>(
        'CiliumEndpointSlice',
        new TableSink({ db, log, table: tables.remoteEndpoints, parts: endpointSliceParts, merge: mergeEndpoint }),
        { late: late.includes(4) },
      ),
      api.watch<ResolvedPolicyObject>(
        'ResolvedPolicy',
        new TableSink({ db, log, table: tables.policies, parts: policyParts, merge: last }),
        { late: late.includes(5) },
      ),
    ];
  }

  add(pod: LocalPod): void {
    this.pods.set(pod.uid, pod);
    this.world.endpoint(pod.id, { addresses: [pod.ip], pod: { namespace: 'ns', name: pod.name, uid: pod.uid } });
  }

  remove(uid: string): void {
    const pod = this.pods.get(uid);
    if (pod === undefined) return;
    this.pods.delete(uid);
    this.world.dropEndpoint(pod.id);
  }

  /** Computes from all that was delivered. False: it waits for something, and the kernel stays as it is. */
  async plan(): Promise<'again' | 'done' | 'waits'> {
    while (this.world.model.pull(100));
    const late = this.watches.flatMap(({ listed }, kind) => (listed ? [] : [kind]));
    if (late.length === 0 && this.world.model.awaited().size === 0)
      return (await this.world.plan()).again ? 'again' : 'done';
    if (late.every((kind) => OF_RULES.includes(kind))) {
      await this.world.plan({ rules: false });
      this.addressed = true;
    }
    return 'waits';
  }

  /** Whether the kernel has let the pod's endpoint take part. */
  ready(uid: string): boolean {
    const id = this.pods.get(uid)?.id;
    return id !== undefined && this.world.states.get(id)?.state === 'ready';
  }

  /** What the kernel decides at the endpoint; undefined before it has programs. */
  allows(uid: string, direction: Direction, peer: string, port: number): boolean | undefined {
    const { states, slots, ipcache } = this.world;
    const state = states.get(this.pods.get(uid)?.id ?? 0);
    if (state === undefined) return undefined;
    if (!state.enforced[direction]) return true;
    const slot = slots.get(state.slot);
    if (slot === undefined) return false;
    const number = classAt(ipcache, slot.classes[direction], `${peer}/32`);
    const rows = rowsByClass(slot, direction).get(number) ?? [];
    return rows.find(({ protocol, from, to }) => protocol === TCP && from <= port && port <= to)?.verdict === 'allow';
  }

  #takeOver(before: LaggingAgent): void {
    const { world } = this;
    const { states, slots, ipcache } = before.world;
    for (const [key, row] of states) world.states.set(key, row);
    for (const [key, row] of slots) world.slots.set(key, row);
    for (const [key, row] of ipcache) world.ipcache.set(key, row);
    world.numbers.adopt(before.world.numbers.state());
    const kernel: KernelState = {
      endpoints: [...states.values()],
      slots: new Map([...slots].map(([number, row]) => [number, kernelSlot(row)])),
      ipcache: [...ipcache.values()].map(({ prefix, identity }) => [prefix, identity] as const),
    };
    world.model.adopt(kernel);
    for (const pod of before.pods.values()) this.add(pod);
  }
}

function kernelSlot(row: SlotRow): KernelSlot {
  const of = <T>(one: (direction: Direction) => T): Record<Direction, T> => ({
    ingress: one('ingress'),
    egress: one('egress'),
  });
  return {
    scope: of((direction) => {
      const { enforced, scope } = row.compiled[direction];
      return enforced ? [rowsKey(scope.unknown), rowsKey(scope.pod), rowsKey(scope.world)] : ['', '', ''];
    }),
    classes: row.classes,
    addresses: of((direction) => addressesKey(row.compiled[direction])),
    rows: of(
      (direction) =>
        new Map([...rowsByClass(row, direction)].flatMap(([n, rows]) => (n < 16 ? [] : [[n, rowsKey(rows)]]))),
    ),
  };
}
