import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import {
  attachTcx,
  BpfError,
  type BpfProgram,
  openPinnedLink,
  queryTcx,
  type TcDirection,
  type TcLink,
} from 'libbpf-ts';
import { InterfaceGoneError } from '../errors.ts';
import { whenPinned } from './pins.ts';

/** Runs in the node's network namespace, where interface indexes mean something. */
export type InNode = <T>(body: () => T) => T;

/** One endpoint's interface. */
export interface Hooked {
  readonly id: number;
  readonly ifindex: number;
}

/** What a look at an endpoint's interface finds. */
export interface LinkLook {
  readonly id: number;
  /** There is no such interface. */
  readonly gone: boolean;
  /** What is not as it should be, of each hook. */
  readonly faults: readonly string[];
  /** Hooks where another's program runs before this agent's, and may take packets that it then does not see. */
  readonly behind: readonly TcDirection[];
}

/** Which interfaces run the programs. */
export interface LinkTable {
  /** Makes sure that both hooks of the interface run this version's programs. @throws InterfaceGoneError */
  ensure(endpoint: number, ifindex: number): void;
  /** Detaches; succeeding when there is nothing. */
  remove(endpoint: number): void;
  /** Endpoints whose interface has them. */
  endpoints(): Set<number>;
  /** Endpoints with programs on both hooks of a live interface, of whichever version: its index. */
  attached(): Map<number, number>;
  /** Whether each interface runs this version's programs. */
  look(endpoints: readonly Hooked[]): LinkLook[];
}

const HOOKS: readonly TcDirection[] = ['ingress', 'egress'];

/** The pin of one hook's link. */
export const PIN = /^(\d+)-(?:ingress|egress)$/;

/** Programs on endpoints' interfaces, by pinned links: `links/ID-ingress` sees what the pod sends, `links/ID-egress` what it gets. */
export class Links implements LinkTable {
  readonly #folder: string;
  readonly #programs: Readonly<Record<TcDirection, BpfProgram>>;
  readonly #ids: Readonly<Record<TcDirection, number>>;
  readonly #inNode: InNode;

  constructor(root: string, programs: { readonly fromPod: BpfProgram; readonly toPod: BpfProgram }, inNode: InNode) {
    this.#folder = join(root, 'links');
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    this.#programs = { ingress: programs.fromPod, egress: programs.toPod };
    this.#ids = { ingress: programs.fromPod.info().id, egress: programs.toPod.info().id };
    this.#inNode = inNode;
  }

  /** Makes sure that both hooks of the interface run this version's programs. @throws InterfaceGoneError */
  ensure(endpoint: number, ifindex: number): void {
    for (const hook of HOOKS) {
      const path = this.#path(endpoint, hook);
      const link = whenPinned(() => openPinnedLink(path));
      if (link !== undefined) {
        try {
          if (link.ifindex === ifindex) {
            if (link.programId() !== this.#ids[hook]) link.replace(this.#programs[hook]);
            continue;
          }
          // The pin is of an interface that is gone, or of another one.
          link.detach();
        } finally {
          link.close();
        }
        rmSync(path, { force: true });
      }
      this.#attach(endpoint, ifindex, hook, path);
    }
  }

  /** Detaches and unpins; succeeding when there is nothing. */
  remove(endpoint: number): void {
    for (const hook of HOOKS) {
      const path = this.#path(endpoint, hook);
      const link = whenPinned(() => openPinnedLink(path));
      if (link === undefined) continue;
      link.detach();
      rmSync(path, { force: true });
    }
  }

  /** Endpoints that have a pinned link. */
  endpoints(): Set<number> {
    const out = new Set<number>();
    for (const file of this.#files()) {
      const match = PIN.exec(file);
      if (match) out.add(Number(match[1]));
    }
    return out;
  }

  attached(): Map<number, number> {
    const out = new Map<number, number>();
    for (const id of this.endpoints()) {
      const [ingress, egress] = HOOKS.map((hook) => this.#liveIndex(id, hook));
      if (ingress !== undefined && ingress === egress) out.set(id, ingress);
    }
    return out;
  }

  look(endpoints: readonly Hooked[]): LinkLook[] {
    const pins = new Set(this.#files());
    return this.#inNode(() => endpoints.map((one) => this.#lookAt(one, pins)));
  }

  #lookAt({ id, ifindex }: Hooked, pins: ReadonlySet<string>): LinkLook {
    const faults: string[] = [];
    const behind: TcDirection[] = [];
    for (const hook of HOOKS) {
      let programs: readonly number[];
      try {
        programs = queryTcx(ifindex, hook);
      } catch (error) {
        if (error instanceof BpfError && error.errnoName === 'ENODEV')
          return { id, gone: true, faults: [], behind: [] };
        throw error;
      }
      const place = programs.indexOf(this.#ids[hook]);
      if (place > 0) behind.push(hook);
      if (place < 0) faults.push(`the ${hook} program is not attached`);
      else if (!pins.has(`${id}-${hook}`)) faults.push(`the ${hook} link is not pinned`);
    }
    return { id, gone: false, faults, behind };
  }

  /** Undefined when there is no pin, or the link's interface is gone or has lost it. */
  #liveIndex(endpoint: number, hook: TcDirection): number | undefined {
    const link = whenPinned(() => openPinnedLink(this.#path(endpoint, hook)));
    if (link === undefined) return undefined;
    const { ifindex } = link;
    link.close();
    return ifindex === 0 ? undefined : ifindex;
  }

  #files(): string[] {
    return existsSync(this.#folder) ? readdirSync(this.#folder) : [];
  }

  #attach(endpoint: number, ifindex: number, hook: TcDirection, path: string): void {
    let link: TcLink;
    try {
      link = this.#inNode(() => attachTcx(this.#programs[hook], { ifindex, direction: hook }));
    } catch (error) {
      if (error instanceof BpfError && error.errnoName === 'ENODEV')
        throw new InterfaceGoneError(endpoint, ifindex, error);
      throw error;
    }
    try {
      link.pin(path);
    } catch (error) {
      link.detach();
      throw error;
    } finally {
      link.close();
    }
  }

  #path(endpoint: number, hook: TcDirection): string {
    return join(this.#folder, `${endpoint}-${hook}`);
  }
}
