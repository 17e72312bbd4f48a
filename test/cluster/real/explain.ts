/** What a cluster can say about why something does not come up, for the text of an error: a failing test explains itself. */
import type { Kubectl } from '../kubectl.ts';

interface Container {
  readonly name: string;
  readonly ready?: boolean;
  readonly restartCount?: number;
}

interface Pod {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: { readonly nodeName?: string };
  readonly status: {
    readonly phase?: string;
    readonly initContainerStatuses?: readonly Container[];
    readonly containerStatuses?: readonly Container[];
  };
}

const LINES = 30;

/** Nodes, pods, warnings, and of each pod that is not well its description and the end of its logs. */
export async function explain(kubectl: Kubectl, namespace: string): Promise<string> {
  const say = async (...args: readonly string[]) => {
    const { stdout, stderr } = await kubectl.attempt(args);
    return `$ kubectl ${args.join(' ')}\n${(stdout + stderr).trim()}`;
  };
  const parts = [
    await say('get', 'nodes', '-o', 'wide'),
    await say('get', 'pods', '-A', '-o', 'wide'),
    await say('get', 'events', '-n', namespace, '--field-selector=type=Warning', '--sort-by=.lastTimestamp'),
  ];
  const { code, stdout } = await kubectl.attempt(['get', 'pods', '-n', namespace, '-o', 'json']);
  const pods = code === 0 ? (JSON.parse(stdout) as { readonly items: readonly Pod[] }).items : [];
  for (const { metadata, status } of pods.filter(({ status: now }) => !well(now)).slice(0, 6)) {
    parts.push(tail(await say('describe', 'pod', metadata.name, '-n', namespace), LINES));
    const containers = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])];
    for (const { name, restartCount = 0 } of containers) {
      const logs = ['logs', metadata.name, '-n', namespace, '-c', name, `--tail=${LINES}`];
      parts.push(await say(...logs));
      if (restartCount > 0) parts.push(await say(...logs, '--previous'));
    }
  }
  return parts.join('\n\n');
}

const well = (status: Pod['status']): boolean =>
  status.phase === 'Succeeded' ||
  (status.phase === 'Running' && (status.containerStatuses ?? []).every(({ ready }) => ready === true));

const tail = (text: string, lines: number): string => text.split('\n').slice(-lines).join('\n');
