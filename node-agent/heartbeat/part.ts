import { flag, type NamespacedName, namespacedName } from '@weir/process/flags';
import { Gauge } from 'prom-client';
import { definePart } from '../parts/contract.ts';
import { OperatorHeartbeat } from './heartbeat.ts';

/** Says when no operator leads: nothing else on a node would show it. */
export const heartbeatPart = definePart({
  name: 'heartbeat',
  flags: {
    operatorHeartbeat: flag<NamespacedName>(
      '--operator-heartbeat <namespace/name>',
      'the Lease by which the operator says that it leads',
    )
      .default({ namespace: 'kube-system', name: 'weir-operator-heartbeat' }, 'kube-system/weir-operator-heartbeat')
      .argParser(namespacedName('kube-system/weir-operator-heartbeat')),
  },
  build: (_given, { config, command, db }) => {
    if (!config.kubernetes || command === 'cleanup') return undefined;
    const heartbeat = new OperatorHeartbeat(db, config.operatorHeartbeat, () => performance.now());
    return {
      sources: [heartbeat.source],
      conditions: [
        { name: 'operator', title: 'Operator', reason: 'NoOperatorLeads', read: () => heartbeat.condition() },
      ],
      metrics: (registry) => {
        new Gauge({
          name: 'weir_agent_operator_heartbeat_age_seconds',
          help: "Since the operator's last heartbeat came; without one, since the agent's start.",
          registers: [registry],
          collect() {
            this.set(heartbeat.age / 1000);
          },
        });
      },
    };
  },
});
