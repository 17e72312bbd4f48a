import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { messageOf } from '@weir/process/errors';
import { isBpffs } from 'libbpf-ts';
import { type RunCommand, runCommand } from '../host/command.ts';
import { PreflightError } from './errors.ts';

/** Where the BPF filesystem that holds the pins is mounted. */
export function mountPointOf(bpfRoot: string): string {
  return bpfRoot.startsWith('/sys/fs/bpf/') ? '/sys/fs/bpf' : dirname(bpfRoot);
}

/**
 * Makes sure that the node has a BPF filesystem for the pins: nothing to do on most, where systemd mounts it. Else it is mounted with the
 * node's own `mount` in the mount namespace of process 1, so that it outlives the container. Returns what was done. Throws `PreflightError`.
 */
export async function mountBpffs(options: {
  readonly bpfRoot: string;
  /** The node's /proc; /proc itself when there is no such folder. */
  readonly hostProc: string;
  readonly run?: RunCommand;
}): Promise<string> {
  const at = mountPointOf(options.bpfRoot);
  if (isBpffs(at)) return `${at} is a BPF filesystem already`;
  const proc = existsSync(options.hostProc) ? options.hostProc : '/proc';
  const fix = `run "mount -t bpf bpf ${at}" on the node, and set agent.mountBpffs=false in the chart's values`;
  try {
    const run = options.run ?? runCommand;
    await run('nsenter', [`--mount=${join(proc, '1/ns/mnt')}`, 'mount', '-t', 'bpf', 'bpf', at]);
  } catch (error) {
    throw new PreflightError(`a BPF filesystem could not be mounted at ${at} of the node: ${messageOf(error)}; ${fix}`);
  }
  if (isBpffs(at) || isBpffs(join(proc, '1/root', at))) return `a BPF filesystem is mounted at ${at} of the node`;
  throw new PreflightError(`${at} is no BPF filesystem, though mounting it did not fail; ${fix}`);
}
