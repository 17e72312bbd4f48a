/** The agent core's errors. Each has a stable `code`; the message names the cause, the value and the fix. */
import { messageOf } from '@weir/process/errors';

export abstract class CoreError extends Error {
  readonly code: string;

  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
  }
}

/**
 * A file of the state folder is torn, or of another node.
 * @fix What the kernel enforces decides; the file is kept as `*.unreadable-TIME`, to look at or to delete. Imported rules must be imported
 * again.
 */
export class StateFileError extends CoreError {
  readonly file: string;

  constructor(file: string, problem: string, cause?: unknown) {
    const why = cause instanceof Error && !problem.includes(cause.message) ? `: ${cause.message}` : '';
    super('ERR_WEIR_STATE_FILE', `the state file ${file} ${problem}${why}`, cause);
    this.file = file;
  }
}

/**
 * A file of the state folder cannot be written; it keeps its last content. Nothing that is enforced depends on it.
 * @fix See the reason in the message: make the folder of `--state-dir` writable, or free space on its disk.
 */
export class StateSaveError extends CoreError {
  readonly file: string;
  /** Why, without the path: `EROFS: read-only file system`. */
  readonly reason: string;

  constructor(file: string, cause: unknown) {
    // Node's message ends in the call and its paths, which are the file's or beside it.
    const reason = messageOf(cause).replace(/, \w+( '.*)?$/s, '');
    super('ERR_WEIR_STATE_SAVE', `the state file ${file} cannot be written: ${reason}`, cause);
    this.file = file;
    this.reason = reason;
  }
}

/**
 * Imported rules that were kept over a restart are not valid any more.
 * @fix Correct them and run `weir policy import` again, or `weir policy delete --all`. Until then what was enforced stays.
 */
export class ImportedRulesError extends CoreError {
  constructor(problem: string) {
    super('ERR_WEIR_IMPORTED_RULES', `the imported rules are not valid any more: ${problem}`);
  }
}

/**
 * A plan of what to put in force broke off by an unexpected error. The agent ends, and restarts with all that it knows.
 * @fix What the kernel enforces stays meanwhile. Where it happens again, report the error with its stack, which the log has.
 */
export class PlanLostError extends CoreError {
  constructor(cause: unknown) {
    super('ERR_WEIR_PLAN_LOST', `a plan broke off: ${messageOf(cause)}`, cause);
  }
}

/**
 * The BPF object of a part does not fit into the agent.
 * @fix It is a mistake in the part that brings the object: correct what the message names.
 */
export class ProgramObjectError extends CoreError {
  constructor(object: string, problem: string) {
    super('ERR_WEIR_PROGRAM_OBJECT', `BPF object ${object} ${problem}`);
  }
}

/**
 * A program is to run at the sockets of the node, and the node's root cgroup of version 2 is not to be seen.
 * @fix Mount it (`mount -t cgroup2 none /sys/fs/cgroup`), or name its folder by `--cgroup-root`.
 */
export class CgroupMissingError extends CoreError {
  constructor(hook: string, folder: string | undefined) {
    const what = folder === undefined ? '' : `: ${folder} is no cgroup`;
    super(
      'ERR_WEIR_CGROUP_MISSING',
      `${hook} has no cgroup to run for${what}: mount a cgroup of version 2, or name its folder by --cgroup-root`,
    );
  }
}

/**
 * The folder for pins (`--bpf-root`) cannot be made.
 * @fix Choose a folder on a BPF filesystem, such as /sys/fs/bpf/weir (names without dots).
 */
export class PinRootError extends CoreError {
  constructor(bpfRoot: string, cause: unknown) {
    super(
      'ERR_WEIR_PIN_ROOT',
      `cannot create the bpf root ${bpfRoot}: ${messageOf(cause)}; choose a folder on a BPF filesystem, such as /sys/fs/bpf/weir (names without dots)`,
      cause,
    );
  }
}

/**
 * Another agent drives the same maps, or keeps its state in the same folder.
 * @fix Stop it first: a node runs one agent.
 */
export class AgentRunningError extends CoreError {
  /** @param does what this agent would do, too */
  constructor(does: string, pid: number | undefined) {
    const who = pid === undefined ? 'another process' : `process ${pid}`;
    super('ERR_WEIR_AGENT_RUNNING', `${who} already ${does}: stop it first, a node runs one agent`);
  }
}

/**
 * The core of the agent was used before it was started, or after it was stopped.
 * @fix Wait until `weir status` answers. If it stays, report it, with the log.
 */
export class NotStartedError extends CoreError {
  constructor(what: string) {
    super('ERR_WEIR_NOT_STARTED', `cannot ${what}: the core is not running; call start() first`);
  }
}

/**
 * What maps hold cannot be compared with what is wanted before the agent has put its first plan in force.
 * @fix Wait until `weir status` says that the agent has all its inputs, then try again.
 */
export class VerifyLaterError extends CoreError {
  constructor() {
    super(
      'ERR_WEIR_VERIFY_LATER',
      'the agent has enforced nothing since it started: map contents cannot be compared yet',
    );
  }
}

/**
 * There is no map of this name.
 * @fix Use a name that `weir map list` prints.
 */
export class UnknownMapError extends CoreError {
  constructor(name: string, known: readonly string[]) {
    super('ERR_WEIR_UNKNOWN_MAP', `there is no map ${JSON.stringify(name)}; the maps are ${known.join(', ')}`);
  }
}

/**
 * A map has more entries than one answer holds.
 * @fix Read it as the message says: one slot alone, or with bpftool.
 */
export class MapTooLargeError extends CoreError {
  constructor(limit: number, otherwise: string) {
    super(
      'ERR_WEIR_MAP_TOO_LARGE',
      `there are more than ${limit} entries, which is more than one answer holds: read ${otherwise}`,
    );
  }
}

/**
 * An endpoint given over the API is not valid.
 * @fix Correct what the message names.
 */
export class InvalidEndpointError extends CoreError {
  constructor(id: number, problem: string) {
    super('ERR_WEIR_INVALID_ENDPOINT', `endpoint ${id} is not valid: ${problem}`);
  }
}

/**
 * An endpoint is not enforced as wanted within the time; until it is, it stays fail closed.
 * @fix See the reason in the message, and `weir endpoint get ID`.
 */
export class EndpointNotReadyError extends CoreError {
  readonly endpoint: number;
  /** For something that comes from elsewhere; otherwise the kernel refused it, or was not asked in time. */
  readonly waits: boolean;

  constructor(
    endpoint: number,
    waitedMs: number,
    reason: string,
    { waits, cause }: { readonly waits: boolean; readonly cause?: unknown },
  ) {
    super('ERR_WEIR_ENDPOINT_NOT_READY', `endpoint ${endpoint} is not ready after ${waitedMs} ms: ${reason}`, cause);
    this.endpoint = endpoint;
    this.waits = waits;
  }
}

/**
 * All numbers of a kind (endpoints, slots) are in use.
 * @fix Remove some of what the message names.
 */
export class IdsExhaustedError extends CoreError {
  constructor(what: string, limit: number) {
    super('ERR_WEIR_EXHAUSTED', `all ${limit} ${what} are in use: remove some first`);
  }
}

/**
 * A write waits for another write to the kernel, so that no packet is judged by half of a change. It is retried.
 * @fix None is needed, unless it stays: then see `weir status` for what the kernel refuses.
 */
export class OrderError extends CoreError {
  constructor(message: string) {
    super('ERR_WEIR_ORDER', message);
  }
}

/**
 * A policy slot would hold more rows than it has room for. It is retried: rows that nothing needs any more go within seconds.
 * @fix Edit its policies less often, or have them need fewer rows.
 */
export class SlotFullError extends CoreError {
  constructor(slot: number, rows: number, limit: number) {
    super(
      'ERR_WEIR_SLOT_FULL',
      `policy slot ${slot} would have ${rows} rows, including rows that edits left behind, and a slot has room for ${limit}: its policies change faster than old rows are removed; edit them less often, or write policies that need fewer rows`,
    );
  }
}

/**
 * The interface of an endpoint does not exist in the network namespace of the agent.
 * @fix Delete the endpoint, or run the agent in the node's network namespace.
 */
export class InterfaceGoneError extends CoreError {
  constructor(endpoint: number, ifindex: number, cause: unknown) {
    super(
      'ERR_WEIR_INTERFACE_GONE',
      `endpoint ${endpoint}: no interface has index ${ifindex} in the agent's network namespace: delete the endpoint, or run the agent in the node's network namespace`,
      cause,
    );
  }
}

/**
 * A program of the agent is not at its place in an interface's chain.
 * @fix See who attaches programs to that interface: the message names the program that runs before it.
 */
export class LinkError extends CoreError {
  constructor(problem: string) {
    super('ERR_WEIR_LINK', problem);
  }
}

/**
 * The agent was started in another network namespace than the one that its pins enforce in.
 * @fix Start it in the node's network namespace (`hostNetwork: true`).
 */
export class NetnsMismatchError extends CoreError {
  /** `recorded`: cookie of the namespace that the pins are of, as far as that is known. */
  constructor(
    bpfRoot: string,
    options: { readonly here: bigint; readonly recorded?: string; readonly endpoints: number },
  ) {
    const { here, recorded, endpoints } = options;
    const other = recorded === undefined ? 'another one' : `network namespace ${recorded}`;
    super(
      'ERR_WEIR_NETNS',
      `this process sees the interfaces of network namespace ${here} (its SO_NETNS_COOKIE), and what is pinned under ${bpfRoot} enforces ${endpoints} endpoints in ${other}: ` +
        "start it in the node's network namespace (hostNetwork: true in Kubernetes). Nothing was changed, and what is pinned goes on enforcing. If that namespace " +
        `is to be given up, remove ${bpfRoot}: its programs are detached by that`,
    );
  }
}

/**
 * Something of the datapath could not be removed; it goes on enforcing.
 * @fix Mend what the message names, and try again.
 */
export class RemoveError extends CoreError {
  constructor(what: string, count: number, cause: unknown) {
    const more = count > 1 ? ` (and ${count - 1} more)` : '';
    const why = messageOf(cause);
    super('ERR_WEIR_REMOVE', `cannot remove ${what}${more}: ${why}. What is left goes on enforcing; try again`, cause);
  }
}
