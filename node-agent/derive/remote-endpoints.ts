import type { RemoteEndpointRow } from '../tables.ts';
import type { Identities } from './identities.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import { Multi } from './multi.ts';
import type { Pace } from './pace.ts';
import type { PeerPortNames } from './peer-port-names.ts';

/** Whom an address was judged as. */
interface Believed {
  readonly identity: number;
  /** Of the identity: a number may be given to other labels later. */
  readonly labelsKey: string | undefined;
  readonly addresses: readonly string[];
  readonly podUid: string;
}

export interface RemoteEndpointsOptions {
  readonly identities: Pick<Identities, 'get' | 'settled'>;
  readonly ipcache: Pick<IpcacheDeriver, 'setRemote'>;
  readonly portNames: Pick<PeerPortNames, 'set'>;
  readonly pace: Pace;
}

/**
 * The identity that each pod of the slices is judged by. Slices, identities and peer sets come by watches of their own, in any order.
 * Guarantees: an identity that cannot be judged fully yet is never used; a pod that moves to one keeps the identity that it had until
 * then, so that its flows see no gap. Only the same pod does, at addresses that it had, and only while the old identity is what it was:
 * anybody else is unknown meanwhile.
 */
export class RemoteEndpoints {
  readonly #options: RemoteEndpointsOptions;
  readonly #rows = new Map<string, RemoteEndpointRow>();
  readonly #believed = new Map<string, Believed>();
  /** Pods by the identities that their conclusion hangs on: the one that the slice says, and the one that is kept. */
  readonly #hanging = new Multi<number, string>();
  readonly #dirty = new Set<string>();

  constructor(options: RemoteEndpointsOptions) {
    this.#options = options;
  }

  set(row: RemoteEndpointRow, deleted: boolean): void {
    const key = `${row.namespace}/${row.name}`;
    const before = this.#rows.get(key);
    if (before !== undefined) this.#hanging.delete(before.identity, key);
    const held = this.#believed.get(key);
    if (held !== undefined) this.#hanging.add(held.identity, key);
    if (deleted) this.#rows.delete(key);
    else {
      this.#rows.set(key, row);
      this.#hanging.add(row.identity, key);
    }
    this.#dirty.add(key);
    // Names count from the moment they are told, whoever the pod turns out to be: a number may be denied to unknown peers too.
    this.#options.portNames.set(`remote ${key}`, row.identity, deleted ? [] : row.namedPorts);
  }

  /** The identity, or a peer set that it waits for, has changed. */
  touchIdentity(identity: number): void {
    for (const key of this.#hanging.get(identity)) this.#dirty.add(key);
  }

  async settle(): Promise<void> {
    const { pace } = this.#options;
    for (const key of this.#dirty) {
      this.#conclude(key);
      this.#dirty.delete(key);
      if (pace.due()) await pace.breathe();
    }
  }

  #conclude(key: string): void {
    const { identities, ipcache, portNames } = this.#options;
    const row = this.#rows.get(key);
    const before = this.#believed.get(key);
    if (before !== undefined && before.identity !== row?.identity) this.#hanging.delete(before.identity, key);
    this.#believed.delete(key);
    if (row === undefined) {
      ipcache.setRemote(undefined, key);
      portNames.set(`held ${key}`, 0, []);
      return;
    }
    const settled = identities.settled(row.identity);
    const kept = !settled && before !== undefined && this.#mayKeep(row, before) ? before : undefined;
    const identity = settled ? row.identity : (kept?.identity ?? 0);
    const { addresses, podUid } = row;
    if (identity !== 0 && podUid !== undefined) {
      const labelsKey = kept === undefined ? identities.get(identity)?.labelsKey : kept.labelsKey;
      this.#believed.set(key, { identity, labelsKey, addresses, podUid });
      this.#hanging.add(identity, key);
    }
    ipcache.setRemote(identity === row.identity ? row : { ...row, identity }, key);
    portNames.set(`held ${key}`, kept?.identity ?? 0, kept === undefined ? [] : row.namedPorts);
  }

  /** Whether the pod may be judged as before while what it is now cannot be judged. */
  #mayKeep(row: RemoteEndpointRow, { identity, labelsKey, addresses, podUid }: Believed): boolean {
    const { identities } = this.#options;
    return (
      podUid === row.podUid &&
      identity !== row.identity &&
      identities.settled(identity) &&
      identities.get(identity)?.labelsKey === labelsKey &&
      row.addresses.every((address) => addresses.includes(address))
    );
  }
}
