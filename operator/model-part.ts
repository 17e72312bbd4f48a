import { flag } from '@weir/process/flags';
import type { Reader } from '@weir/statedb';
import { targetsPart } from './kubernetes/targets-part.ts';
import { IDENTITIES } from './limits.ts';
import { limitsPart } from './limits-part.ts';
import { gauge } from './metrics.ts';
import { identityGcPart } from './model/identity-gc-part.ts';
import { Model } from './model/model.ts';
import { definePart } from './parts/contract.ts';
import { tablesPart } from './tables-part.ts';
import { tenantLogPart } from './tenant-log-part.ts';
import { totalsPart } from './totals-part.ts';

/** What follows from policies, pods and nodes. */
export const modelPart = definePart({
  name: 'model',
  needs: {
    tables: tablesPart,
    limits: limitsPart,
    identityGc: identityGcPart,
    totals: totalsPart,
    tenantLog: tenantLogPart,
    targets: targetsPart,
  },
  flags: {
    networkPolicyCidrMatch: flag<'all' | 'external'>(
      '--network-policy-cidr-match <whom>',
      'whom an ipBlock of a NetworkPolicy selects: every address in it, pods and nodes too, or only those outside of the cluster',
    )
      .choices(['all', 'external'])
      .default('all'),
  },
  // Between two writes of one policy's status; the first change after a while is written at once.
  settings: { statusIntervalMs: 1_000 },
  build: ({ tables, limits, identityGc, totals, tenantLog, targets }, { config, db, log }) => {
    const model = new Model({
      db,
      tables,
      cluster: config.clusterName,
      identityGraceMs: identityGc.graceMs,
      identitiesPerNamespace: limits.identitiesPerNamespace,
      policyLimits: limits,
      networkPolicyCidrs: config.networkPolicyCidrMatch,
      now: config.now,
      statusIntervalMs: config.statusIntervalMs,
      onNoIdentity: (namespace, pod, error) => {
        totals.error('identity');
        log.error(
          { namespace, pod, error: error.message },
          'pods of a namespace wait for an identity: until then they are closed on their nodes, and other nodes do not know them',
        );
      },
      onPodCidrOverlap: (overlap) => {
        totals.error('address');
        log.warn(
          { ...overlap },
          'pod CIDRs of nodes overlap: the oldest node has what they share; delete the one that is wrong, and see who registered it',
        );
      },
      onNodeAddressesLeftOut: (node, reported) => tenantLog.nodeAddressesLeftOut(node, reported),
      onAddressRefused: (refused) => tenantLog.addressRefused(refused),
    });
    targets.onStatus((key) => model.statusWritten(key));
    const read = (number: (reader: Reader) => number) => (): number => {
      using snapshot = db.read();
      return number(snapshot);
    };
    return {
      provides: model,
      metrics: (registry) => {
        gauge(
          registry,
          'identities_unused',
          'Identities that no pod has.',
          read((reader) => model.identityUse(reader).unused),
        );
        gauge(registry, 'identities_capacity', 'Most identities that the cluster can have.', () => IDENTITIES);
        gauge(
          registry,
          'identity_quotas_reached',
          'Namespaces that have as many identities as they may, unused ones included.',
          read((reader) => model.identityUse(reader).atQuota),
        );
        gauge(
          registry,
          'policies_over_budget',
          'Policies whose current version exceeds a limit.',
          read((reader) => model.overBudget(reader)),
        );
        gauge(
          registry,
          'pods_waiting_for_identity',
          'Pods for which no identity is left.',
          read((reader) => model.waitingPods(reader)),
        );
      },
    };
  },
});
