import { podNetworkPart } from '../cni/network-part.ts';
import { cniPart } from '../cni/part.ts';
import { VERSION } from '../config/version.ts';
import { corePart } from '../core/part.ts';
import { flowsPart } from '../flows/part.ts';
import { definePart } from '../parts/contract.ts';
import { ApiServer } from './server.ts';
import { claimSocketPath } from './socket.ts';

/** Requests of the runtime that still wait for the kernel this long after a stop began are given up, in milliseconds. */
const CNI_GRACE_MS = 2500;

/** Before the core: a second agent must not touch the maps of the first. */
export const socketPart = definePart({
  name: 'socket',
  build: (_given, { config }) => ({ start: () => claimSocketPath(config.socket) }),
});

/** The API on the socket. */
export const apiPart = definePart({
  name: 'api',
  needs: { core: corePart, flows: flowsPart, network: podNetworkPart, cni: cniPart },
  build: ({ core, flows, network, cni: { service, podCidrs } }, { config, agent, log }) => {
    const { socket, nodeName, clusterName, kubernetes } = config;
    const api = new ApiServer({
      core,
      flows,
      log,
      socket,
      version: VERSION,
      nodeName,
      clusterName,
      kubernetes,
      agent,
      detach: (endpoint) => service.detach(endpoint),
      interfaceIndex: (name) => network.interfaceIndex(name),
      podCidrs,
      resting: () => service.resting(),
    });
    return {
      start: () => api.start(),
      stop: async () => {
        service.endWithin(CNI_GRACE_MS);
        await api.stop();
      },
      conditions: [{ name: 'socket', title: 'Socket', read: () => api.listening(), vital: true }],
    };
  },
});
