import { existsSync } from 'node:fs';
import { type ConfigOf, type Flag, flag } from '@weir/process/flags';
import { InvalidArgumentError } from 'commander';
import type { BaseConfig } from '../config/config.ts';
import type { Core, CoreOptions } from '../core.ts';
import { type AgentContext, definePart, type NodeProblem, type Removal } from '../parts/contract.ts';
import { createCore } from './create-core.ts';
import { datapathPart } from './datapath-part.ts';

/** Adopting pins takes longer the more there are. An agent that is ended meanwhile would have to start over. */
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
} satisfies Record<string, Flag<unknown>>;

type CoreConfig = BaseConfig & ConfigOf<typeof flags>;

/** Policies into the kernel: tables, and rounds of writes. */
export const corePart = definePart({
  name: 'core',
  needs: { datapath: datapathPart },
  flags,
  startWithinMs: START_WITHIN_MS,
  build: ({ datapath }, context: AgentContext<CoreConfig>) => {
    const { config } = context;
    const core = createCore(coreOptions(context), datapath);
    return {
      provides: core,
      start: () => core.start(),
      stop: () => core.stop(),
      problems: () => coreProblems(core),
      settings: {
        'allow-localhost': String(config.allowLocalhost),
        'policy-enforcement': config.policyEnforcement,
        'state-dir': config.stateDir,
      },
      removal: coreRemoval(core, config),
    };
  },
});

function coreOptions({ config, db, agent, log }: AgentContext<CoreConfig>): CoreOptions {
  return {
    nodeName: config.nodeName,
    clusterName: config.clusterName,
    bpfRoot: config.bpfRoot,
    stateDir: config.stateDir,
    policyMode: config.policyEnforcement,
    allowLocalhost: config.allowLocalhost,
    kubernetes: config.kubernetes,
    db,
    // Nobody catches it: the process ends, and its successor computes everything again.
    onLost: (error) =>
      setImmediate(() => {
        throw error;
      }),
    brought: () => ({ addresses: agent.addresses(), steps: agent.steps() }),
    log,
  };
}

/** What keeps policies from being enforced here. */
export function coreProblems(core: Pick<Core, 'rulesWait' | 'health'>): readonly NodeProblem[] {
  // An agent that starts has to wait for its inputs: a problem is what lasts.
  const waiting = core.rulesWait();
  const failing = core.health().checks.filter(({ name, ok }) => !ok && name !== 'inputs');
  return [
    ...(waiting === undefined ? [] : [waiting]),
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
