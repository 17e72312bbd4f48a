import { closeSync, openSync } from 'node:fs';
import { ArgumentError, BpfError, errnoOf } from './errors.ts';
import { lastErrno, libcFunction } from './native.ts';

const CLONE_NEWNET = 0x40000000;

/**
 * Runs `body` with the calling thread in the network namespace at `path` (for example `/proc/<pid>/ns/net`,
 * `/run/netns/<name>`), and returns to the old one afterwards, also when `body` throws.
 *
 * Only synchronous work is meant: interface indexes, tc hooks and sockets made in `body` are of that namespace. Work that
 * continues later would run in the old namespace, so that a `body` which returns a promise is an error.
 *
 * @throws ArgumentError when `body` is asynchronous; BpfError when the namespace cannot be opened or entered
 */
export function inNetns<T>(path: string, body: () => T): T {
  // Not /proc/self, which is the main thread's namespace even in a worker.
  const home = openNamespace('/proc/thread-self/ns/net');
  try {
    const target = openNamespace(path);
    try {
      enter(target, path);
    } finally {
      closeSync(target);
    }
    let result: T;
    try {
      result = body();
    } finally {
      enter(home, 'the thread started from');
    }
    if (isThenable(result)) {
      throw new ArgumentError(
        `the function run in network namespace ${path} returned a promise: its later steps would run outside; make it synchronous`,
      );
    }
    return result;
  } finally {
    closeSync(home);
  }
}

function openNamespace(path: string): number {
  try {
    return openSync(path, 'r');
  } catch (error) {
    throw new BpfError({
      operation: `open the network namespace ${path}`,
      errno: errnoOf(error),
      fix: 'the process or the pod is gone, or /proc or /run/netns of the host is not mounted here',
    });
  }
}

function enter(fd: number, path: string): void {
  if (Number(libcFunction('int setns(int fd, int type)')(fd, CLONE_NEWNET)) === 0) return;
  throw new BpfError({
    operation: `enter the network namespace ${path}`,
    errno: lastErrno(),
    fix: 'needs CAP_SYS_ADMIN, and the path must be that of a network namespace',
  });
}

function isThenable(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
}
