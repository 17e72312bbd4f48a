/** Policy slots on maps of the kernel that nothing else uses. */
import { MAPS, slotMapOptions } from '@weir/bpf';
import type { ClassRows } from '@weir/policy';
import { createStateDB, type StateDB } from '@weir/statedb';
import { type BpfMap, createMap } from 'libbpf-ts';
import type { SlotRow } from '../../tables.ts';
import type { Clock } from '../clock.ts';
import { SlotStore, type SlotStoreOptions } from '../slot-store.ts';

export interface SlotLab extends Disposable {
  readonly db: StateDB;
  readonly slots: SlotStore;
  readonly policy_classes: BpfMap;
  readonly policy_verdicts: BpfMap;
}

export function slotLab(
  options: Pick<Clock, 'now' | 'yieldNow'> & Partial<Pick<SlotStoreOptions, 'prefixOf' | 'create'>>,
): SlotLab {
  const { classes, verdicts } = slotMapOptions({ classes: 1, verdicts: 1 });
  const outer = (name: 'policy_classes' | 'policy_verdicts', of: typeof classes): BpfMap => {
    using inner = createMap(of);
    return createMap({ ...MAPS[name], name, inner });
  };
  const maps = {
    policy_classes: outer('policy_classes', classes),
    policy_verdicts: outer('policy_verdicts', verdicts),
  };
  const db = createStateDB({ freeze: true });
  const slots = new SlotStore({ prefixOf: () => undefined, ...maps, ...options, quiesce: async () => undefined, db });
  return {
    ...maps,
    db,
    slots,
    [Symbol.dispose]() {
      slots.close();
      maps.policy_classes.close();
      maps.policy_verdicts.close();
    },
  };
}

/** The rows of a class that allows one port. */
function tcp(port: number): ClassRows {
  return [{ protocol: 6, from: port, to: port, verdict: 'allow', cookie: port }];
}

/** A slot whose ingress has these identities in classes of so many different rows, in turn. */
export function slotRow(slot: number, identities: readonly number[], kinds = 20): SlotRow {
  const members = Array.from({ length: kinds }, (_, kind) => identities.filter((_id, at) => at % kinds === kind));
  const classes = members.flatMap((ids, kind) => (ids.length === 0 ? [] : [{ members: ids, rows: tcp(1000 + kind) }]));
  const numbers = new Map(members.flatMap((ids, kind) => ids.map((id) => [id, 16 + kind] as const)));
  const open = { enforced: false, scope: { unknown: [], pod: [], world: [] }, classes: [], addresses: [] };
  return {
    slot,
    shape: `shape-${slot}`,
    compiled: { ingress: { ...open, enforced: true, classes }, egress: open },
    classes: { ingress: numbers, egress: new Map() },
    epoch: 0,
  };
}
