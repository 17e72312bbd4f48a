import { constants } from 'node:os';

/** The kernel's own errno for "this map or program type does not do that"; user space headers do not name it. */
export const ENOTSUPP = 524;

/** libbpf reports its own failures (bad ELF, unknown section) from this number up. */
const LIBBPF_ERRNO_START = 4000;
const LIBBPF_ERRNO_NAMES = [
  'LIBELF',
  'FORMAT',
  'KVERSION',
  'ENDIAN',
  'INTERNAL',
  'RELOC',
  'LOAD',
  'VERIFY',
  'PROG2BIG',
  'KVER',
  'PROGTYPE',
  'WRNGPID',
  'INVSEQ',
  'NLPARSE',
];

/** Name of an errno, for example `ENOENT`; `E<number>` when nobody names it. */
export function errnoName(errno: number): string {
  if (errno === ENOTSUPP) return 'ENOTSUPP';
  // Numbers with two names: the one that the manual pages use here.
  if (errno === constants.errno.EOPNOTSUPP) return 'EOPNOTSUPP';
  if (errno === constants.errno.EAGAIN) return 'EAGAIN';
  const own = LIBBPF_ERRNO_NAMES[errno - LIBBPF_ERRNO_START];
  if (own !== undefined) return `LIBBPF_${own}`;
  for (const [name, value] of Object.entries(constants.errno)) if (value === errno) return name;
  return `E${errno}`;
}

/** What to do about an errno that means the same in nearly every bpf(2) command. */
function usualFix(errno: number): string {
  switch (errno) {
    case constants.errno.EPERM:
      return 'needs CAP_BPF with CAP_NET_ADMIN, or CAP_SYS_ADMIN; check the container security context and lockdown mode';
    case constants.errno.ENOMEM:
      return 'the cgroup or the machine has no memory left for BPF: raise the memory limit or lower max_entries';
    case constants.errno.E2BIG:
      return 'the map is full or an argument is too large: raise max_entries and recreate the map';
    case constants.errno.ENOENT:
      return 'there is no such entry, pin or object';
    case constants.errno.EEXIST:
      return 'it exists already';
    case constants.errno.EBADF:
      return 'the descriptor is closed or is not of the expected kind';
    case constants.errno.ENODEV:
      return 'no interface has this index in the network namespace of the calling thread';
    case constants.errno.EBUSY:
      return 'another user holds it exclusively';
    case constants.errno.EINVAL:
      return 'the kernel refuses an argument or does not know this feature: compare the sizes, flags and the kernel version';
    case ENOTSUPP:
    case constants.errno.EOPNOTSUPP:
      return 'this object does not support the operation, or the kernel is too old for it';
    default:
      return 'see bpf(2) for this errno';
  }
}

/** Positive errno of an error that Node's own calls threw; 0 when it carries none. Asks no class: realms have their own. */
export function errnoOf(error: unknown): number {
  if (typeof error !== 'object' || error === null || !('errno' in error)) return 0;
  return typeof error.errno === 'number' ? Math.abs(error.errno) : 0;
}

export interface BpfErrorOptions {
  /** What was tried and on what, for example `update map "identities" (lpm_trie)`. */
  readonly operation: string;
  /** Positive errno. */
  readonly errno: number;
  /** What the caller can do; a usual answer for the errno when omitted. */
  readonly fix?: string;
}

/**
 * A system call or a call of libbpf failed. The message names the operation and the errno.
 * @fix Do what the message says after the errno.
 */
export class BpfError extends Error {
  readonly code: string = 'ERR_BPF_SYSCALL';
  readonly errno: number;
  readonly errnoName: string;
  readonly operation: string;
  readonly fix: string;

  constructor(options: BpfErrorOptions) {
    const fix = options.fix ?? usualFix(options.errno);
    super(`${options.operation}: ${errnoName(options.errno)} (${options.errno}): ${fix}`);
    this.name = 'BpfError';
    this.errno = options.errno;
    this.errnoName = errnoName(options.errno);
    this.operation = options.operation;
    this.fix = fix;
  }
}

