import { existsSync } from 'node:fs';
import { MAPS } from '@weir/bpf';
import { type ConfigOf, type Flag, flag, path } from '@weir/process/flags';
import { InvalidArgumentError } from 'commander';
import type { BaseConfig } from '../config/config.ts';
import type { Core, CoreOptions } from '../core.ts';
import { type AgentContext, definePart, type NodeProblem, type Removal } from '../parts/contract.ts';
import { createCore } from './create-core.ts';

const CT_ENTRIES = { min: 1024, max: 16_777_216 };

/** Adopting what is pinned takes as long as there is much of it; the agent that follows would begin anew. */
const START_WITHIN_MS = 600_000;

const flags = {
  policyEnforcement: flag<'default' | 'always' | 'never'>('--policy-enforcement <mode>', 'when endpoints are enforced')
    .choices(['default', 'always', 'never'])
    .default('default'),
  allowLocalhost: flag<boolean>(
    '--allow-localhost <bool>',
    'the node may always reach its pods unless denied explicitly',
  )
    .default(true)
    .argParser(bool),
  ctEntries: flag<number | undefined>(
    '--ct-entries <number>',
    `size of the conntrack map; ${MAPS.ct4.maxEntries} when absent`,
  ).argParser(ctEntries),
  datapathObject: flag<string | undefined>(
    '--datapath-object <file>',
    'compiled datapath, with the objects of parts beside it; built from source when absent',
  ).argParser(path),
  cgroupRoot: flag<string | undefined>(
    '--cgroup-root <dir>',
    "the node's root cgroup of version 2, for programs at sockets; where one is mounted when absent",
  ).argParser(path),
} satisfies Record<string, Flag<unknown>>;

type CoreConfig = BaseConfig & ConfigOf<typeof flags>;

/** Policies into the kernel: tables, rounds, maps and programs. */
export const corePart = definePart({
  name: 'core',
  flags,
  startWithinMs: START_WITHIN_MS,
  build: (_given, context: AgentContext<CoreConfig>) => {
    const { config } = context;
    const core = createCore(coreOptions(context));
    return {
      provides: core,
      start: () => core.start(),
      stop: () => core.stop(),
      problems: () => coreProblems(core),
      settings: {
        'allow-localhost': String(config.allowLocalhost),
        'bpf-root': config.bpfRoot,
        'policy-enforcement': config.policyEnforcement,
        'state-dir': config.stateDir,
      },
      removal: coreRemoval(core, config),
    };
  },
});

function coreOptions({ config, db, agent, log }: AgentContext<CoreConfig>): CoreOptions {
  const { ctEntries, datapathObject, cgroupRoot } = config;
  return {
    nodeName: config.nodeName,
    clusterName: config.clusterName,
    bpfRoot: config.bpfRoot,
    stateDir: config.stateDir,
    policyMode: config.policyEnforcement,
    allowLocalhost: config.allowLocalhost,
    kubernetes: config.kubernetes,
    db,
    kernel: {
      ...(datapathObject === undefined ? {} : { datapathObject }),
      ...(ctEntries === undefined ? {} : { ctEntries }),
      ...(cgroupRoot === undefined ? {} : { cgroupRoot }),
      maps: agent.maps(),
    },
    brought: () => ({ objects: agent.objects(), addresses: agent.addresses(), steps: agent.steps() }),
    log,
  };
}

/** What keeps policies from being enforced here. */
export function coreProblems(core: Pick<Core, 'held' | 'health'>): readonly NodeProblem[] {
  // An agent that starts has to wait for its inputs: a problem is what lasts.
  const held = core.held();
  const failing = core.health().checks.filter(({ name, ok }) => !ok && name !== 'inputs');
  return [
    ...(held === undefined ? [] : [{ reason: held.reason, message: held.message }]),
    ...failing.map(({ message }) => ({ reason: 'DatapathFailing', message })),
  ];
}

/** Programs, maps, pins and state; names the folders that were there. */
export function coreRemoval(core: Core, { bpfRoot, stateDir }: Pick<BaseConfig, 'bpfRoot' | 'stateDir'>): Removal {
  return {
    enforcement: async () => {
      const there = [bpfRoot, stateDir].filter((folder) => existsSync(folder));
      await core.remove();
      return there.filter((folder) => !existsSync(folder));
    },
  };
}

function bool(text: string): boolean {
  if (text !== 'true' && text !== 'false') throw new InvalidArgumentError('It must be true or false.');
  return text === 'true';
}

function ctEntries(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < CT_ENTRIES.min || value > CT_ENTRIES.max) {
    throw new InvalidArgumentError(`It must be a whole number from ${CT_ENTRIES.min} to ${CT_ENTRIES.max}.`);
  }
  return value;
}
