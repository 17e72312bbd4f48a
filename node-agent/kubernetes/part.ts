import { createKubeClient } from '@weir/kube';
import { Gauge } from 'prom-client';
import { VERSION } from '../config/version.ts';
import { corePart } from '../core/part.ts';
import { nodeAddressesPart } from '../node-addresses/part.ts';
import { definePart } from '../parts/contract.ts';
import { Kubernetes } from './source.ts';

/** Inputs from the API server, and what is written to it. Built before the core starts, which waits for the first lists. */
export const kubernetesPart = definePart({
  name: 'kubernetes',
  needs: { core: corePart, nodeAddresses: nodeAddressesPart },
  build: ({ core, nodeAddresses }, { config, command, agent, log }) => {
    if (!config.kubernetes || command === 'cleanup') return undefined;
    const { kubeconfig, nodeName } = config;
    const client = createKubeClient({ kubeconfig, userAgent: `weir-agent/${VERSION}` });
    const kubernetes = new Kubernetes({
      core,
      client,
      nodeName,
      problems: () => agent.problems(),
      sources: () => agent.sources(),
      localAddresses: nodeAddresses.table,
      log,
    });
    return {
      provides: kubernetes,
      start: () => kubernetes.start(),
      stop: () => kubernetes.stop(),
      conditions: [
        { name: 'kubernetes', title: 'Kubernetes', read: () => kubernetes.status() },
        { name: 'announced-addresses', title: 'Announced addresses', read: () => kubernetes.announced() },
      ],
      metrics: (registry) => {
        new Gauge({
          name: 'weir_agent_kubernetes_connected',
          help: '1 while the API server answers.',
          registers: [registry],
          collect() {
            this.set(kubernetes.status().ok ? 1 : 0);
          },
        });
      },
    };
  },
});