/**
 * A batch stopped part-way: the first `done` elements are applied, and the kernel refused the element at index `done`.
 * @fix Do what the message says after the errno, then go on from `done`.
 */
export class BatchError extends BpfError {
  override readonly code = 'ERR_BPF_BATCH';
  readonly done: number;

  constructor(options: BpfErrorOptions & { readonly done: number; readonly count: number }) {
    super({
      ...options,
      operation: `${options.operation} (stopped after ${options.done} of ${options.count} elements)`,
    });
    this.name = 'BatchError';
    this.done = options.done;
  }
}

/**
 * The verifier refused a program. `excerpt` (also in the message) is the end of its log; `log` is all of it.
 * @fix Change the program, or run a kernel that accepts it.
 */
export class VerifierError extends BpfError {
  override readonly code = 'ERR_BPF_VERIFIER';
  readonly program: string;
  readonly excerpt: string;
  readonly log: string;

  constructor(options: {
    readonly operation: string;
    readonly errno: number;
    readonly program: string;
    readonly log: string;
  }) {
    const excerpt = verifierExcerpt(options.log);
    super({
      operation: options.operation,
      errno: options.errno,
      fix: `the verifier refused program "${options.program}":\n${excerpt}`,
    });
    this.name = 'VerifierError';
    this.program = options.program;
    this.excerpt = excerpt;
    this.log = options.log;
  }
}

/** Lines that only count work or describe subprograms: they never say why a program was refused. */
const NOISE =
  /^(processed \d+ insns|verification time|stack depth|mark_precise:|.*max_states_per_insn|Live regs before insn|\s*$)/;

/** The last instructions and the complaint of a verifier log: at most `lines` lines, without the statistics after them. */
export function verifierExcerpt(log: string, lines = 12): string {
  const useful = log.split('\n').filter((line) => !NOISE.test(line));
  return useful.slice(-lines).join('\n');
}

/**
 * libbpf or koffi cannot be loaded.
 * @fix Install the package `libbpf1` (Debian, Ubuntu) or `libbpf` (Fedora, Alpine).
 */
export class LibraryMissingError extends Error {
  readonly code = 'ERR_BPF_LIBRARY_MISSING';
  readonly library: string;

  constructor(library: string, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    super(
      `cannot load ${library}: ${reason}. Install the package libbpf1 (Debian, Ubuntu) or libbpf (Fedora, Alpine)`,
      {
        cause,
      },
    );
    this.name = 'LibraryMissingError';
    this.library = library;
  }
}

/**
 * The binding does not run on this machine: another processor or byte order, or a list of CPUs that it cannot read.
 * @fix Run it on Linux on x64 or arm64.
 */
export class PlatformError extends Error {
  readonly code = 'ERR_BPF_PLATFORM';

  constructor(message: string) {
    super(message);
    this.name = 'PlatformError';
  }
}

/**
 * A buffer does not have the length that the kernel would read or write. Nothing was called.
 * @fix Give a buffer of exactly the length that the message names.
 */
export class BufferLengthError extends Error {
  readonly code = 'ERR_BPF_BUFFER_LENGTH';
  readonly expected: number;
  readonly actual: number;

  constructor(what: string, expected: number, actual: number) {
    super(`${what} must be exactly ${expected} bytes long, got ${actual}`);
    this.name = 'BufferLengthError';
    this.expected = expected;
    this.actual = actual;
  }
}

/**
 * An argument is outside of its range. Nothing was called.
 * @fix Give what the message asks for.
 */
export class ArgumentError extends Error {
  readonly code = 'ERR_BPF_ARGUMENT';

  constructor(message: string) {
    super(message);
    this.name = 'ArgumentError';
  }
}
