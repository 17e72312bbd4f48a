import { parsePrefix, prefixContains } from '@weir/net';
import type { ApiserverAddressRow, IpcacheRow, IpcacheSource, NodeRow, RemoteEndpointRow } from '../tables.ts';
import type { LocalNumbers } from './numbers.ts';
import { hostPrefix, prefixOrNone } from './prefixes.ts';

const HOST = 1;
const WORLD = 2;
const REMOTE_NODE = 6;
const KUBE_APISERVER = 7;

/** Lower wins. A pod CIDR beats a CIDR of a rule: an address of the cluster that nobody explained must not count as outside. */
const RANK: Readonly<Record<IpcacheSource | 'local', number>> = {
  host: 0,
  'remote-node': 1,
  local: 2,
  endpoint: 3,
  apiserver: 4,
  'pod-cidr': 5,
  cidr: 6,
  world: 7,
};

interface Claim {
  /** Names the row that claims: one claim a (prefix, owner). */
  readonly owner: string;
  readonly rank: number;
  readonly source: IpcacheSource;
  /** `undefined`: the local number of the prefix itself. */
  readonly identity: number | undefined;
  readonly node?: string;
}

export interface IpcacheInputs {
  readonly nodeName: string;
  readonly numbers: LocalNumbers;
}

/** Merges what the tables say of each prefix. `dirty` names the prefixes whose row may differ; `row()` says what it is now. */
export class IpcacheDeriver {
  readonly dirty = new Set<string>();
  readonly #inputs: IpcacheInputs;
  readonly #claims = new Map<string, Claim[]>();
  readonly #owned = new Map<string, readonly string[]>();
  /** Prefixes that some claim wants a local number for. */
  readonly #numbered = new Set<string>();
  readonly #podCidrs = new Map<string, number>();
  readonly #ruleCidrs = new Set<string>();

  constructor(inputs: IpcacheInputs) {
    this.#inputs = inputs;
    for (const prefix of ['0.0.0.0/0', '::/0']) {
      this.#own(`world ${prefix}`, [[prefix, { rank: RANK.world, source: 'world', identity: WORLD }]]);
    }
  }

  setNode(row: NodeRow | undefined, name: string): void {
    const claims: [string, Omit<Claim, 'owner'>][] = [];
    const own = name === this.#inputs.nodeName;
    for (const address of row?.addresses ?? []) {
      const prefix = hostPrefix(address);
      if (prefix === undefined) continue;
      const identity = own ? HOST : row?.kubeApiserver ? KUBE_APISERVER : REMOTE_NODE;
      const source = own ? 'host' : 'remote-node';
      claims.push([prefix, { rank: RANK[source], source, identity }]);
    }
    for (const text of row?.podCidrs ?? []) {
      const cidr = prefixOrNone(text);
      if (cidr !== undefined) claims.push([cidr, { rank: RANK['pod-cidr'], source: 'pod-cidr', identity: 0 }]);
    }
    this.#own(`node ${name}`, claims);
  }

  /** A pod of the slices, with the identity that it is judged by: 0 while that is not known. */
  setRemote(row: RemoteEndpointRow | undefined, key: string): void {
    const claims: [string, Omit<Claim, 'owner'>][] = [];
    for (const address of row?.addresses ?? []) {
      const prefix = hostPrefix(address);
      if (prefix === undefined || row === undefined) continue;
      const node = hostPrefix(row.node) === undefined ? {} : { node: row.node };
      claims.push([prefix, { rank: RANK.endpoint, source: 'endpoint', identity: row.identity, ...node }]);
    }
    this.#own(`remote ${key}`, claims);
  }

