import type { Table } from '@weir/statedb';
import { datapathPart } from '../core/datapath-part.ts';
import type { AddressRow } from '../core.ts';
import { definePart } from '../parts/contract.ts';
import { routeMonitor } from './monitor.ts';
import { NodeAddresses } from './node-addresses.ts';

export { reachable } from './local-table.ts';
export type { NodeAddresses } from './node-addresses.ts';
export type { LocalAddressRow } from './types.ts';

/** All addresses of the node are `host` to its pods. */
export const nodeAddressesPart = definePart({
  name: 'node-addresses',
  needs: { datapath: datapathPart },
  build: ({ datapath }, { db, log }) => {
    const { inNode } = datapath;
    const addresses = new NodeAddresses({ db, log, inNode });
    return {
      provides: addresses,
      // The core only reads it.
      addresses: [{ name: 'node-addresses', after: 'host', table: addresses.table as Table<AddressRow> }],
      start: () => addresses.start(),
      stop: () => addresses.stop(),
      running: [
        {
          name: 'route-monitor',
          title: 'Monitor of routes',
          start: routeMonitor(inNode, () => addresses.look()),
        },
      ],
      conditions: [
        {
          name: 'node-addresses',
          title: 'Node addresses',
          reason: 'NodeAddressesUnknown',
          read: () => {
            const problem = addresses.problem();
            if (problem !== undefined) return { ok: false, message: problem };
            using snapshot = db.read();
            return { ok: true, message: `${snapshot.count(addresses.table)} in the local routing table` };
          },
        },
      ],
    };
  },
});
