/** What a plan writes and takes away, as entries of maps. */
import type { EncodeRow } from 'libbpf-ts';
import {
  type BackendValue,
  backendValue,
  type FrontendKey,
  frontendKey,
  frontendValue,
  memberKey,
  number,
  slotKey,
  sourceKey,
} from './layout.ts';
import { frontendName, type RealisedService } from './realised.ts';
import type { Frontend } from './types.ts';

const PRESENT = number.encode(1);

/** One service from what the maps have to what they are to have. */
export interface Plan {
  readonly row?: Frontend;
  readonly before: RealisedService;
  readonly wanted: RealisedService;
  /** Frontends that other services had. */
  readonly taken: readonly { readonly key: FrontendKey; readonly from: number }[];
}

/** A number and what it stands for, not in the map yet. */
export type NewBackend = readonly [id: number, backend: BackendValue];

type Entry = readonly [Uint8Array, Uint8Array];

export function newMembers({ before, wanted }: Plan): Entry[] {
  const there = new Set(before.unsure ? [] : before.members);
  const missing = wanted.members.filter((backend) => !there.has(backend));
  return missing.map((backend) => [memberKey.encode({ service: wanted.id, backend }), PRESENT]);
}

export function newSources({ before, wanted }: Plan): Entry[] {
  const there = new Set(before.unsure ? [] : before.sources);
  const missing = wanted.sources.filter((cidr) => !there.has(cidr));
  return missing.map((cidr) => [sourceKey.encode({ service: wanted.id, cidr }), PRESENT]);
}

interface Slot {
  readonly service: number;
  readonly index: number;
  readonly backend: number;
}

export function changedSlots({ before, wanted: { id: service, slots } }: Plan): Slot[] {
  const changed: Slot[] = [];
  for (const [index, backend] of slots.entries())
    if (before.slots[index] !== backend || before.unsure !== undefined) changed.push({ service, index, backend });
  return changed;
}

export const encodeSlot: EncodeRow<Slot> = ({ service, index, backend }, keyView, keyAt, valueView, valueAt) => {
  keyView.setUint32(keyAt, service, true);
  keyView.setUint32(keyAt + 4, index, true);
  valueView.setUint32(valueAt, backend, true);
  valueView.setUint32(valueAt + 4, service, true);
};

export const encodeBackend: EncodeRow<NewBackend> = ([id, backend], keyView, keyAt, valueView, valueAt) => {
  keyView.setUint32(keyAt, id, true);
  for (const [at, byte] of backendValue.encode(backend).entries()) valueView.setUint8(valueAt + at, byte);
};

export function frontendValueOf(row: Frontend, service: number, count: number): Uint8Array {
  const external = row.kind !== 'ClusterIP';
  return frontendValue.encode({
    ...{ service, count, affinitySeconds: row.affinitySeconds ?? 0, external },
    localExternal: external && row.externalPolicy === 'Local',
    sources: row.sourceRanges !== undefined,
    elsewhere: row.elsewhere === true,
  });
}

/** Those that are there as they are to be are left alone: writing them would move them in the kernel. */
export function frontendEntries({ before, wanted }: Plan): Entry[] {
  const { value, frontends } = wanted;
  if (value === undefined) return [];
  const same = before.unsure === undefined && before.value === value;
  const there = new Set(same ? before.frontends.map(frontendName) : []);
  const bytes = Buffer.from(value, 'hex');
  return frontends.flatMap((key) => (there.has(frontendName(key)) ? [] : [[frontendKey.encode(key), bytes] as const]));
}

export function oldSlots({ before, wanted }: Plan): Uint8Array[] {
  const { length } = wanted.slots;
  return before.slots.slice(length).map((_, at) => slotKey.encode({ service: wanted.id, index: length + at }));
}

export function oldSources({ before, wanted }: Plan): Uint8Array[] {
  const there = new Set(wanted.sources);
  const old = before.sources.filter((cidr) => !there.has(cidr));
  return old.map((cidr) => sourceKey.encode({ service: wanted.id, cidr }));
}

export function oldMembers({ before, wanted }: Plan): Uint8Array[] {
  const there = new Set(wanted.members);
  const old = before.members.filter((backend) => !there.has(backend));
  return old.map((backend) => memberKey.encode({ service: wanted.id, backend }));
}
