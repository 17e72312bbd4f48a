import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import {
  attachTcx,
  BpfError,
  type BpfProgram,
  listTcx,
  openLinkById,
  openPinnedLink,
  type TcDirection,
  type TcLink,
  type TcxEntry,
} from 'libbpf-ts';
import { InterfaceGoneError, LinkError } from '../errors.ts';
import {
  behindText,
  type EnsureLinks,
  HOOKS,
  type Hooked,
  type InNode,
  isOurs,
  JUDGED,
  type LinkLook,
  type LinkTable,
  type RemoveLinks,
  unjudgedText,
} from './link-table.ts';
import { chainOf, isAway, liveLinks, openOrNothing, PIN } from './live-links.ts';
import { whenPinned } from './pin-files.ts';
import type { Programs } from './pins.ts';

export interface TcxPrograms extends Programs {
  /** The same programs with the same maps, loaded once more: a chain takes each instance only once. */
  spares(): Programs;
}

/** The pin of a link that is about to take the place of another. */
const NEXT = 'next_';
/** The pin of a link that was found in the place of another one: `aside-IFINDEX-HOOK-ID`. */
const ASIDE = /^aside-(\d+)-/;
export const OTHER_PIN = new RegExp(`^${NEXT}|${ASIDE.source}`);

/**
 * Programs on endpoints' interfaces, by pinned links: `links/ID-ingress` sees what the pod sends, `links/ID-egress` what it gets.
 *
 * They are the first of their chain, on both hooks: a program before them that ends the chain (TCX_PASS) would keep packets from being
 * judged. What comes after them gets what they let through (TCX_NEXT); on egress it may then change packets that were judged, as the
 * node's own firewall may. Each look puts them first again, or says why it cannot; until then, packets go by the other program's verdict.
 * That repairs mistakes and conflicts with other tools. It does not defend against an attacker who can attach programs: that is root on
 * the node, who can undo all of this.
 *
 * A link is detached when its endpoint was removed or has moved to another interface, when its interface is gone, when it is new and cannot be
 * pinned, and when one that comes first has taken its place. Links without a pin are found by the chain that they are in; a link that is
 * in the place of another one is kept aside until its own interface has one pinned again.
 */
export class Links implements LinkTable {
  readonly #root: string;
  readonly #folder: string;
  readonly #programs: Readonly<Record<TcDirection, BpfProgram>>;
  readonly #ids: Readonly<Record<TcDirection, number>>;
  readonly #spares: () => Programs;
  readonly #inNode: InNode;

  constructor(root: string, programs: TcxPrograms, inNode: InNode) {
    this.#root = root;
    this.#folder = join(root, 'links');
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    this.#programs = { ingress: programs.fromPod, egress: programs.toPod };
    this.#ids = { ingress: programs.fromPod.info().id, egress: programs.toPod.info().id };
    this.#spares = () => programs.spares();
    this.#inNode = inNode;
    this.#tidy();
  }

