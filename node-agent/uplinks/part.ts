import { kernelNames } from 'libbpf-ts';
import { datapathPart } from '../core/datapath-part.ts';
import { corePart } from '../core/part.ts';
import { definePart } from '../parts/contract.ts';
import { UPLINK_MAPS } from './maps.ts';
import { Uplinks } from './uplinks.ts';

export { addressAt, putAddress, uplinkMap } from './maps.ts';
export type { UplinkRow } from './types.ts';
export type { Uplinks } from './uplinks.ts';

/** The node's interfaces that lead out, for parts that run programs there. Off where the kernel has no tcx (before Linux 6.6). */
export const uplinksPart = definePart({
  name: 'uplinks',
  needs: { datapath: datapathPart, core: corePart },
  maps: UPLINK_MAPS,
  build: ({ datapath, core }, { config, db, log }) => {
    if (!kernelNames('tcx_prog_attach')) return undefined;
    const uplinks = new Uplinks({
      ...{ db, log, nodeName: config.nodeName, tables: core.tables, inNode: datapath.inNode },
      map: (name) => datapath.map(name),
    });
    return {
      provides: uplinks,
      start: () => uplinks.start(),
      stop: () => uplinks.stop(),
      conditions: [
        {
          name: 'uplinks',
          title: 'Uplinks',
          reason: 'UplinksUnknown',
          read: () => {
            const problem = uplinks.problem();
            if (problem !== undefined) return { ok: false, message: problem };
            using snapshot = db.read();
            const shown = Array.from(snapshot.all(uplinks.table), ({ name, ipv4, ipv6 }) =>
              [name, ipv4, ipv6].filter((text) => text !== undefined).join(' '),
            );
            return { ok: true, message: shown.length === 0 ? 'none has an address' : shown.join(', ') };
          },
        },
      ],
    };
  },
});
