import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import {
  attachClsact,
  BpfError,
  type BpfProgram,
  detachClsact,
  hasTcx,
  listClsact,
  listTcx,
  queryClsact,
  type TcDirection,
} from 'libbpf-ts';
import { InterfaceGoneError, LinkError } from '../errors.ts';
import {
  behindText,
  type EnsureLinks,
  HOOKS,
  type Hooked,
  type InNode,
  isOurs,
  type LinkLook,
  type LinkTable,
  type RemoveLinks,
  unjudgedText,
} from './link-table.ts';
import type { Programs } from './pins.ts';

/** This agent's filter on each hook, which its handle identifies. Of one priority the filter that was added last runs first. */
export const SLOT = { priority: 1, handle: 0x77656972 } as const;
/** While the filter is moved to the front. */
const INTERIM = { priority: 1, handle: 0x77656973 } as const;

/** The folder that says where the filters of an endpoint are. */
export const MARKER = /^(\d+)-clsact-(\d+)$/;

interface Marker {
  readonly endpoint: number;
  readonly ifindex: number;
  readonly path: string;
}

/**
 * Programs on endpoints' interfaces by clsact filters, for kernels before 6.6. A filter lives with its interface and cannot be
 * pinned; an empty folder `links/ID-clsact-IFINDEX` tells the next agent where it is. They come first, as links do and for the same reason.
 */
export class ClsactLinks implements LinkTable {
  readonly #folder: string;
  readonly #programs: Readonly<Record<TcDirection, BpfProgram>>;
  readonly #inNode: InNode;

  constructor(root: string, programs: Programs, inNode: InNode) {
    this.#folder = join(root, 'links');
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    this.#programs = { ingress: programs.fromPod, egress: programs.toPod };
    this.#inNode = inNode;
  }

