import type { StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { RemoteEndpointRow } from '../tables.ts';
import type { Identities } from './identities.ts';
import type { Inputs } from './inputs.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import type { Pace } from './pace.ts';
import type { PeerPortNames } from './peer-port-names.ts';
import { Rows } from './working.ts';

/** What a slice says of a pod, and whom the pod is judged as. */
interface Believed {
  /** `namespace/name` of the pod. */
  readonly key: string;
  readonly row: RemoteEndpointRow;
  /** 0: nobody. */
  readonly identity: number;
  /** Of the identity: a number may be given to other labels later. */
  readonly labelsKey: string | undefined;
}

export interface RemoteEndpointsOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'remoteEndpoints'>;
  readonly inputs: Pick<Inputs, 'said'>;
  readonly identities: Pick<Identities, 'get' | 'settled'>;
  readonly ipcache: Pick<IpcacheDeriver, 'setRemote'>;
  readonly portNames: Pick<PeerPortNames, 'set'>;
  readonly pace: Pace;
}

/**
 * The identity that each pod of the slices is judged by. Slices and identities come by watches of their own, in any order. Guarantees:
 * a number is never used whose labels are not known; a pod that moves to such a number keeps the identity that it had until then, so that its flows see no gap. Only the same pod does, at addresses that it had, and
 * only while the old identity is what it was: anybody else is unknown meanwhile.
 */
export class RemoteEndpoints {
  readonly #options: RemoteEndpointsOptions;
  readonly #believed: Rows<string, Believed>;
  readonly #dirty = new Set<string>();

  constructor(options: RemoteEndpointsOptions) {
    this.#options = options;
    this.#believed = new Rows<string, Believed>(
      options.db,
      {
        name: 'believedEndpoints',
        key: ({ key }) => key,
        indexes: [{ name: 'identity', keys: ({ identity }) => [tableKey.identity(identity)] }],
      },
      (key) => key,
    );
  }

  endpointChanged({ namespace, name }: RemoteEndpointRow): void {
    this.#dirty.add(tableKey.pod(namespace, name));
  }

  /** The identity has changed: so may pods of which the slice says it, and those that keep it. */
  identityChanged(identity: number): void {
    const { inputs, tables } = this.#options;
    const key = tableKey.identity(identity);
    for (const row of inputs.said.list(tables.remoteEndpoints, 'identity', key)) this.endpointChanged(row);
    for (const believed of this.#believed.list('identity', key)) this.#dirty.add(believed.key);
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
    const { inputs, tables, identities, ipcache, portNames } = this.#options;
    const row = inputs.said.get(tables.remoteEndpoints, key);
    // Names count from the moment they are told, whoever the pod turns out to be: a number may be denied to unknown peers too.
    portNames.set(`remote ${key}`, row?.identity ?? 0, row?.namedPorts ?? []);
    const before = this.#believed.get(key);
    if (row === undefined) {
      this.#believed.delete(key);
      ipcache.setRemote(undefined, key);
      portNames.set(`held ${key}`, 0, []);
      return;
    }
    const settled = identities.settled(row.identity);
    const kept = !settled && before !== undefined && this.#mayKeep(row, before) ? before : undefined;
    const identity = settled ? row.identity : (kept?.identity ?? 0);
    const labelsKey = settled ? identities.get(identity)?.labelsKey : kept?.labelsKey;
    this.#believed.set({ key, row, identity, labelsKey });
    ipcache.setRemote(identity === row.identity ? row : { ...row, identity }, key);
    portNames.set(`held ${key}`, kept?.identity ?? 0, kept === undefined ? [] : row.namedPorts);
  }

  /** Whether the pod may be judged as before while what it is now cannot be judged. */
  #mayKeep(row: RemoteEndpointRow, { row: said, identity, labelsKey }: Believed): boolean {
    const { identities } = this.#options;
    return (
      row.podUid !== undefined &&
      said.podUid === row.podUid &&
      identity !== row.identity &&
      identities.settled(identity) &&
      identities.get(identity)?.labelsKey === labelsKey &&
      row.addresses.every((address) => said.addresses.includes(address))
    );
  }
}
