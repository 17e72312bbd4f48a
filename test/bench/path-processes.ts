/** What agent and operator weigh when idle, and how long they take to start. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster } from '../cluster/index.ts';
import type { Program } from '../cluster/process.ts';
import type { Suite } from './suite.ts';

/** Resident memory in MB (proc(5), VmRSS). */
function residentMb(program: Program): number {
  const kb = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${program.pid}/status`, 'utf8'))?.[1];
  return Number(kb) / 1024;
}

export const processes: Suite = async function* () {
  const cluster = await Cluster.start({ nodes: 1, agents: false, operator: false });
  try {
    const began = performance.now();
    await cluster.node(1).startAgent();
    yield { case: 'agent start until healthy', value: performance.now() - began, unit: 'ms' };
    const operatorBegan = performance.now();
    cluster.startOperator();
    await cluster.createPods([{ name: 'app1', labels: { id: 'app1' }, node: 1 }]);
    yield {
      case: 'operator start until a first pod has its identity and runs',
      value: performance.now() - operatorBegan,
      unit: 'ms',
    };
    await sleep(5000);
    yield { case: 'agent memory, idle', value: residentMb(cluster.node(1).agent), unit: 'MB', goal: 100 };
    yield { case: 'operator memory, idle', value: residentMb(cluster.operator), unit: 'MB' };
  } finally {
    await cluster.stop();
  }
};