  ensure(endpoint: number, ifindex: number, { former, onBare }: EnsureLinks = {}): void {
    const marker = join(this.#folder, `${endpoint}-clsact-${ifindex}`);
    // All marks are read only where its own is new: that is made after those of its former interfaces have gone.
    if (former !== undefined || !existsSync(marker)) this.#leave(endpoint, ifindex, former);
    // The marker first: a filter that nobody knows of would outlive its endpoint.
    mkdirSync(marker, { recursive: true, mode: 0o700 });
    this.#inNode(() => {
      for (const hook of HOOKS) {
        const program = this.#programs[hook];
        const place = { ifindex, direction: hook };
        try {
          const found = queryClsact(ifindex, hook, SLOT);
          const interim = queryClsact(ifindex, hook, INTERIM);
          if (found !== program.info().id) {
            if (!judges(found, hook) && !judges(interim, hook)) onBare?.();
            attachClsact(program, place, SLOT).close();
          }
          // Of an agent that died while it moved its filter.
          if (interim !== undefined) detachClsact(place, INTERIM);
        } catch (error) {
          throw isGone(error) ? new InterfaceGoneError(endpoint, ifindex, error) : error;
        }
      }
    });
  }

  overtake({ ifindex }: Hooked, onMove: () => void): void {
    this.#inNode(() => {
      for (const hook of HOOKS) {
        const place = { ifindex, direction: hook };
        if (tcxBefore(ifindex, hook).length > 0)
          throw new LinkError(`tcx programs run before every filter: ${this.#behind(ifindex, hook)}`);
        if (this.#behind(ifindex, hook) === undefined) continue;
        onMove();
        attachClsact(this.#programs[hook], place, INTERIM).close();
        detachClsact(place, SLOT);
        attachClsact(this.#programs[hook], place, SLOT).close();
        detachClsact(place, INTERIM);
      }
    });
  }

  remove(endpoint: number, { ifindex }: RemoveLinks): void {
    this.#leave(endpoint, undefined, ifindex);
  }

  endpoints(): Set<number> {
    return new Set(this.#markers().map(({ endpoint }) => endpoint));
  }

  has(endpoint: number): boolean {
    return this.endpoints().has(endpoint);
  }

  /** A filter cannot be asked for its namespace. */
  isAway(): boolean {
    return false;
  }

  attached(): Map<number, number> {
    return filtered(this.#folder, this.#inNode).judged;
  }

  hooked(): Map<number, number> {
    return filtered(this.#folder, this.#inNode).here;
  }

  look(endpoints: readonly Hooked[]): LinkLook[] {
    const marked = new Set(this.#markers().map(({ endpoint, ifindex }) => `${endpoint}-${ifindex}`));
    const ids = { ingress: this.#programs.ingress.info().id, egress: this.#programs.egress.info().id };
    return this.#inNode(() =>
      endpoints.map(({ id, ifindex }) => {
        const found = HOOKS.map((hook) => [hook, programOn(ifindex, hook)] as const);
        if (found.some(([, program]) => program === 'gone')) return { id, gone: true, faults: [], behind: [] };
        const faults = found.flatMap(([hook, program]) => (program === ids[hook] ? [] : [unjudgedText(hook)]));
        if (!marked.has(`${id}-${ifindex}`)) faults.push('the mark of its filters is not there');
        const behind = HOOKS.map((hook) => this.#behind(ifindex, hook)).filter((text) => text !== undefined);
        return { id, gone: false, faults, behind };
      }),
    );
  }

  /** What runs before this agent's filter, in a sentence. In the node's namespace. */
  #behind(ifindex: number, hook: TcDirection): string | undefined {
    const filters = listClsact(ifindex, hook);
    const own = filters.findIndex(({ priority, handle }) => priority === SLOT.priority && handle === SLOT.handle);
    const before = [
      ...tcxBefore(ifindex, hook),
      ...filters.slice(0, Math.max(own, 0)).filter(({ handle }) => handle !== INTERIM.handle),
    ];
    return own < 0 || before.length === 0 ? undefined : behindText(ifindex, hook, before);
  }

  /** Removes the endpoint's marks but that of `stays`, and the filters of its interface `former`; where that is not known, of those marked. */
  #leave(endpoint: number, stays: number | undefined, former: number | undefined): void {
    const markers = this.#markers();
    // The index may be of another endpoint's interface by now.
    const taken = new Set(markers.flatMap((other) => (other.endpoint === endpoint ? [] : [other.ifindex])));
    const own = markers.filter((marker) => marker.endpoint === endpoint && marker.ifindex !== stays);
    // A mark may be another endpoint's, by somebody's hand: it takes no filter from that.
    const left = former === undefined && stays === undefined ? own.map(({ ifindex }) => ifindex) : [former];
    this.#inNode(() => {
      for (const ifindex of left)
        if (ifindex !== undefined && ifindex !== stays && !taken.has(ifindex)) unfilter(ifindex);
    });
    for (const { path } of own) rmSync(path, { recursive: true, force: true });
  }

  #markers(): Marker[] {
    return markersIn(this.#folder);
  }
}

/** Takes this agent's filters from an interface; succeeding when it is gone. In the interface's network namespace. */
export function unfilter(ifindex: number): void {
  for (const direction of HOOKS)
    for (const slot of [INTERIM, SLOT]) {
      try {
        detachClsact({ ifindex, direction }, slot);
      } catch (error) {
        if (!isGone(error)) throw error;
      }
    }
}

/**
 * Endpoints whose filters are `here`, and those of which only the mark is: a filter cannot be asked for its namespace. `judged`: those that
 * are here and run programs of ours on both hooks.
 */
export function filtered(
  folder: string,
  inNode: InNode,
): {
  readonly here: Map<number, number>;
  readonly judged: Map<number, number>;
  readonly unseen: Map<number, number>;
} {
  const here = new Map<number, number>();
  const judged = new Map<number, number>();
  const unseen = new Map<number, number>();
  inNode(() => {
    for (const { endpoint, ifindex } of markersIn(folder)) {
      const programs = HOOKS.map((hook) => [hook, programOn(ifindex, hook)] as const);
      const all = programs.every(([, program]) => typeof program === 'number');
      (all ? here : unseen).set(endpoint, ifindex);
      if (programs.every(([hook, program]) => typeof program === 'number' && isOurs(program, hook)))
        judged.set(endpoint, ifindex);
    }
  });
  return { here, judged, unseen };
}

function markersIn(folder: string): Marker[] {
  const files = existsSync(folder) ? readdirSync(folder) : [];
  return files.flatMap((file) => {
    const match = MARKER.exec(file);
    return match ? [{ endpoint: Number(match[1]), ifindex: Number(match[2]), path: join(folder, file) }] : [];
  });
}

function tcxBefore(ifindex: number, hook: TcDirection): { readonly program: number }[] {
  return hasTcx() ? listTcx(ifindex, hook) : [];
}

/** Id of the program in this agent's place of the hook; undefined without one. */
function programOn(ifindex: number, hook: TcDirection): number | 'gone' | undefined {
  try {
    return queryClsact(ifindex, hook, SLOT);
  } catch (error) {
    if (isGone(error)) return 'gone';
    throw error;
  }
}

function judges(program: number | undefined, hook: TcDirection): boolean {
  return program !== undefined && isOurs(program, hook);
}

function isGone(error: unknown): boolean {
  return error instanceof BpfError && error.errnoName === 'ENODEV';
}
