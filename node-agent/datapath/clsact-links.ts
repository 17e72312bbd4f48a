import { existsSync, mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { attachClsact, BpfError, type BpfProgram, detachClsact, queryClsact, type TcDirection } from 'libbpf-ts';
import { InterfaceGoneError } from '../errors.ts';
import type { Hooked, InNode, LinkLook, LinkTable } from './links.ts';

const HOOKS: readonly TcDirection[] = ['ingress', 'egress'];
/** This agent's filter on each hook: first, and told from others' by its handle. */
export const SLOT = { priority: 1, handle: 0x77656972 } as const;

/** The folder that says where the filters of an endpoint are. */
export const MARKER = /^(\d+)-clsact-(\d+)$/;

interface Marker {
  readonly endpoint: number;
  readonly ifindex: number;
  readonly path: string;
}

/**
 * Programs on endpoints' interfaces by clsact filters, for kernels before 6.6. A filter lives with its interface and cannot be
 * pinned; an empty folder `links/ID-clsact-IFINDEX` tells the next agent where it is.
 */
export class ClsactLinks implements LinkTable {
  readonly #folder: string;
  readonly #programs: Readonly<Record<TcDirection, BpfProgram>>;
  readonly #inNode: InNode;

  constructor(root: string, programs: { readonly fromPod: BpfProgram; readonly toPod: BpfProgram }, inNode: InNode) {
    this.#folder = join(root, 'links');
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    this.#programs = { ingress: programs.fromPod, egress: programs.toPod };
    this.#inNode = inNode;
  }

  ensure(endpoint: number, ifindex: number): void {
    for (const marker of this.#markers()) {
      if (marker.endpoint === endpoint && marker.ifindex !== ifindex) this.#detach(marker);
    }
    // The marker first: a filter that nobody knows of would outlive its endpoint.
    mkdirSync(join(this.#folder, `${endpoint}-clsact-${ifindex}`), { recursive: true, mode: 0o700 });
    this.#inNode(() => {
      for (const hook of HOOKS) {
        const program = this.#programs[hook];
        try {
          if (queryClsact(ifindex, hook, SLOT) === program.info().id) continue;
          attachClsact(program, { ifindex, direction: hook }, SLOT).close();
        } catch (error) {
          throw isGone(error) ? new InterfaceGoneError(endpoint, ifindex, error) : error;
        }
      }
    });
  }

  remove(endpoint: number): void {
    for (const marker of this.#markers()) if (marker.endpoint === endpoint) this.#detach(marker);
  }

  endpoints(): Set<number> {
    return new Set(this.#markers().map(({ endpoint }) => endpoint));
  }

  attached(): Map<number, number> {
    const out = new Map<number, number>();
    this.#inNode(() => {
      for (const { endpoint, ifindex } of this.#markers())
        if (HOOKS.every((hook) => typeof programOn(ifindex, hook) === 'number')) out.set(endpoint, ifindex);
    });
    return out;
  }

  look(endpoints: readonly Hooked[]): LinkLook[] {
    const marked = new Set(this.#markers().map(({ endpoint, ifindex }) => `${endpoint}-${ifindex}`));
    const ids = { ingress: this.#programs.ingress.info().id, egress: this.#programs.egress.info().id };
    return this.#inNode(() =>
      endpoints.map(({ id, ifindex }) => {
        const found = HOOKS.map((hook) => [hook, programOn(ifindex, hook)] as const);
        const faults = found.flatMap(([hook, program]) =>
          program === ids[hook] ? [] : [`the ${hook} program is not attached`],
        );
        if (!marked.has(`${id}-${ifindex}`)) faults.push('the mark of its filters is not there');
        return { id, gone: found.some(([, program]) => program === 'gone'), faults, behind: [] };
      }),
    );
  }

  #detach({ endpoint, ifindex, path }: Marker): void {
    // The index may be of another endpoint's interface by now.
    const taken = this.#markers().some((other) => other.ifindex === ifindex && other.endpoint !== endpoint);
    if (!taken) {
      this.#inNode(() => {
        for (const hook of HOOKS) {
          try {
            detachClsact({ ifindex, direction: hook }, SLOT);
          } catch (error) {
            if (!isGone(error)) throw error;
          }
        }
      });
    }
    rmdirSync(path);
  }

  #markers(): Marker[] {
    const files = existsSync(this.#folder) ? readdirSync(this.#folder) : [];
    return files.flatMap((file) => {
      const match = MARKER.exec(file);
      return match ? [{ endpoint: Number(match[1]), ifindex: Number(match[2]), path: join(this.#folder, file) }] : [];
    });
  }
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

function isGone(error: unknown): boolean {
  return error instanceof BpfError && error.errnoName === 'ENODEV';
}
