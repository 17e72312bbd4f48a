import type { MapSpec, ProgramObject } from '@weir/bpf';
import { type BpfMap, inNetns } from 'libbpf-ts';
import type { CoreOptions, KernelOptions, Logger } from '../core.ts';
import { NotStartedError, UnknownMapError } from '../errors.ts';
import { cgroupAt, mountedCgroup } from '../host/cgroup.ts';
import type { InNode } from './link-table.ts';
import { RootLock } from './lock.ts';
import { NetnsMark } from './netns-mark.ts';
import { PartPrograms } from './part-programs.ts';
import { PinnedDatapath } from './pins.ts';

export interface DatapathSettings {
  readonly bpfRoot: string;
  readonly stateDir: string;
  /** Default: the namespace of this process. */
  readonly nodeNetns?: string;
  readonly kernel?: KernelOptions;
  /** Maps of parts, beside those of `kernel`; asked for at the start. */
  readonly maps?: () => readonly MapSpec[];
  /** Programs of parts; asked for at the start. */
  readonly objects?: () => readonly ProgramObject[];
  readonly log: Logger;
}

/** What is open while it runs. */
export interface OpenDatapath {
  readonly lock: RootLock;
  readonly netns: NetnsMark;
  readonly pinned: PinnedDatapath;
  readonly programs: PartPrograms;
}

/**
 * The maps and programs of one node: locked, opened or made, and closed. Whoever writes the maps starts after it.
 *
 * Guarantees: of one node's pins there is one in all processes; what is pinned enforces before the start, while it runs, and after the stop.
 */
export class Datapath {
  /** Runs something in the node's network namespace. */
  readonly inNode: InNode;
  /** The node's root cgroup of version 2; undefined where there is none. */
  readonly cgroup: string | undefined;
  readonly #settings: DatapathSettings;
  #open: OpenDatapath | undefined;

  constructor(settings: DatapathSettings) {
    this.#settings = settings;
    this.inNode = nodeScope(settings);
    const { cgroupRoot } = settings.kernel ?? {};
    this.cgroup = cgroupRoot === undefined ? mountedCgroup() : cgroupAt(cgroupRoot);
  }

  /** @throws AgentRunningError, NetnsMismatchError, PinRootError, BpfError, DatapathBuildError, ProgramObjectError, CgroupMissingError */
  start(): void {
    if (this.#open !== undefined) return;
    const { bpfRoot, stateDir, log } = this.#settings;
    const lock = new RootLock(bpfRoot, stateDir, log);
    lock.acquire();
    try {
      const netns = new NetnsMark(bpfRoot, this.inNode);
      netns.check();
      this.#open = { lock, netns, ...this.#openPins() };
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  #openPins(): Pick<OpenDatapath, 'pinned' | 'programs'> {
    const { bpfRoot: root, kernel = {}, objects, log } = this.#settings;
    const { datapathObject, ctEntries } = kernel;
    const pinned = PinnedDatapath.open({
      root,
      more: this.#more(),
      ...(datapathObject === undefined ? {} : { object: datapathObject }),
      ...(ctEntries === undefined ? {} : { ctEntries }),
    });
    try {
      if (pinned.replaced.length > 0)
        log.info({ maps: pinned.replaced }, 'made new maps beside those whose size or layout has changed');
      const programs = PartPrograms.open({
        root,
        objects: objects?.() ?? [],
        maps: { ...pinned.maps, ...Object.fromEntries(pinned.more.map(({ spec, map }) => [spec.name, map])) },
        ...(datapathObject === undefined ? {} : { datapathObject }),
        cgroup: this.cgroup,
        inNode: this.inNode,
      });
      const made = pinned.pinMore();
      if (made.length > 0) log.info({ maps: made }, 'created maps of parts');
      return { pinned, programs };
    } catch (error) {
      pinned.close();
      throw error;
    }
  }

  /** @throws NotStartedError */
  open(what: string): OpenDatapath {
    if (this.#open === undefined) throw new NotStartedError(what);
    return this.#open;
  }

  /** A pinned map, of the datapath or of a part. @throws UnknownMapError, NotStartedError */
  map(name: string): BpfMap {
    const { maps, more } = this.open('open a map').pinned;
    const own = Object.hasOwn(maps, name) ? maps[name as keyof typeof maps] : undefined;
    const found = own ?? more.find(({ spec }) => spec.name === name)?.map;
    if (found === undefined)
      throw new UnknownMapError(
        name,
        more.map(({ spec }) => spec.name),
      );
    return found;
  }

  #more(): readonly MapSpec[] {
    const { kernel = {}, maps } = this.#settings;
    return [...(kernel.maps ?? []), ...(maps?.() ?? [])];
  }

  /** Everything pinned stays and goes on enforcing. */
  stop(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    open.programs.close();
    open.pinned.close();
    open.lock.release();
  }
}

/** The node's network namespace. */
export function nodeScope({ nodeNetns }: Pick<CoreOptions, 'nodeNetns'>): InNode {
  return nodeNetns === undefined ? (body) => body() : (body) => inNetns(nodeNetns, body);
}
