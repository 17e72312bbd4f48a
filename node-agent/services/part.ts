import { resources } from '@weir/kube';
import { flag, type HostPort, hostPort } from '@weir/process/flags';
import { kernelNames } from 'libbpf-ts';
import { datapathPart } from '../core/datapath-part.ts';
import { corePart } from '../core/part.ts';
import { definePart, type PartCondition } from '../parts/contract.ts';
import { last, TableSink } from '../parts/table-sink.ts';
import { BackendNames } from './backend-names.ts';
import { type Closing, SocketCloser } from './closing.ts';
import { serviceRoutes } from './faces.ts';
import { ServiceHealth } from './health.ts';
import { SERVICE_MAPS } from './maps.ts';
import { serviceMetrics } from './metrics.ts';
import { POD_HOOKS, SOCKET_HOOKS, SOURCE } from './programs.ts';
import { serviceObjectParts, sliceParts } from './rows.ts';
import { Services } from './services.ts';

/** Services: their addresses are translated to backends before policy judges. */
export const servicesPart = definePart({
  name: 'services',
  needs: { datapath: datapathPart, core: corePart },
  flags: {
    services: flag<'on' | 'off'>(
      '--services <on|off>',
      'on: what pods and the node send to a Service goes to a backend, and policy judges that; off: kube-proxy translates',
    )
      .choices(['on', 'off'])
      .default('on'),
    servicesHealthz: flag<HostPort | undefined>(
      '--services-healthz <host:port>',
      'kube-proxy does not run: answer load balancers as it does, at this address, usually :10256, and at healthCheckNodePorts of Services',
    ).argParser(hostPort),
    servicesCloseSockets: flag<Closing>(
      '--services-close-sockets <off|udp|all>',
      'sockets that are connected to a backend of a Service which is gone: udp: those of UDP are closed, so that their owners connect to another; all: those of TCP, too; off: none',
    )
      .choices(['off', 'udp', 'all'])
      .default('udp'),
  },
  maps: SERVICE_MAPS,
  objects: [SOURCE],
  build: ({ datapath, core }, { config, db, log }) => {
    if (config.services === 'off') return undefined;
    const services = new Services({
      db,
      map: (name) => datapath.map(name),
      nodes: core.tables.nodes,
      nodeName: config.nodeName,
      log,
    });
    const { objects, slices } = services.tables;
    const { nodeName, servicesHealthz: healthz } = config;
    // Part `services-outside` is on.
    const outside = healthz !== undefined && kernelNames('tcx_prog_attach');
    // Beside kube-proxy the ports are its own.
    const health =
      healthz === undefined
        ? undefined
        : new ServiceHealth({
            ...{ db, tables: services.tables, nodeName, log, healthz },
            translates: () => outside && services.complete(),
          });
    const closing = config.servicesCloseSockets;
    const closer =
      closing === 'off'
        ? undefined
        : new SocketCloser({
            ...{ db, log, closing, slices, endpoints: core.tables.endpoints },
            sockets: () => datapath.map('svc_sockets'),
            settled: () => services.settled(),
          });
    return {
      provides: services,
      sources: [
        {
          resource: resources.Service,
          sink: new TableSink({ db, log, table: objects, parts: serviceObjectParts, merge: last }),
        },
        {
          resource: resources.EndpointSlice,
          sink: new TableSink({ db, log, table: slices, parts: sliceParts, merge: last }),
        },
      ],
      routes: (app) => serviceRoutes(app, services.faces),
      metrics: (registry) => serviceMetrics(services.faces, registry),
      peerNaming: new BackendNames(services.faces),
      settings: { services: config.services },
      hooks: { services: [...POD_HOOKS, ...(datapath.cgroup === undefined ? [] : SOCKET_HOOKS)] },
      start: () => {
        services.start();
        health?.start();
        closer?.start();
      },
      stop: async () => {
        await closer?.stop();
        await health?.stop();
        await services.stop();
      },
      conditions: [
        ...conditionsOf(services, datapath.cgroup),
        ...(health === undefined ? [] : [healthCondition(health, outside)]),
      ],
    };
  },
});

export function servicesCondition(services: Services): PartCondition {
  return {
    name: 'services',
    title: 'Services',
    reason: 'ServicesFailing',
    read: () => {
      const failures = services.failures();
      const [first] = failures.values();
      if (first !== undefined) {
        const more = failures.size > 1 ? ` (and ${failures.size - 1} more; see weir service list)` : '';
        return { ok: false, message: `${first.service}: ${first.message}${more}` };
      }
      const [address, ...others] = services.failingAddresses();
      if (address !== undefined) {
        const more = others.length > 0 ? ` (and ${others.length} more)` : '';
        return { ok: false, message: `address ${address.address}: ${address.message}${more}` };
      }
      if (!services.complete())
        return { ok: true, message: 'waits for the API server; the kernel goes on with what it has' };
      return { ok: true, message: 'the kernel has all frontends' };
    },
  };
}

function conditionsOf(services: Services, cgroup: string | undefined): PartCondition[] {
  return [
    servicesCondition(services),
    {
      name: 'service-sockets',
      title: 'Service sockets',
      read: () =>
        cgroup === undefined
          ? {
              ok: false,
              message:
                'the node has no root cgroup of version 2 (see --cgroup-root): Services of IPv4 are translated packet by packet, and from pods alone',
            }
          : { ok: true, message: `translated for all processes below ${cgroup}` },
    },
  ];
}

/** @param outside whether the kernel can have programs that translate for clients outside of the node */
export function healthCondition(health: Pick<ServiceHealth, 'failing'>, outside: boolean): PartCondition {
  return {
    name: 'services-health',
    title: 'Health for load balancers',
    read: () => {
      const [first, ...others] = health.failing();
      if (first === undefined && !outside)
        return {
          ok: false,
          message:
            'load balancers see this node as not serving: before Linux 6.6 only kube-proxy translates for clients outside of it',
        };
      if (first === undefined) return { ok: true, message: 'served' };
      const more = others.length > 0 ? ` (and ${others.length} more)` : '';
      return { ok: false, message: `${first.name}: ${first.message}${more}` };
    },
  };
}