  ensure(endpoint: number, ifindex: number, { former, onBare }: EnsureLinks = {}): void {
    for (const hook of HOOKS) {
      const path = this.#path(endpoint, hook);
      using link = this.#openAny(path);
      if (link !== undefined && this.#belongs(link, ifindex, hook)) {
        const found = link.programId();
        if (found === this.#ids[hook]) continue;
        if (!isOurs(found, hook)) onBare?.();
        link.replace(this.#programs[hook]);
      } else {
        if (link !== undefined) this.#makeWay(link, path, former);
        this.#attach(endpoint, ifindex, hook, path, onBare);
      }
    }
  }

  overtake({ id, ifindex }: Hooked, onMove: () => void): void {
    for (const hook of HOOKS) {
      const chain = this.#inNode(() => listTcx(ifindex, hook));
      const place = chain.findIndex(({ program }) => program === this.#ids[hook]);
      const entry = chain[place];
      if (place === 0) continue;
      if (entry === undefined)
        throw new LinkError(
          `the program of endpoint ${id} for ${JUDGED[hook]} is another version's: it is put first when it is replaced, once all inputs are complete`,
        );
      this.#spares();
      onMove();
      this.#moveToFront(id, ifindex, hook, entry.link);
    }
  }

  remove(endpoint: number, { ifindex, alone, everywhere }: RemoveLinks): void {
    for (const hook of HOOKS) {
      const path = this.#path(endpoint, hook);
      using link = this.#openAny(path);
      if (link !== undefined) {
        const away = isAway(link, this.#inNode);
        if (away && !everywhere) continue;
        const other = ifindex !== undefined && link.ifindex !== 0 && link.ifindex !== ifindex && !away;
        if (other) this.#setAside(link, path);
        else {
          link.detach();
          rmSync(path, { force: true });
        }
      }
      // Its own may have another pin, or none.
      if (ifindex !== undefined && alone === true) this.#unpinned(ifindex, hook)?.detach();
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

  has(endpoint: number): boolean {
    return HOOKS.some((hook) => existsSync(this.#path(endpoint, hook)));
  }

  isAway(endpoint: number): boolean {
    return HOOKS.some((hook) => {
      using link = openOrNothing(this.#path(endpoint, hook));
      return link !== undefined && isAway(link, this.#inNode);
    });
  }

  attached(): Map<number, number> {
    return liveLinks(this.#root, this.#inNode).judged;
  }

  hooked(): Map<number, number> {
    return liveLinks(this.#root, this.#inNode).here;
  }

  look(endpoints: readonly Hooked[]): LinkLook[] {
    const looks = this.#inNode(() => endpoints.map((one) => this.#lookAt(one)));
    this.#tidyAside(
      new Set(
        looks.flatMap(({ faults, gone }, at) => (gone || faults.length > 0 ? [] : (endpoints[at]?.ifindex ?? []))),
      ),
    );
    return looks;
  }

  #lookAt({ id, ifindex }: Hooked): LinkLook {
    const faults: string[] = [];
    const behind: string[] = [];
    for (const hook of HOOKS) {
      const chain = chainOf(ifindex, hook);
      if (chain === undefined) return { id, gone: true, faults: [], behind: [] };
      const pinned = this.#pinnedId(id, hook);
      const place = chain.findIndex(({ program }) => program === this.#ids[hook]);
      if (place < 0) faults.push(unjudgedText(hook));
      else if (pinned === undefined) faults.push(`the link of the program for ${JUDGED[hook]} is not pinned`);
      else if (pinned !== chain[place]?.link) faults.push(`the pin for ${JUDGED[hook]} holds another link`);
      const own = place < 0 ? chain.findIndex(({ link }) => link === pinned) : place;
      if (own > 0) behind.push(behindText(ifindex, hook, chain.slice(0, own)));
    }
    return { id, gone: false, faults, behind };
  }

  /** Id of the link that is pinned; 0: of something else. */
  #pinnedId(endpoint: number, hook: TcDirection): number | undefined {
    try {
      using link = whenPinned(() => openPinnedLink(this.#path(endpoint, hook)));
      return link?.id();
    } catch {
      return 0;
    }
  }

  /** Whether a pinned link is the hook's own: with this version's program, or with the only one of any version. */
  #belongs(link: TcLink, ifindex: number, hook: TcDirection): boolean {
    if (link.ifindex !== ifindex || link.direction !== hook) return false;
    return link.programId() === this.#ids[hook] || this.#entry(ifindex, hook) === undefined;
  }

  /** Opens a pin; what is no tcx link is removed. */
  #openAny(path: string): TcLink | undefined {
    try {
      return whenPinned(() => openPinnedLink(path));
    } catch (error) {
      if (!(error instanceof BpfError) || error.errnoName !== 'EINVAL') throw error;
      rmSync(path, { force: true });
      return undefined;
    }
  }

  /** The place of the pin is wanted for another link. */
  #makeWay(link: TcLink, path: string, former: number | undefined): void {
    // Its interface may be another endpoint's: without any pin it would lose its program.
    if (link.ifindex !== 0 && link.ifindex !== former) this.#setAside(link, path);
    else {
      link.detach();
      rmSync(path, { force: true });
    }
  }

  #setAside(link: TcLink, path: string): void {
    renameSync(path, join(this.#folder, `aside-${link.ifindex}-${link.direction}-${link.id()}`));
  }

  /** Removes pins set aside that nobody needs: the interface is gone, or both its hooks have their own pins again (`whole`). */
  #tidyAside(whole: ReadonlySet<number>): void {
    for (const file of this.#files()) {
      const ifindex = ASIDE.exec(file)?.[1];
      if (ifindex === undefined) continue;
      const path = join(this.#folder, file);
      const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
      using link = isFolder || whole.has(Number(ifindex)) ? undefined : this.#openAny(path);
      if (link === undefined || link.ifindex === 0) rmSync(path, { recursive: true, force: true });
    }
  }

  /** What a crash left: links that did not take their place, and those set aside whose interface is gone. */
  #tidy(): void {
    for (const file of this.#files()) if (file.startsWith(NEXT)) rmSync(join(this.#folder, file), { recursive: true });
    this.#tidyAside(new Set());
  }

  #entry(ifindex: number, hook: TcDirection): TcxEntry | undefined {
    return this.#inNode(() => chainOf(ifindex, hook))?.find(({ program }) => program === this.#ids[hook]);
  }

  /** The link of this version's program on the hook, wherever it is pinned or not. */
  #unpinned(ifindex: number, hook: TcDirection): TcLink | undefined {
    const entry = this.#entry(ifindex, hook);
    if (entry === undefined) return undefined;
    if (entry.link !== 0) return openLinkById(entry.link);
    throw new LinkError(
      `somebody attached this agent's program to tc hook ${hook} of interface ${ifindex} without a link: detach it with bpftool net detach`,
    );
  }

  #attach(endpoint: number, ifindex: number, hook: TcDirection, path: string, onBare?: () => void): void {
    const found = this.#unpinned(ifindex, hook);
    if (found === undefined) onBare?.();
    let link: TcLink;
    try {
      link = found ?? this.#inNode(() => attachTcx(this.#programs[hook], { ifindex, direction: hook, place: 'first' }));
    } catch (error) {
      if (error instanceof BpfError && error.errnoName === 'ENODEV')
        throw new InterfaceGoneError(endpoint, ifindex, error);
      throw error;
    }
    using _ = link;
    try {
      link.pin(path);
    } catch (error) {
      if (found === undefined) link.detach();
      throw error;
    }
  }

  /** A second instance comes first, takes the place of the pin, and then the program of the link that it replaced. */
  #moveToFront(endpoint: number, ifindex: number, hook: TcDirection, former: number): void {
    const spares = this.#spares();
    const spare = hook === 'ingress' ? spares.fromPod : spares.toPod;
    const next = join(this.#folder, `${NEXT}${endpoint}-${hook}`);
    rmSync(next, { recursive: true, force: true });
    using old = openLinkById(former);
    using link = this.#inNode(() => attachTcx(spare, { ifindex, direction: hook, place: 'first' }));
    link.pin(next);
    renameSync(next, this.#path(endpoint, hook));
    old.detach();
    link.replace(this.#programs[hook]);
  }

  #files(): string[] {
    return existsSync(this.#folder) ? readdirSync(this.#folder) : [];
  }

  #path(endpoint: number, hook: TcDirection): string {
    return join(this.#folder, `${endpoint}-${hook}`);
  }
}
