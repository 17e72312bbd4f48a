import { closeSync, existsSync, mkdirSync, statfsSync } from 'node:fs';
import { constants } from 'node:os';
import { dirname } from 'node:path';
import { BPF_FS_MAGIC, cmd } from './constants.ts';
import { BpfError, errnoOf } from './errors.ts';
import { kindOfFd, type ObjectKind } from './fd.ts';
import { lastErrno, libcFunction } from './native.ts';
import { Attr, cString } from './syscall.ts';

/** Whether a path is on a mounted bpf file system; false also when it does not exist. */
export function isBpffs(path: string): boolean {
  try {
    return statfsSync(path).type === BPF_FS_MAGIC;
  } catch (error) {
    if (errnoOf(error) === constants.errno.ENOENT) return false;
    throw error;
  }
}

/**
 * Makes sure that `path` (usually `/sys/fs/bpf`) is a bpf file system. With `mount`, mounts one there when it is not.
 * @throws BpfError ENODEV when it is not one and `mount` is false; the mount's errno when mounting fails
 */
export function ensureBpffs(path: string, options: { readonly mount?: boolean } = {}): void {
  if (isBpffs(path)) return;
  if (options.mount !== true) {
    throw new BpfError({
      operation: `use ${path} for pins`,
      errno: constants.errno.ENODEV,
      fix: `it is not a bpf file system: run "mount -t bpf bpf ${path}" on the host, or mount the host's into the container`,
    });
  }
  makeFolder(path);
  const mount = libcFunction(
    'int mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data)',
  );
  if (Number(mount('bpf', path, 'bpf', 0, 'mode=0700')) !== 0) {
    throw new BpfError({ operation: `mount a bpf file system at ${path}`, errno: lastErrno() });
  }
}

/** One level at a time: Node's own recursive form never returns where a file system refuses with ENOENT, as /proc does. */
function makeFolder(path: string): void {
  if (existsSync(path)) return;
  makeFolder(dirname(path));
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === constants.errno.EEXIST) return;
    throw new BpfError({ operation: `make the folder ${path} for pins`, errno });
  }
}

/**
 * Pins a descriptor, making parent folders. An existing pin is never replaced.
 * @throws BpfError EEXIST when the path is taken
 */
export function pinFd(fd: number, path: string, what: string): void {
  makeFolder(dirname(path));
  const attr = new Attr().pointer(0, cString(path)).u32(8, fd);
  const result = attr.try(cmd.OBJ_PIN);
  if (result >= 0) return;
  const operation = `pin ${what} at ${path}`;
  if (-result === constants.errno.EEXIST) {
    throw new BpfError({
      operation,
      errno: -result,
      fix: `a pin is there already: open it, or unlink ${path} first if it is stale`,
    });
  }
  if (-result === constants.errno.EPERM && !isBpffs(dirname(path))) {
    throw new BpfError({
      operation,
      errno: -result,
      fix: `${dirname(path)} is not on a bpf file system: call ensureBpffs or choose a path under /sys/fs/bpf`,
    });
  }
  throw new BpfError({ operation, errno: -result });
}

/**
 * Opens a pin and checks what it holds. The caller owns the descriptor.
 * @throws BpfError ENOENT when nothing is pinned there; EINVAL when it is another kind of object
 */
export function openPin(path: string, kind: ObjectKind): number {
  const operation = `open the pinned ${kind} ${path}`;
  const attr = new Attr().pointer(0, cString(path));
  const fd = attr.call(cmd.OBJ_GET, operation);
  const actual = kindOfFd(fd);
  if (actual === kind) return fd;
  closeSync(fd);
  throw new BpfError({
    operation,
    errno: constants.errno.EINVAL,
    fix: `a ${actual ?? 'different object'} is pinned there, not a ${kind}`,
  });
}
