/** What agents and operators weigh, and what of a core they take, at rest: 2 nodes, 20 pods, 5 policies, 60 s without a change. */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { weirCluster } from '../real/weir.ts';
import type { Suite } from './suite.ts';

const SECONDS = 60;
/** Clock ticks a second of /proc/PID/stat (sysconf(_SC_CLK_TCK), 100 on Linux). */
const TICKS = 100;

interface Sample {
  readonly rssMb: number;
  readonly cpuSeconds: number;
}

function sample(pid: number): Sample {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const [, fields = ''] = /^\d+ \(.*\) (.*)$/s.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? [];
  const [user = '0', system = '0'] = fields.split(' ').slice(11, 13);
  return {
    rssMb: Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024,
    cpuSeconds: (Number(user) + Number(system)) / TICKS,
  };
}

/** Processes of this machine that run a program of the images, in a namespace below this one. */
function processesOf(program: string, own: (pid: number) => boolean): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(program) && own(pid);
      } catch {
        return false;
      }
    });
}

export const weight: Suite = async function* () {
  const cluster = await weirCluster();
  try {
    await cluster.createPods(
      Array.from({ length: 20 }, (_, index) => ({
        name: `rest-${index}`,
        labels: { app: `app-${index % 5}` },
        node: (index % 2) + 1,
      })),
    );
    await cluster.applyObjects(
      Array.from({ length: 5 }, (_, index) => ({
        apiVersion: 'cilium.io/v2',
        kind: 'CiliumNetworkPolicy',
        metadata: { name: `rest-${index}`, namespace: 'default' },
        spec: {
          endpointSelector: { matchLabels: { app: `app-${index}` } },
          ingress: [{ fromEndpoints: [{ matchLabels: { app: `app-${(index + 1) % 5}` } }] }],
        },
      })),
    );
    await cluster.programmed('cnp/rest-0', 'cnp/rest-1', 'cnp/rest-2', 'cnp/rest-3', 'cnp/rest-4');
    const folders = cluster.nodes.map((node) => node.folder);
    const inCluster = (pid: number): boolean =>
      folders.some((folder) =>
        readFileSync(`/proc/${pid}/mountinfo`, 'utf8').includes(folder.split('/').at(-2) ?? folder),
      );
    for (const [name, program, goal] of [
      ['agent', '/app/agent.mjs', 100],
      ['operator', '/app/operator.mjs', 120],
    ] as const) {
      const pids = processesOf(program, inCluster);
      if (pids.length !== 2) throw new Error(`${pids.length} ${name} processes found, not 2`);
      const first = pids.map(sample);
      await sleep(SECONDS * 1000);
      const last = pids.map(sample);
      yield {
        case: `${name} memory at rest, the larger of two`,
        value: Math.max(...last.map(({ rssMb }) => rssMb)),
        unit: 'MB',
        goal,
      };
      yield {
        case: `${name} CPU at rest, the larger of two`,
        value:
          (100 * Math.max(...last.map(({ cpuSeconds }, index) => cpuSeconds - (first[index]?.cpuSeconds ?? 0)))) /
          SECONDS,
        unit: '% of a core',
        goal: 1,
      };
    }
  } finally {
    await cluster.stop();
  }
};
