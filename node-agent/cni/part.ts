import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { familyOf } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import { flag } from '@weir/process/flags';
import { InvalidArgumentError } from 'commander';
import type { FastifyInstance } from 'fastify';
import { Histogram, type Registry } from 'prom-client';
import { type Audit, member, some } from '../api/audit-fields.ts';
import { sendJson } from '../api/json.ts';
import { podCidrsOf } from '../core/own-node.ts';
import { corePart } from '../core/part.ts';
import { definePart, type Removal } from '../parts/contract.ts';
import { CniError } from './errors.ts';
import { podRange } from './ipam.ts';
import { podNetworkPart } from './network-part.ts';
import { commandOf } from './request.ts';
import { CniService, type CniServiceOptions } from './service.ts';
import type { CniAnswer } from './types.ts';

/** An ADD takes some 50 ms; what a runtime waits for at most is a minute and a half. */
const BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 90];

/** Attaches pods, and gives them their addresses. */
export const cniPart = definePart({
  name: 'cni',
  needs: { core: corePart, network: podNetworkPart },
  flags: {
    podCidr: flag<readonly string[] | undefined>(
      '--pod-cidr <prefixes>',
      'addresses for pods, of each family one prefix (comma-separated); Node.spec.podCIDRs when absent',
    ).argParser(podCidrsIn),
  },
  build: ({ core, network }, { config, log }) => {
    const podCidrs = (): readonly string[] => podCidrsOf(core, config);
    let onCall: NonNullable<CniServiceOptions['onCall']> = () => undefined;
    const service = new CniService({
      core,
      network,
      log,
      clusterName: config.clusterName,
      kubernetes: config.kubernetes,
      podCidrs: () => firstOfEach(podCidrs()),
      // Pins outlive agents, and no boot.
      firstHere: !existsSync(join(config.bpfRoot, 'links')),
      onCall: (call) => onCall(call),
    });
    return {
      provides: { service, podCidrs },
      start: () => service.start(),
      stop: () => service.stop(),
      conditions: [
        { name: 'addresses', title: 'Addresses', read: () => service.addresses(), reason: 'AddressConflict' },
      ],
      metrics: (registry) => {
        onCall = callMetrics(registry);
      },
      routes: (app) => cniRoute(app, (request) => service.handle(request)),
      removal: cniRemoval(service),
    };
  },
});

export function cniRemoval(service: Pick<CniService, 'close'>): Removal {
  return { refuse: () => service.close('Weir is being removed from this node') };
}

/** What the shim calls: 204 for an answer that prints nothing. */
export function cniRoute(app: FastifyInstance, handle: (request: unknown) => Promise<CniAnswer>): void {
  app.post('/cni', { config: { audit } }, async (request, reply) => {
    const answer = await handle(request.body);
    if (answer.ok && answer.body === undefined) return reply.code(204).send();
    return sendJson(reply, answer.ok ? 200 : 500, answer.body);
  });
}

/** CNI commands that change nothing. Runtimes ask STATUS every few seconds. */
const READING: readonly string[] = ['CHECK', 'STATUS', 'VERSION'];

const audit: Audit = ({ body }) => {
  const command = commandOf(body);
  if (READING.includes(command)) return undefined;
  const env = member(body, 'env');
  return {
    command,
    ...some('container', member(env, 'CNI_CONTAINERID')),
    ...some('interface', member(env, 'CNI_IFNAME')),
    ...some('netns', member(env, 'CNI_NETNS')),
    ...some('args', member(env, 'CNI_ARGS')),
  };
};

export function callMetrics(registry: Registry): NonNullable<CniServiceOptions['onCall']> {
  const calls = new Histogram({
    name: 'weir_agent_cni_duration_seconds',
    help: 'Requests of the container runtime, by command and result.',
    labelNames: ['command', 'result'] as const,
    buckets: BUCKETS,
    registers: [registry],
  });
  return ({ command, ok, seconds }) => calls.observe({ command, result: ok ? 'ok' : 'error' }, seconds);
}

/** Of each family the first, IPv4 first. */
function firstOfEach(cidrs: readonly string[]): readonly string[] {
  return ([4, 6] as const).flatMap((family) => cidrs.find((cidr) => familyOf(cidr) === family) ?? []);
}

function podCidrsIn(text: string): readonly string[] {
  const cidrs = text.split(',').map((part) => part.trim());
  try {
    for (const cidr of cidrs) podRange(cidr);
  } catch (error) {
    throw new InvalidArgumentError(`${messageOf(error)}: ${error instanceof CniError ? error.details : ''}.`);
  }
  if (firstOfEach(cidrs).length !== cidrs.length)
    throw new InvalidArgumentError('It must have one prefix of each family at most.');
  return cidrs;
}
