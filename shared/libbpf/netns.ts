import { closeSync, openSync } from 'node:fs';
import { ArgumentError, BpfError, errnoOf } from './errors.ts';
import { lastErrno, libcFunction } from './native.ts';
import { socketOption } from './socket-option.ts';

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

const SO_NETNS_COOKIE = 71;
const AF_UNIX = 1;
const SOCK_CLOEXEC = 0o2000000;
const SOCK_DGRAM = 2;

/**
 * What tells the calling thread's network namespace from every other one of this boot, ended ones included (Linux 5.14: SO_NETNS_COOKIE
 * in socket(7)).
 */
export function netnsCookie(): bigint {
  const operation = 'read the cookie of the network namespace';
  const socket = libcFunction('int socket(int domain, int type, int protocol)');
  const fd = Number(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd < 0) throw new BpfError({ operation, errno: lastErrno() });
  try {
    return socketOption(fd, SO_NETNS_COOKIE, 8, operation).readBigUInt64LE();
  } finally {
    closeSync(fd);
  }
}

/** The name of an interface of the calling thread's network namespace; undefined when it has none of this index. */
export function interfaceName(ifindex: number): string | undefined {
  const IF_NAMESIZE = 16;
  const name = Buffer.alloc(IF_NAMESIZE);
  const found = libcFunction('void *if_indextoname(unsigned int index, void *name)')(ifindex, name);
  return found === null ? undefined : name.toString('utf8', 0, name.indexOf(0));
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
