import { constants } from 'node:os';
import { ArgumentError, BpfError } from './errors.ts';
import { libbpfFunction, withLibbpfMessages } from './native.ts';
import { checkAttach } from './tcx.ts';
import type { AttachOptions, BpfProgram, TcDirection, TcLink } from './types.ts';

/** Attachment by a clsact qdisc and a bpf filter, for kernels before 6.6. It lives until it is detached. */

/** Which filter of the hook. One owner keeps to one pair, so that its own filter is found again after a restart. */
export interface ClsactSlot {
  /** 1 to 65535, lower runs first. Default 1. */
  readonly priority?: number;
  /** 1 to 4294967295. Default 1. */
  readonly handle?: number;
}

const HOOK_SIZE = 24;
const OPTS_SIZE = 32;
const POINT = { ingress: 1, egress: 2 } as const;
const REPLACE = 1;

function hookOf(ifindex: number, point: number): Buffer {
  const hook = Buffer.alloc(HOOK_SIZE);
  hook.writeBigUInt64LE(BigInt(HOOK_SIZE), 0);
  hook.writeInt32LE(ifindex, 8);
  hook.writeUInt32LE(point, 12);
  return hook;
}

interface FilterOptions extends ClsactSlot {
  readonly programFd?: number;
  readonly flags?: number;
}

function filterOptions(options: FilterOptions): Buffer {
  const bytes = Buffer.alloc(OPTS_SIZE);
  bytes.writeBigUInt64LE(BigInt(OPTS_SIZE), 0);
  bytes.writeInt32LE(options.programFd ?? 0, 8);
  bytes.writeUInt32LE(options.flags ?? 0, 12);
  bytes.writeUInt32LE(options.handle ?? 1, 20);
  bytes.writeUInt32LE(options.priority ?? 1, 24);
  return bytes;
}

/** Calls libbpf, which prints the netlink answer: it becomes part of the error. Accepts the errnos in `fine`. */
function run(operation: string, definition: string, args: Buffer[], fine: readonly number[] = []): number {
  return withLibbpfMessages((messages) => {
    const result = Number(libbpfFunction(definition)(...args));
    if (result >= 0 || fine.includes(-result)) return result;
    const said = messages.join('; ');
    throw new BpfError({ operation, errno: -result, ...(said === '' ? {} : { fix: `the kernel says: ${said}` }) });
  });
}

const HOOK_CREATE = 'int bpf_tc_hook_create(void *hook)';
const ATTACH = 'int bpf_tc_attach(void *hook, void *options)';
const DETACH = 'int bpf_tc_detach(void *hook, void *options)';
const QUERY = 'int bpf_tc_query(void *hook, void *options)';

class ClsactLink implements TcLink {
  readonly kind = 'clsact';
  readonly ifindex: number;
  readonly direction: TcDirection;
  readonly #slot: ClsactSlot;

  constructor(options: AttachOptions, slot: ClsactSlot) {
    this.ifindex = options.ifindex;
    this.direction = options.direction;
    this.#slot = slot;
  }

  id(): undefined {
    return undefined;
  }

  programId(): number {
    const id = queryClsact(this.ifindex, this.direction, this.#slot);
    if (id !== undefined) return id;
    throw new BpfError({
      operation: `read the clsact filter at ${this.direction} of interface ${this.ifindex}`,
      errno: constants.errno.ENOENT,
      fix: 'it was detached by someone else: attach again',
    });
  }

  replace(program: BpfProgram): void {
    attach(program, this, this.#slot);
  }

  pin(path: string): never {
    throw new BpfError({
      operation: `pin the clsact filter at ${path}`,
      errno: constants.errno.EOPNOTSUPP,
      fix: 'clsact filters outlive the process by themselves and cannot be pinned: only tcx links can',
    });
  }

  detach(): void {
    detachClsact(this, this.#slot);
  }

  /** Nothing to close: the filter stays. */
  close(): void {}

  [Symbol.dispose](): void {
    this.close();
  }
}

function attach(program: BpfProgram, options: AttachOptions, slot: ClsactSlot): void {
  run(`attach program "${program.name}" by clsact to ${options.direction} of interface ${options.ifindex}`, ATTACH, [
    hookOf(options.ifindex, POINT[options.direction]),
    filterOptions({ ...slot, programFd: program.fd, flags: REPLACE }),
  ]);
}

function checkSlot(slot: ClsactSlot): void {
  const { priority = 1, handle = 1 } = slot;
  if (!Number.isInteger(priority) || priority < 1 || priority > 0xffff) {
    throw new ArgumentError(`priority must be a whole number from 1 to 65535, got ${priority}`);
  }
  if (!Number.isInteger(handle) || handle < 1 || handle > 0xffffffff) {
    throw new ArgumentError(`handle must be a whole number from 1 to 4294967295, got ${handle}`);
  }
}

/**
 * Attaches by clsact, in the slot; a filter that is there is replaced atomically. A direct-action program.
 * @throws BpfError ENODEV when the calling thread's network namespace has no such interface
 */
export function attachClsact(program: BpfProgram, options: AttachOptions, slot: ClsactSlot = {}): TcLink {
  checkAttach(options);
  checkSlot(slot);
  const hook = hookOf(options.ifindex, POINT.ingress | POINT.egress);
  run(`make the clsact qdisc of interface ${options.ifindex}`, HOOK_CREATE, [hook], [constants.errno.EEXIST]);
  attach(program, options, slot);
  return new ClsactLink(options, slot);
}

/** Id of the program in the slot; undefined when there is none. */
export function queryClsact(ifindex: number, direction: TcDirection, slot: ClsactSlot = {}): number | undefined {
  checkAttach({ ifindex, direction });
  checkSlot(slot);
  const options = filterOptions(slot);
  const { ENOENT, EINVAL } = constants.errno;
  const operation = `read the clsact filter at ${direction} of interface ${ifindex}`;
  // EINVAL: the interface has no clsact qdisc at all.
  const result = run(operation, QUERY, [hookOf(ifindex, POINT[direction]), options], [ENOENT, EINVAL]);
  return result < 0 ? undefined : options.readUInt32LE(16);
}

/** Removes the filter in the slot; the qdisc stays, as others may use it. Absent is not an error. */
export function detachClsact(options: AttachOptions, slot: ClsactSlot = {}): void {
  checkAttach(options);
  checkSlot(slot);
  const { ENOENT, EINVAL } = constants.errno;
  const operation = `remove the clsact filter at ${options.direction} of interface ${options.ifindex}`;
  run(operation, DETACH, [hookOf(options.ifindex, POINT[options.direction]), filterOptions(slot)], [ENOENT, EINVAL]);
}
