/** What the kernel would decide by its maps as they are now: endpoint word, identity, class, verdict (bpf/policy.h). */
import {
  classKey,
  classValue,
  DIRECTION,
  ENDPOINT_FLAGS,
  endpointValue,
  type IpcacheValue,
  identityIn,
  ipcacheKey,
  ipcacheValue,
  slotKey,
  VERDICT,
  verdictKey,
  verdictValue,
} from '@weir/bpf';
import { isLocalCidr, plainNode, RESERVED_ID } from '@weir/identity';
import { parseAddress } from '@weir/net';
import type { Direction } from '@weir/policy';
import { classOf } from '../../derive/contract.ts';
import { noneAround } from '../../derive/testing/class-at.ts';
import type { KernelMaps } from './recorded-map.ts';

export interface Probe {
  readonly direction: Direction;
  readonly peer: string;
  readonly protocol: number;
  readonly port: number;
}

export interface Word {
  readonly endpoint: number;
  readonly revision: number;
  readonly slot: number;
  readonly flags: number;
}

export function words(maps: KernelMaps): Word[] {
  return [...maps.endpoints.entries()].map(([, bytes]) => {
    const { id, revision, slot, flags } = endpointValue.decode(bytes);
    return { endpoint: id, revision, slot, flags };
  });
}

export interface Decision {
  readonly allowed: boolean;
  /** Where the verdict was looked up; absent when the direction is open. */
  readonly row?: { readonly slot: number; readonly direction: Direction; readonly class: number };
}

/** One instant of the maps: what it has looked up it does not look up again. */
export class Instant {
  readonly #maps: KernelMaps;
  readonly #known = new Map<string, unknown>();

  constructor(maps: KernelMaps) {
    this.#maps = maps;
  }

  decide(word: Pick<Word, 'slot' | 'flags' | 'revision'>, probe: Probe): Decision {
    const { direction } = probe;
    const flag = direction === 'ingress' ? ENDPOINT_FLAGS.ingressEnforced : ENDPOINT_FLAGS.egressEnforced;
    if ((word.flags & flag) === 0) return { allowed: true };
    const number = this.#class(word, direction, probe.peer);
    if (number === undefined) return { allowed: false };
    const row = { slot: word.slot, direction, class: number };
    return { allowed: this.verdict(row, probe), row };
  }

  verdict(row: NonNullable<Decision['row']>, probe: Probe): boolean {
    const key = `${row.slot} ${row.direction} ${row.class} ${probe.protocol} ${probe.port}`;
    return this.#once(key, () => verdictOf(this.#maps, row, probe));
  }

  identity(peer: string, revision: number): number {
    const found = this.#prefix(peer, 32);
    return found === undefined ? 0 : identityIn(found, revision);
  }

  /** The longest prefix of at most so many bits that holds the peer. */
  #prefix(peer: string, bits: number): IpcacheValue | undefined {
    return this.#once(`${peer} ${bits}`, () => {
      const found = this.#maps.ipcache.lookup(ipcacheKey.encode({ address: parseAddress(peer).bytes, bits }));
      return found && ipcacheValue.decode(found);
    });
  }

  /** Undefined: the slot is not there. */
  #class({ slot, revision }: Pick<Word, 'slot' | 'revision'>, direction: Direction, peer: string): number | undefined {
    return this.#once(`${slot} ${revision} ${direction} of ${peer}`, () => {
      const classes = this.#maps.policy_classes.openInner(slotKey.encode(slot));
      if (classes === undefined) return undefined;
      const named = (identity: number): number | undefined =>
        this.#once(`${slot} ${direction} ${identity}`, () => {
          const element = classes.lookup(classKey.encode({ identity, direction: DIRECTION[direction] }));
          return element && classValue.decode(element).class;
        });
      let identity = this.identity(peer, revision);
      // As class_of.
      for (let bits: number | undefined = 32; isLocalCidr(identity) && named(identity) === undefined; ) {
        const found: IpcacheValue | undefined = bits === undefined ? undefined : this.#prefix(peer, bits);
        bits = found === undefined || found.bits === 0 ? undefined : found.bits - 1;
        const around = found !== undefined && found.bits > 0 ? identityIn(found, revision) : RESERVED_ID.world;
        if (isLocalCidr(around) || around === RESERVED_ID.world) identity = around;
      }
      if (named(identity) === undefined) identity = plainNode(identity);
      return named(identity) ?? classOf(new Map(), identity, noneAround);
    });
  }

  #once<T>(key: string, look: () => T): T {
    if (!this.#known.has(key)) this.#known.set(key, look());
    return this.#known.get(key) as T;
  }
}

function verdictOf(maps: KernelMaps, row: NonNullable<Decision['row']>, probe: Probe): boolean {
  const verdicts = maps.policy_verdicts.openInner(slotKey.encode(row.slot));
  const found = verdicts?.lookup(
    verdictKey.encode({
      class: row.class,
      direction: DIRECTION[row.direction],
      protocol: probe.protocol,
      port: probe.port,
      portBits: 16,
    }),
  );
  if (found === undefined) return false;
  const { verdict, proxyPort = 0 } = verdictValue.decode(found);
  return verdict === VERDICT.allow && proxyPort === 0;
}
