import { formatAddress, parseAddress } from '@weir/net';
import { objects } from './persist.ts';

const LAST_ORDER = 2 ** 52;

/** An address that is or was given to a pod of this node. Key: `address`. */
export interface PodAddressRow {
  readonly address: string;
  /** Grows with each address given. */
  readonly order: number;
  /** Absent while an ADD is under way, and once it was given back. */
  readonly endpoint?: number;
  /** When it was given back, by the boot clock in milliseconds; 0: nobody has seen it. Absent while it is in use. */
  readonly freedAt?: number;
  /** As what other nodes knew it when it was given back (cni/known-as.ts). */
  readonly knownAs?: string;
}

/** Of the addresses of this node's pods, what outlives an agent. */
export interface AddressRecord {
  readonly rows: readonly PodAddressRow[];
  /** By the boot clock, in milliseconds; 0: nothing is missing from the rows. */
  readonly restsUntil: number;
}

/** @throws Error with a sentence when it is not an AddressRecord. */
export function decodeAddresses(json: unknown): AddressRecord {
  if (
    typeof json !== 'object' ||
    json === null ||
    !('restsUntil' in json) ||
    !isCount(json.restsUntil) ||
    !('rows' in json)
  )
    throw new Error('has no rows and restsUntil');
  const rows = objects(json.rows, 'addresses').map(({ address, order, endpoint, freedAt, knownAs }): PodAddressRow => {
    if (typeof address !== 'string' || formatAddress(parseAddress(address).bytes) !== address)
      throw new Error(`has ${JSON.stringify(address)}, which is not an address in canonical form`);
    // There is room for all that are given after it.
    if (!isCount(order) || order > LAST_ORDER) throw new Error(`has no order of ${address}`);
    return {
      ...{ address, order },
      ...(isCount(endpoint) ? { endpoint } : {}),
      ...(isCount(freedAt) ? { freedAt } : {}),
      ...(typeof knownAs === 'string' ? { knownAs } : {}),
    };
  });
  return { rows, restsUntil: json.restsUntil };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}
