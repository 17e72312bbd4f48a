/** `node --expose-gc agent-own.ts CASE`: what the agent computes of one load, and what one change to it costs, in a process of its own. */
import { type AgentLoad, measureLoad } from './agent-loads.ts';
import { printCase } from './statedb-measure.ts';

const BASE: AgentLoad = {
  endpoints: 110,
  policies: 1000,
  identities: 5000,
  cidrs: 0,
  besides: 0,
  ports: 0,
  portPeers: 0,
};

await printCase({
  quick: () => measureLoad({ ...BASE, endpoints: 20, policies: 100, identities: 500 }),
  small: () => measureLoad(BASE),
  endpoints: () => measureLoad({ ...BASE, endpoints: 250 }),
  policies: () => measureLoad({ ...BASE, policies: 10_000 }),
  'many policies': () => measureLoad({ ...BASE, policies: 21_000 }),
  identities: () => measureLoad({ ...BASE, identities: 50_000 }),
  cidrs: () => measureLoad({ ...BASE, cidrs: 10_000 }),
  'cidrs beside': () => measureLoad({ ...BASE, endpoints: 16, policies: 32, cidrs: 40_000, besides: 15 }),
  ports: () => measureLoad({ ...BASE, ports: 40, portPeers: 1000 }),
});
