import { datapathPart } from '../core/datapath-part.ts';
import { definePart } from '../parts/contract.ts';
import { uplinksPart } from '../uplinks/part.ts';
import { servicesPart } from './part.ts';
import { UPLINK_SOURCE, uplinkHooks } from './programs.ts';

/** NodePorts, external addresses and those of load balancers, for clients outside of the node. Before Linux 6.6 kube-proxy has these. */
export const servicesOutsidePart = definePart({
  name: 'services-outside',
  needs: { datapath: datapathPart, services: servicesPart, uplinks: uplinksPart },
  objects: [UPLINK_SOURCE],
  build: ({ services, uplinks }) =>
    services === undefined || uplinks === undefined
      ? undefined
      : { hooks: { svc_uplink: uplinkHooks(() => uplinks.interfaces()) } },
});