  /** A local endpoint's address; identity 0 while it waits for one. */
  setLocal(id: number, address: string | undefined, identity: number): void {
    const prefix = address === undefined ? undefined : hostPrefix(address);
    this.#own(
      `local ${id}`,
      prefix === undefined ? [] : [[prefix, { rank: RANK.local, source: 'endpoint', identity }]],
    );
  }

  setApiserver(row: ApiserverAddressRow | undefined, address: string): void {
    const prefix = row === undefined ? undefined : hostPrefix(row.address);
    this.#own(
      `apiserver ${address}`,
      prefix === undefined ? [] : [[prefix, { rank: RANK.apiserver, source: 'apiserver', identity: undefined }]],
    );
  }

  /** A CIDR (or except) that a rule in use names. The whole of a family is the world and needs no number. */
  setRuleCidr(text: string, named: boolean): void {
    const prefix = prefixOrNone(text);
    // What is no prefix holds no address.
    if (prefix === undefined || prefix.endsWith('/0')) return;
    if (named) this.#ruleCidrs.add(prefix);
    else this.#ruleCidrs.delete(prefix);
    this.#own(`cidr ${prefix}`, named ? [[prefix, { rank: RANK.cidr, source: 'cidr', identity: undefined }]] : []);
  }

  /**
   * Local CIDR identities that rules or API server addresses need, with what the policy engine wants to know of them. Those on
   * their way out count too: until their address is gone from the kernel, packets are judged by them.
   */
  *cidrIdentities(): Generator<{ readonly id: number; readonly cidr: string; readonly kubeApiserver: boolean }> {
    for (const prefix of this.#numbered) {
      const claims = this.#claims.get(prefix) ?? [];
      yield {
        id: this.#inputs.numbers.cidr(prefix),
        cidr: prefix,
        kubeApiserver: claims.some((claim) => claim.source === 'apiserver'),
      };
    }
    for (const [id, cidr] of this.leaving()) yield { id, cidr, kubeApiserver: false };
  }

  /** CIDR identities that nothing needs any more, and whose address is still to be taken away. */
  *leaving(): Generator<readonly [id: number, cidr: string]> {
    for (const prefix of this.dirty) {
      const id = this.#inputs.numbers.knownCidr(prefix);
      if (id !== undefined && !this.#numbered.has(prefix)) yield [id, prefix];
    }
  }

  /** What the tables say now; undefined when nothing explains the prefix. */
  row(prefix: string): IpcacheRow | undefined {
    const best = this.#claims.get(prefix)?.[0];
    if (best === undefined) return undefined;
    const node = best.node === undefined ? {} : { node: best.node };
    return { prefix, identity: this.#identityOf(prefix, best), source: best.source, ...node };
  }

  /** Names the row that decides. */
  owner(prefix: string): string | undefined {
    return this.#claims.get(prefix)?.[0]?.owner;
  }

  #identityOf(prefix: string, claim: Claim): number {
    if (claim.identity === undefined) {
      if (claim.source === 'cidr' && this.#inPodCidr(prefix)) return 0;
      return this.#inputs.numbers.cidr(prefix);
    }
    return claim.identity;
  }

  #inPodCidr(prefix: string): boolean {
    const inner = parsePrefix(prefix);
    for (const cidr of this.#podCidrs.keys()) if (prefixContains(parsePrefix(cidr), inner)) return true;
    return false;
  }

  #own(owner: string, claims: readonly (readonly [string, Omit<Claim, 'owner'>])[]): void {
    for (const prefix of this.#owned.get(owner) ?? []) this.#remove(prefix, owner);
    for (const [prefix, claim] of claims) this.#add(prefix, { owner, ...claim });
    if (claims.length === 0) this.#owned.delete(owner);
    else
      this.#owned.set(
        owner,
        claims.map(([prefix]) => prefix),
      );
  }

  #add(prefix: string, claim: Claim): void {
    let list = this.#claims.get(prefix);
    if (list === undefined) {
      list = [];
      this.#claims.set(prefix, list);
    }
    list.push(claim);
    // Among equals the owner's name decides, so that the answer does not depend on the order of arrival.
    list.sort((a, b) => a.rank - b.rank || (a.owner < b.owner ? -1 : 1));
    this.dirty.add(prefix);
    if (claim.identity === undefined) this.#numbered.add(prefix);
    if (claim.source === 'pod-cidr') this.#countPodCidr(prefix, 1);
  }

  #remove(prefix: string, owner: string): void {
    const list = this.#claims.get(prefix);
    const index = list?.findIndex((claim) => claim.owner === owner) ?? -1;
    if (list === undefined || index < 0) return;
    const [claim] = list.splice(index, 1);
    if (list.length === 0) this.#claims.delete(prefix);
    if (!list.some((other) => other.identity === undefined)) this.#numbered.delete(prefix);
    this.dirty.add(prefix);
    if (claim?.source === 'pod-cidr') this.#countPodCidr(prefix, -1);
  }

  #countPodCidr(prefix: string, by: number): void {
    const next = (this.#podCidrs.get(prefix) ?? 0) + by;
    if (next === 0) this.#podCidrs.delete(prefix);
    else this.#podCidrs.set(prefix, next);
    for (const cidr of this.#ruleCidrs) this.dirty.add(cidr);
  }
}
