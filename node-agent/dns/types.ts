import type { Table } from '@weir/statedb';
import type { DnsName } from './protocol.ts';

/** An address that a name has for an endpoint, as the proxy told. */
export type FqdnRow = Omit<DnsName, 'type'>;

export type FqdnTable = Table<FqdnRow, 'endpoint' | 'address'>;
