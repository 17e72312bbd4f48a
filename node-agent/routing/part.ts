import { flag } from '@weir/process/flags';
import { Gauge, type Registry } from 'prom-client';
import { podNetworkPart } from '../cni/network-part.ts';
import { corePart } from '../core/part.ts';
import { type RunCommand, runCommand } from '../host/command.ts';
import { definePart, type Removal } from '../parts/contract.ts';
import { removeRoutes } from './kernel.ts';
import { NodeRouting } from './routing.ts';

/** Routes to the pods of other nodes. */
export const routingPart = definePart({
  name: 'routing',
  needs: { core: corePart, network: podNetworkPart },
  flags: {
    routing: flag<'direct' | 'none'>(
      '--routing <mode>',
      "direct: routes to other nodes' pods by their InternalIP; none: the network has them",
    )
      .choices(['direct', 'none'])
      .default('direct'),
  },
  build: ({ core, network }, { config, db, log }) => {
    const { nodeName, routing: mode } = config;
    const { nodes } = core.tables;
    const routing = new NodeRouting({ db, nodes, nodeName, mode, log, forward: (family) => network.forward(family) });
    return {
      start: () => routing.start(),
      stop: () => routing.stop(),
      conditions: [{ name: 'routing', title: 'Routing', read: () => routing.status(), reason: 'RoutesMissing' }],
      metrics: (registry) => routeMetrics(routing, registry),
      settings: { routing: mode },
      removal: routingRemoval(routing, runCommand),
    };
  },
});

export function routingRemoval(routing: Pick<NodeRouting, 'stop'>, run: RunCommand): Removal {
  return {
    network: async () => {
      // Or it would make them again.
      await routing.stop();
      return await removeRoutes(run);
    },
  };
}

export function routeMetrics(routing: Pick<NodeRouting, 'status'>, registry: Registry): void {
  const gauge = (name: string, help: string, value: () => number): void => {
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(value());
      },
    });
  };
  gauge('weir_agent_routes', "Routes to other nodes' pods that this node is to have.", () => routing.status().wanted);
  gauge(
    'weir_agent_route_errors',
    "Routes to other nodes' pods that cannot be made.",
    () => routing.status().failing.length,
  );
}
