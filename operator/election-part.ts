import { flag } from '@weir/process/flags';
import { defineProcessPart } from './parts/contract.ts';

/** Of the lease; undefined: the default of LeaderElector. */
interface Times {
  readonly leaseDurationMs: number | undefined;
  readonly renewDeadlineMs: number | undefined;
  readonly retryPeriodMs: number | undefined;
  /** Milliseconds of a clock that never goes back. */
  readonly leaseNow: (() => number) | undefined;
}

const settings: Times = {
  leaseDurationMs: undefined,
  renewDeadlineMs: undefined,
  retryPeriodMs: undefined,
  leaseNow: undefined,
};

/** Where the operators of this cluster elect who leads. */
export const electionPart = defineProcessPart({
  name: 'election',
  flags: {
    leaderElect: flag<boolean>('--leader-elect', 'write only while holding the lease')
      .default(true)
      .orNot('write at once; only where there is one replica'),
    leaderNamespace: flag<string | undefined>(
      '--leader-namespace <namespace>',
      'namespace of the lease (default: $POD_NAMESPACE, or kube-system)',
    ),
    leaderName: flag<string>('--leader-name <name>', 'name of the lease').default('weir-operator'),
  },
  settings,
  build: (_given, { config }) => {
    const {
      leaderElect,
      leaderName: name,
      identity,
      leaseDurationMs,
      renewDeadlineMs,
      retryPeriodMs,
      leaseNow,
    } = config;
    const namespace = config.leaderNamespace ?? config.namespace;
    const lease = {
      namespace,
      name,
      identity,
      ...(leaseDurationMs === undefined ? {} : { leaseDurationMs }),
      ...(renewDeadlineMs === undefined ? {} : { renewDeadlineMs }),
      ...(retryPeriodMs === undefined ? {} : { retryPeriodMs }),
      ...(leaseNow === undefined ? {} : { now: leaseNow }),
    };
    // Without a lease this process leads at once.
    return { provides: { namespace, name, lease: leaderElect ? lease : undefined } };
  },
});
