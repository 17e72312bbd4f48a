/**
 * Programs that parts of the agent bring, in BPF objects of their own: what runs at pods' interfaces before or after judging, at sockets (cgroup
 * hooks), and at the node's own interfaces.
 *
 * Guarantees: a hook runs its program from `open` on, beyond the agent's life, and until an agent starts whose parts bring it no more; a new
 * version takes its place at once, with no call or packet in between that runs none. `repin` puts back what others took away.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { buildDatapath, type Hook, objectBeside, type ProgramObject, STAGES } from '@weir/bpf';
import { messageOf } from '@weir/process/errors';
import {
  attachCgroup,
  attachTcx,
  BpfError,
  type BpfMap,
  type BpfObject,
  type BpfProgram,
  type CgroupLink,
  cgroupIdOf,
  listTcx,
  loadObject,
  openPinnedCgroupLink,
  openPinnedLink,
  type TcLink,
  VerifierError,
} from 'libbpf-ts';
import { CgroupMissingError, ProgramObjectError } from '../errors.ts';
import type { InNode } from './link-table.ts';
import { NEXT } from './pin-files.ts';
import { number, setStage, stageProgram } from './stages.ts';

export interface PartProgramsOptions {
  /** Of the pins. */
  readonly root: string;
  readonly objects: readonly ProgramObject[];
  /** Every pinned map, by name. */
  readonly maps: Readonly<Record<string, BpfMap>>;
  /** The compiled datapath, beside which compiled objects are; compiled from source when absent. */
  readonly datapathObject?: string;
  /** The node's root cgroup; undefined: there is none of version 2. */
  readonly cgroup: string | undefined;
  readonly inNode: InNode;
}

type Attached = Hook & { readonly object: string; readonly loaded: BpfProgram };

const STAGE_NAMES = ['from-pod', 'to-pod'] as const;

export class PartPrograms {
  readonly #options: PartProgramsOptions;
  readonly #folder: string;
  readonly #objects: BpfObject[] = [];
  readonly #hooks: Attached[] = [];

  private constructor(options: PartProgramsOptions) {
    this.#options = options;
    this.#folder = join(options.root, 'hooks');
  }

  /** Loads the objects, has their programs run, and ends those of parts that are no more. @throws BpfError, DatapathBuildError, ProgramObjectError */
  static open(options: PartProgramsOptions): PartPrograms {
    const programs = new PartPrograms(options);
    try {
      for (const object of options.objects) programs.#load(object);
      programs.repin();
      programs.follow();
      programs.#prune();
      return programs;
    } catch (error) {
      programs.close();
      throw error;
    }
  }

  #load(object: ProgramObject): void {
    const { datapathObject, maps } = this.#options;
    const { name, source } = object;
    const prebuilt = datapathObject === undefined ? {} : { prebuilt: objectBeside(datapathObject, name) };
    const loaded = readyObject(name, () =>
      loadObject(buildDatapath({ source, ...prebuilt }).objectPath, { sharedMaps: maps }),
    );
    this.#objects.push(loaded);
    for (const hook of object.hooks) {
      const taken = this.#hooks.find((other) => isStage(hook) && other.at === hook.at);
      if (taken !== undefined)
        throw new ProgramObjectError(name, `wants stage ${hook.at}, which object ${taken.object} has already`);
      const attached = { ...hook, object: name, loaded: loaded.program(hook.program) };
      if (!isStage(hook) && this.#hooks.some((other) => !isStage(other) && this.#pin(other) === this.#pin(attached)))
        throw new ProgramObjectError(name, `has program ${hook.program} at one hook twice`);
      this.#hooks.push(attached);
    }
  }

