import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parsePrefix } from '@weir/net';
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
    podCidr: flag<string | undefined>(
      '--pod-cidr <prefix>',
      'addresses for pods; Node.spec.podCIDR when absent',
    ).argParser(podCidr),
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
      podCidr: () => podCidrs().find((cidr) => !cidr.includes(':')),
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

function podCidr(text: string): string {
  try {
    // An address without a length is a /32, which is too small.
    const prefix = parsePrefix(text, { requireLength: text.includes('/') });
    if (text.includes('/') && prefix.family === 4 && prefix.bits <= 30) return text;
  } catch (error) {
    throw new InvalidArgumentError(`${messageOf(error)}.`);
  }
  throw new InvalidArgumentError(
    'It must be an IPv4 prefix with its length, of at least 4 addresses, such as 10.1.0.0/24.',
  );
}
