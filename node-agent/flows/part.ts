import { datapathPart } from '../core/datapath-part.ts';
import { corePart } from '../core/part.ts';
import { definePart } from '../parts/contract.ts';
import { Flows } from './flows.ts';

/** Drops and new flows, for those who follow them (`weir monitor`). */
export const flowsPart = definePart({
  name: 'flows',
  needs: { core: corePart, datapath: datapathPart },
  build: ({ core, datapath }, { agent, db, log }) => {
    const { naming, tables } = core;
    const flows = new Flows({
      db,
      services: tables.services,
      naming,
      map: () => datapath.map('events'),
      kinds: () => agent.events(),
      sources: () => agent.eventSources(),
      peerNamings: () => agent.peerNamings(),
      log,
    });
    return {
      provides: flows,
      start: () => flows.start(),
      stop: () => flows.stop(),
      conditions: [
        {
          name: 'events',
          title: 'Flow events',
          read: () => ({ ok: flows.problem === undefined, message: flows.problem ?? 'drop events are read' }),
        },
      ],
    };
  },
});