  /** Hooks that ran their program and do not any more, in words. */
  unpinned(): string[] {
    return this.#hooks.flatMap((hook) => {
      try {
        return this.#lost(hook);
      } catch {
        return [titleOf(hook)];
      }
    });
  }

  /** Has every hook run its program that ran it, tries each, and throws the first failure. @throws BpfError, CgroupMissingError */
  repin(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    this.#each((hook) => {
      if (isStage(hook)) setStage(this.#stages, hook.at, hook.loaded);
      else if (hook.at === 'cgroup') this.#attachCgroup(hook);
      else for (const ifindex of this.#pinnedInterfaces(hook)) this.#attachInterface(hook, ifindex);
    });
  }

  /** Runs programs at interfaces that have come, and ends those at interfaces that are not asked for any more. @throws BpfError */
  follow(): void {
    this.#each((hook) => {
      if (hook.at !== 'interfaces') return;
      const wanted = new Set(hook.interfaces());
      for (const ifindex of this.#pinnedInterfaces(hook))
        if (!wanted.has(ifindex)) this.#detach(`${this.#pin(hook)}-${ifindex}`);
      for (const ifindex of wanted) this.#attachInterface(hook, ifindex);
    });
  }

  #each(body: (hook: Attached) => void): void {
    const failures: unknown[] = [];
    for (const hook of this.#hooks) {
      try {
        body(hook);
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  #lost(hook: Attached): string[] {
    const id = hook.loaded.info().id;
    if (isStage(hook)) return stageProgram(this.#stages, hook.at) === id ? [] : [titleOf(hook)];
    if (hook.at === 'cgroup') {
      using link = opened(this.#pin(hook), openPinnedCgroupLink);
      return link !== undefined && this.#isOurs(link, hook) && link.programId() === id ? [] : [titleOf(hook)];
    }
    // One whose pin is gone is attached again by `follow`, as one that has come.
    return this.#pinnedInterfaces(hook)
      .filter((ifindex) => this.#isThere(ifindex, hook) && !this.#runs(ifindex, hook, id))
      .map((ifindex) => `${titleOf(hook)} at interface ${ifindex}`);
  }

  #attachCgroup(hook: Attached & { readonly at: 'cgroup' }): void {
    const { cgroup } = this.#options;
    if (cgroup === undefined || !existsSync(join(cgroup, 'cgroup.procs')))
      throw new CgroupMissingError(titleOf(hook), cgroup);
    const pin = this.#pin(hook);
    using found = opened(pin, openPinnedCgroupLink);
    if (found !== undefined && this.#isOurs(found, hook)) {
      if (found.programId() !== hook.loaded.info().id) found.replace(hook.loaded);
      return;
    }
    using link = attachCgroup(hook.loaded, cgroup, hook.attach);
    this.#takePlace(link, pin);
    found?.detach();
  }

  #isOurs(link: CgroupLink, hook: Attached & { readonly at: 'cgroup' }): boolean {
    const { cgroup } = this.#options;
    return cgroup !== undefined && link.attach === hook.attach && link.cgroupId === cgroupIdOf(cgroup);
  }

  /** An interface that has gone meanwhile is none. */
  #attachInterface(hook: Attached & { readonly at: 'interfaces' }, ifindex: number): void {
    if (!this.#isThere(ifindex, hook) || this.#runs(ifindex, hook, hook.loaded.info().id)) return;
    const pin = `${this.#pin(hook)}-${ifindex}`;
    using found = opened(pin, openPinnedLink);
    if (found?.ifindex === ifindex && found.direction === hook.direction && this.#isHere(found)) {
      found.replace(hook.loaded);
      return;
    }
    try {
      using link = this.#options.inNode(() => attachTcx(hook.loaded, { ifindex, direction: hook.direction }));
      this.#takePlace(link, pin);
    } catch (error) {
      if (!isGone(error)) throw error;
    }
    found?.detach();
  }

  /** Whatever is pinned there: the new link has its name at once. */
  #takePlace(link: TcLink | CgroupLink, pin: string): void {
    const next = join(this.#folder, `${NEXT}${basename(pin)}`);
    rmSync(next, { recursive: true, force: true });
    link.pin(next);
    if (statSync(pin, { throwIfNoEntry: false })?.isDirectory()) rmSync(pin, { recursive: true });
    renameSync(next, pin);
  }

  #isThere(ifindex: number, { direction }: Attached & { readonly at: 'interfaces' }): boolean {
    try {
      this.#options.inNode(() => listTcx(ifindex, direction));
      return true;
    } catch (error) {
      if (isGone(error)) return false;
      throw error;
    }
  }

  /** Whether the link's interface is in the node's network namespace. */
  #isHere(link: TcLink): boolean {
    const id = link.id();
    return this.#options.inNode(() => listTcx(link.ifindex, link.direction)).some((entry) => entry.link === id);
  }

  /** Whether the interface runs the program, by the link that is pinned. */
  #runs(ifindex: number, hook: Attached & { readonly at: 'interfaces' }, id: number): boolean {
    using link = opened(`${this.#pin(hook)}-${ifindex}`, openPinnedLink);
    if (link === undefined) return false;
    const own = link.id();
    return this.#options
      .inNode(() => listTcx(ifindex, hook.direction))
      .some((entry) => entry.link === own && entry.program === id);
  }

  #pinnedInterfaces(hook: Attached): number[] {
    const prefix = `${basename(this.#pin(hook))}-`;
    return readdirSync(this.#folder).flatMap((file) =>
      file.startsWith(prefix) && /^\d+$/.test(file.slice(prefix.length)) ? [Number(file.slice(prefix.length))] : [],
    );
  }

  /** What an earlier version's parts had, and this one's have not. */
  #prune(): void {
    for (const stage of STAGE_NAMES)
      if (!this.#hooks.some(({ at }) => at === stage)) this.#stages.delete(number(STAGES[stage]));
    const wanted = (file: string): boolean =>
      this.#hooks.some((hook) => {
        const pin = basename(this.#pin(hook));
        if (hook.at === 'cgroup') return file === pin;
        return hook.at === 'interfaces' && file.startsWith(`${pin}-`) && /^\d+$/.test(file.slice(pin.length + 1));
      });
    for (const file of readdirSync(this.#folder)) if (!wanted(file)) this.#detach(join(this.#folder, file));
  }

  #detach(pin: string): void {
    detachPinned(pin);
    rmSync(pin, { recursive: true, force: true });
  }

  /** Of a cgroup hook; of an interface's, with its index behind it. */
  #pin(hook: Attached): string {
    const place = hook.at === 'cgroup' ? hook.attach : hook.at === 'interfaces' ? hook.direction : hook.at;
    return join(this.#folder, `${hook.object}-${hook.program}-${place}`);
  }

  get #stages(): BpfMap {
    const { stages } = this.#options.maps;
    if (stages === undefined) throw new ProgramObjectError('weir', 'has no map "stages"');
    return stages;
  }

  /** What runs goes on. */
  close(): void {
    for (const object of this.#objects.splice(0)) object.close();
  }
}

