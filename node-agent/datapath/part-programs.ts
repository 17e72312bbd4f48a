/**
 * Programs that parts of the agent bring, in BPF objects of their own: what runs at pods' interfaces before or after judging, at sockets (cgroup
 * hooks), and at the node's own interfaces.
 *
 * Guarantees: a hook runs its program from `open` on, beyond the agent's life, and until an agent starts whose parts bring it no more; a new
 * version takes its place at once, with no call or packet in between that runs none. `repin` puts back what others took away.
 */
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { buildDatapath, type Hook, objectBeside, type ProgramObject, STAGES } from '@weir/bpf';
import {
  attachCgroup,
  attachTcx,
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
} from 'libbpf-ts';
import { CgroupMissingError, ProgramObjectError } from '../errors.ts';
import type { InNode } from './links.ts';
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
    const loaded = loadObject(buildDatapath({ source, ...prebuilt }).objectPath, { sharedMaps: maps });
    this.#objects.push(loaded);
    for (const hook of object.hooks) {
      const taken = this.#hooks.find((other) => isStage(hook) && other.at === hook.at);
      if (taken !== undefined)
        throw new ProgramObjectError(name, `wants stage ${hook.at}, which object ${taken.object} has already`);
      this.#hooks.push({ ...hook, object: name, loaded: loaded.program(hook.program) });
    }
  }

  /** Hooks that do not run their program, in words. */
  unpinned(): string[] {
    return this.#hooks.flatMap((hook) => {
      try {
        return this.#missing(hook);
      } catch {
        return [titleOf(hook)];
      }
    });
  }

  /** Has every hook run its program. @throws BpfError, CgroupMissingError */
  repin(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    for (const hook of this.#hooks) {
      if (isStage(hook)) setStage(this.#stages, hook.at, hook.loaded);
      else if (hook.at === 'cgroup') this.#attachCgroup(hook);
      else this.#attachInterfaces(hook);
    }
  }

  #missing(hook: Attached): string[] {
    const id = hook.loaded.info().id;
    if (isStage(hook)) return stageProgram(this.#stages, hook.at) === id ? [] : [titleOf(hook)];
    if (hook.at === 'cgroup') {
      using link = opened(this.#pin(hook), openPinnedCgroupLink);
      return link !== undefined && this.#isOurs(link, hook) && link.programId() === id ? [] : [titleOf(hook)];
    }
    const wanted = new Set(hook.interfaces());
    const strays = this.#pinnedInterfaces(hook).filter((ifindex) => !wanted.has(ifindex));
    const bare = [...wanted].filter((ifindex) => !this.#runs(ifindex, hook, id));
    return [...bare, ...strays].map((ifindex) => `${titleOf(hook)} at interface ${ifindex}`);
  }

  #attachCgroup(hook: Attached & { readonly at: 'cgroup' }): void {
    const { cgroup } = this.#options;
    if (cgroup === undefined) throw new CgroupMissingError(titleOf(hook));
    const pin = this.#pin(hook);
    using found = opened(pin, openPinnedCgroupLink);
    if (found !== undefined && this.#isOurs(found, hook)) {
      if (found.programId() !== hook.loaded.info().id) found.replace(hook.loaded);
      return;
    }
    found?.detach();
    rmSync(pin, { recursive: true, force: true });
    using link = attachCgroup(hook.loaded, cgroup, hook.attach);
    link.pin(pin);
  }

  #isOurs(link: CgroupLink, hook: Attached & { readonly at: 'cgroup' }): boolean {
    const { cgroup } = this.#options;
    return cgroup !== undefined && link.attach === hook.attach && link.cgroupId === cgroupIdOf(cgroup);
  }

  #attachInterfaces(hook: Attached & { readonly at: 'interfaces' }): void {
    const wanted = new Set(hook.interfaces());
    const id = hook.loaded.info().id;
    for (const ifindex of this.#pinnedInterfaces(hook))
      if (!wanted.has(ifindex)) this.#detach(`${this.#pin(hook)}-${ifindex}`);
    for (const ifindex of wanted) {
      if (this.#runs(ifindex, hook, id)) continue;
      const pin = `${this.#pin(hook)}-${ifindex}`;
      using found = opened(pin, openPinnedLink);
      if (found?.ifindex === ifindex && found.direction === hook.direction) {
        found.replace(hook.loaded);
        continue;
      }
      found?.detach();
      rmSync(pin, { recursive: true, force: true });
      using link = this.#options.inNode(() => attachTcx(hook.loaded, { ifindex, direction: hook.direction }));
      link.pin(pin);
    }
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
    const kept = this.#hooks.map((hook) => basename(this.#pin(hook)));
    for (const file of readdirSync(this.#folder))
      if (!kept.some((pin) => file === pin || new RegExp(`^${pin}-\\d+$`).test(file)))
        this.#detach(join(this.#folder, file));
  }

  #detach(pin: string): void {
    detachPinned(pin);
    rmSync(pin, { recursive: true, force: true });
  }

  #pin({ object, program }: Attached): string {
    return join(this.#folder, `${object}-${program}`);
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

/** Ends an attachment by its pin, of whichever kind. */
export function detachPinned(pin: string): void {
  const link: TcLink | CgroupLink | undefined = opened(pin, openPinnedCgroupLink) ?? opened(pin, openPinnedLink);
  link?.detach();
}

function isStage(hook: Hook): hook is Hook & { readonly at: (typeof STAGE_NAMES)[number] } {
  return hook.at === 'from-pod' || hook.at === 'to-pod';
}

function titleOf(hook: Hook & { readonly object: string }): string {
  const place = hook.at === 'cgroup' ? hook.attach : hook.at;
  return `program ${hook.program} of ${hook.object} at ${place}`;
}

/** Undefined where nothing of the kind is pinned. */
function opened<T>(pin: string, open: (path: string) => T): T | undefined {
  try {
    return open(pin);
  } catch {
    return undefined;
  }
}
