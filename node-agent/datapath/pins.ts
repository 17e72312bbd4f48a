import { readdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import {
  type BuiltDatapath,
  buildDatapath,
  MAPS,
  type MapName,
  type MapShape,
  type MapSpec,
  PROGRAMS,
} from '@weir/bpf';
import {
  type BpfMap,
  type BpfObject,
  type BpfProgram,
  loadObject,
  type MappedArray,
  mapArray,
  openPinnedMap,
  openPinnedProgram,
} from 'libbpf-ts';
import { CtShares } from './ct-shares.ts';
import { EndpointMap } from './endpoint-map.ts';
import { LayoutMarks } from './layouts.ts';
import {
  fits,
  type MoreMap,
  makeFolders,
  makeRoot,
  NEXT,
  openMore,
  type Pin,
  pinnedProgram,
  replacePin,
  whenPinned,
} from './pin-files.ts';
import { setStage, stageProgram } from './stages.ts';

export interface DatapathOptions {
  readonly root: string;
  readonly object?: string;
  readonly ctEntries?: number;
  /** Maps that no program of the object uses. */
  readonly more?: readonly MapSpec[];
}

export type Maps = Readonly<Record<MapName, BpfMap>>;

/** This version's programs. */
export interface Programs {
  readonly fromPod: BpfProgram;
  readonly toPod: BpfProgram;
}

const NAMES = Object.keys(MAPS) as MapName[];
/** Programs that are kept open. */
const OPEN = ['fromPod', 'toPod', 'judgeSent', 'toProxy', 'answerToProxy'] as const;
/** Those that others go on with, by their stage. */
const HANDED_STAGES = ['judge-sent', 'to-proxy', 'answer-to-proxy'] as const;
type Handed = (typeof HANDED_STAGES)[number];
type Opened = Readonly<Record<(typeof OPEN)[number], BpfProgram>>;
/**
 * What a packet is judged by: an endpoint's word names a slot, a slot's classes name identities. One of them is never used with
 * another version's others.
 */
const JUDGING: readonly MapName[] = [
  'endpoint_array',
  'endpoints',
  'ipcache',
  'policy_classes',
  'policy_verdicts',
  'stages',
];

/**
 * The pinned maps and programs of one agent. What is pinned and of the right shape and layout is used as it is. A map of another
 * one (another version's, another size) is replaced: the new one is made beside it, unpinned, and takes the name only when
 * `commitPins` says that it is filled and in use; a crash before that leaves the old one enforcing.
 *
 * An upgrade or rollback to a version with another layout therefore goes so: old programs with old maps judge each endpoint as
 * they did, until the new maps hold its whole policy; one replacement of its programs then moves it over. Nothing passes that
 * neither of the two allows. Established flows stay allowed as long as `ct4` and `ct6` keep their layouts. Where that changes, flows are judged
 * as new ones: what only answers a flow of the other direction is dropped until a packet of that direction comes (TCP repeats it).
 */
export class PinnedDatapath {
  readonly root: string;
  readonly built: BuiltDatapath;
  readonly maps: Maps;
  /** Maps of other parts. */
  readonly more: readonly MoreMap[];
  /** `endpoint_array` and `endpoints`. */
  readonly endpoints: EndpointMap;
  readonly fromPod: BpfProgram;
  readonly toPod: BpfProgram;
  /** What programs of parts that run before judging go on with. */
  /** By their stage. */
  readonly #handed: Readonly<Record<Handed, BpfProgram>>;
  /** Maps that are new beside an old one of the same name. */
  readonly replaced: readonly MapName[];
  /** Maps that this start made: nothing in them is from before. */
  readonly made: readonly MapName[];
  readonly ctShares: CtShares;
  readonly #array: MappedArray;
  readonly #shares: MappedArray;
  readonly #marks: LayoutMarks;
  /** What is pinned is what is open. */
  #committed: boolean;
  #spares: Programs | undefined;

  private constructor(
    root: string,
    built: BuiltDatapath,
    maps: Maps,
    programs: Opened,
    changes: {
      readonly replaced: readonly MapName[];
      readonly made: readonly MapName[];
      readonly more: readonly MoreMap[];
    },
    marks: LayoutMarks,
  ) {
    const { replaced, made, more } = changes;
    this.more = more;
    this.made = made;
    this.root = root;
    this.built = built;
    this.maps = maps;
    this.fromPod = programs.fromPod;
    this.toPod = programs.toPod;
    this.#handed = handedIn(programs);
    this.#setStages();
    this.replaced = replaced;
    this.#marks = marks;
    this.#committed = replaced.length === 0;
    this.#array = mapArray(maps.endpoint_array);
    this.endpoints = EndpointMap.open(this.#array.bytes, maps.endpoints);
    this.#shares = mapArray(maps.ct_shares);
    this.ctShares = new CtShares(this.#shares.bytes);
  }

  /** @throws BpfError, DatapathBuildError */
  static open(options: DatapathOptions): PinnedDatapath {
    const { root } = options;
    makeRoot(root);
    makeFolders(root);
    for (const file of readdirSync(root)) if (file.startsWith(NEXT)) rmSync(join(root, file), { recursive: true });
    const built = buildDatapath(options.object === undefined ? {} : { prebuilt: options.object });
    const found: Partial<Record<MapName, BpfMap>> = {};
    const replaced: MapName[] = [];
    const marks = new LayoutMarks(root);
    const more = (options.more ?? []).map((spec) => openMore(root, spec, marks));
    for (const name of NAMES) {
      const map = whenPinned(() => openPinnedMap(join(root, name)));
      if (map === undefined) continue;
      if (fits(map, shapeOf(name, options)) && marks.versionOf(map) === MAPS[name].version) found[name] = map;
      else {
        map.close();
        replaced.push(name);
      }
    }
    if (JUDGING.some((name) => replaced.includes(name))) {
      for (const name of JUDGING) {
        if (found[name] === undefined) continue;
        found[name].close();
        delete found[name];
        replaced.push(name);
      }
    }
    // What programs hand on to others belongs to one set of maps: where one of them is new, so is `stages`.
    if (found.stages !== undefined && NAMES.some((name) => found[name] === undefined)) {
      found.stages.close();
      delete found.stages;
      replaced.push('stages');
    }
    const pin = (program: string): string => join(root, 'programs', `${built.hash.slice(0, 16)}-${program}`);
    const complete = NAMES.every((name) => found[name] !== undefined);
    if (complete) {
      const programs = pinnedPrograms(pin);
      if (programs !== undefined)
        return new PinnedDatapath(root, built, found as Maps, programs, { replaced, made: [], more }, marks);
    }
    const object = loadObject(built.objectPath, {
      reuseMaps: found as Record<string, BpfMap>,
      ...(options.ctEntries === undefined ? {} : { maxEntries: { ct4: options.ctEntries, ct6: options.ctEntries } }),
    });
    const maps: Partial<Record<MapName, BpfMap>> = { ...found };
    const made = NAMES.filter((name) => found[name] === undefined);
    for (const [name, map] of Object.entries(object.maps)) {
      if (!(NAMES as string[]).includes(name) || maps[name as MapName] !== undefined) {
        map.close();
        continue;
      }
      maps[name as MapName] = map;
      if (replaced.includes(name as MapName)) continue;
      marks.mark(map, MAPS[name as MapName].version);
      map.pin(join(root, name));
    }
    const programs = programsOf(object);
    // A program's pin answers for all maps: it may only be there when all of them are pinned.
    for (const program of Object.values(programs)) {
      rmSync(pin(program.name), { recursive: true, force: true });
      if (replaced.length === 0) program.pin(pin(program.name));
    }
    return new PinnedDatapath(root, built, maps as Maps, programs, { replaced, made, more }, marks);
  }

  /**
   * New maps take their names, once every endpoint runs the programs that use them; other versions' programs are let go,
   * and endpoints that those had to find in the hash move to the array.
   */
  commitPins(): void {
    for (const name of this.replaced) this.#replace(this.#mapPin(name, this.maps[name], MAPS[name].version));
    const mine = this.built.hash.slice(0, 16);
    if (this.replaced.length > 0) for (const pin of this.#programPins()) this.#replace(pin);
    this.#committed = true;
    for (const file of readdirSync(join(this.root, 'programs'))) {
      if (!file.startsWith(mine)) rmSync(join(this.root, 'programs', file), { recursive: true });
    }
    this.#removeUnknown();
    this.#marks.keep([...Object.values(this.maps), ...this.more.map(({ map }) => map)]);
    this.endpoints.settle();
  }

  /** New maps of parts take their names, once the programs that read them are loaded: what was there is gone then. Returns their names. */
  pinMore(): string[] {
    const made = this.more.filter(({ isNew }) => isNew);
    for (const { spec, map } of made) this.#replace(this.#mapPin(spec.name, map, spec.version));
    return made.map(({ spec }) => spec.name);
  }

  /** Maps of another version's, or of parts that are no more. */
  #removeUnknown(): void {
    const known = new Set<string>([...NAMES, ...this.more.map(({ spec }) => spec.name)]);
    for (const file of readdirSync(this.root, { withFileTypes: true }))
      if (!file.isDirectory() && !known.has(file.name) && !file.name.startsWith(NEXT))
        rmSync(join(this.root, file.name));
  }

  /** The programs once more, with the same maps. Loaded when first asked for. */
  spares(): Programs {
    this.#spares ??= this.#loadAgain();
    return this.#spares;
  }

  #loadAgain(): Programs {
    const object = loadObject(this.built.objectPath, {
      reuseMaps: this.maps as Record<string, BpfMap>,
      maxEntries: { ct4: this.maps.ct4.info.maxEntries, ct6: this.maps.ct6.info.maxEntries },
    });
    for (const map of Object.values(object.maps)) map.close();
    const programs = programsOf(object);
    for (const program of Object.values(handedIn(programs))) program.close();
    return programs;
  }

  /** Maps and programs of this agent whose pin is not there, or holds something else. */
  unpinned(): string[] {
    const { stages } = this.maps;
    const missing = HANDED_STAGES.filter((stage) => stageProgram(stages, stage) !== this.#handed[stage].info().id);
    return [...this.#lost().map(({ path }) => basename(path)), ...missing.map((stage) => `program of stage ${stage}`)];
  }

  /** Puts every pin back, on a bpf file system that is mounted again where that is gone. */
  repin(): void {
    makeRoot(this.root);
    makeFolders(this.root);
    for (const pin of this.#lost()) this.#replace(pin);
    this.#setStages();
  }

  #setStages(): void {
    for (const stage of HANDED_STAGES) setStage(this.maps.stages, stage, this.#handed[stage]);
  }

  #lost(): Pin[] {
    if (!this.#committed) return [];
    const pins = [
      ...NAMES.map((name) => this.#mapPin(name, this.maps[name], MAPS[name].version)),
      ...this.more.map(({ spec: { name, version }, map }) => this.#mapPin(name, map, version)),
      ...this.#programPins(),
    ];
    return pins.filter(({ id, current }) => {
      try {
        return current() !== id;
      } catch {
        // Nothing, a folder, say, or another kind of object.
        return true;
      }
    });
  }

  #replace({ path, pin }: Pin): void {
    replacePin(this.root, path, pin);
  }

  #mapPin(name: string, map: BpfMap, version: number): Pin {
    const path = join(this.root, name);
    return {
      path,
      id: map.info.id,
      current: () => {
        using pinned = openPinnedMap(path);
        return pinned.info.id;
      },
      pin: (to) => {
        this.#marks.mark(map, version);
        map.pin(to);
      },
    };
  }

  #programPins(): Pin[] {
    return [this.fromPod, this.toPod, ...Object.values(this.#handed)].map((program) => {
      const path = join(this.root, 'programs', `${this.built.hash.slice(0, 16)}-${program.name}`);
      return {
        path,
        id: program.info().id,
        current: () => {
          using pinned = openPinnedProgram(path);
          return pinned.info().id;
        },
        pin: (to) => program.pin(to),
      };
    });
  }

  /** Endpoints may be enforced by maps that this version cannot read. */
  get endpointsUnread(): boolean {
    return this.replaced.includes('endpoints') && readdirSync(join(this.root, 'links')).length > 0;
  }

  close(): void {
    this.#array.close();
    this.#shares.close();
    for (const map of Object.values(this.maps)) map.close();
    for (const { map } of this.more) map.close();
    for (const program of Object.values(this.#handed)) program.close();
    for (const programs of [this, this.#spares]) {
      programs?.fromPod.close();
      programs?.toPod.close();
    }
  }
}

/** Undefined where one of them is not pinned. */
function pinnedPrograms(pin: (name: string) => string): Opened | undefined {
  const found: Partial<Record<keyof Opened, BpfProgram>> = {};
  for (const name of OPEN) {
    const program = pinnedProgram(pin(PROGRAMS[name]), PROGRAMS[name]);
    if (program === undefined) {
      for (const other of Object.values(found)) other.close();
      return undefined;
    }
    found[name] = program;
  }
  return found as Opened;
}

function handedIn(programs: Opened): Readonly<Record<Handed, BpfProgram>> {
  const { judgeSent, toProxy, answerToProxy } = programs;
  return { 'judge-sent': judgeSent, 'to-proxy': toProxy, 'answer-to-proxy': answerToProxy };
}

/** Closes the others. */
function programsOf(object: BpfObject): Opened {
  const kept = Object.fromEntries(OPEN.map((name) => [name, object.program(PROGRAMS[name])])) as Opened;
  for (const program of Object.values(object.programs)) if (!Object.values(kept).includes(program)) program.close();
  return kept;
}

function shapeOf(name: MapName, { ctEntries }: DatapathOptions): MapShape {
  const isFlows = name === 'ct4' || name === 'ct6';
  return isFlows && ctEntries !== undefined ? { ...MAPS[name], maxEntries: ctEntries } : MAPS[name];
}