/** Ends an attachment by its pin, of whichever kind. One that this version does not know ends later, with its pin. */
export function detachPinned(pin: string): void {
  for (const open of [openPinnedCgroupLink, openPinnedLink]) {
    try {
      open(pin).detach();
      return;
    } catch {
      // Of the other kind, or nothing.
    }
  }
}

function isStage(hook: Hook): hook is Hook & { readonly at: (typeof STAGE_NAMES)[number] } {
  return hook.at === 'from-pod' || hook.at === 'to-pod';
}

/** @throws ProgramObjectError that names the object, VerifierError as it is */
function readyObject(name: string, load: () => BpfObject): BpfObject {
  try {
    return load();
  } catch (error) {
    if (error instanceof VerifierError) throw error;
    throw new ProgramObjectError(
      name,
      `cannot be built or loaded with the maps that parts declare: ${messageOf(error)}`,
    );
  }
}

function titleOf(hook: Hook & { readonly object: string }): string {
  const place = hook.at === 'cgroup' ? hook.attach : hook.at;
  return `program ${hook.program} of ${hook.object} at ${place}`;
}

/** Undefined where nothing of the kind is pinned. @throws BpfError where what is pinned cannot be opened */
function opened<T>(pin: string, open: (path: string) => T): T | undefined {
  try {
    return open(pin);
  } catch (error) {
    if (error instanceof BpfError && ['ENOENT', 'EINVAL', 'EACCES', 'ENOTDIR'].includes(error.errnoName))
      return undefined;
    throw error;
  }
}

function isGone(error: unknown): boolean {
  return error instanceof BpfError && error.errnoName === 'ENODEV';
}
