import { RESERVED_ID, withApiServer } from '@weir/identity';
import { parsePrefix, prefixContains } from '@weir/net';
import type { PeerIdentity } from '@weir/policy';
import { PartListError } from '@weir/process/parts';
import { keys, query, type StateDB } from '@weir/statedb';
import type { AddressRow, AddressSource } from '../core.ts';
import type { ApiserverAddressRow, IpcacheRow, NodeRow, RemoteEndpointRow } from '../tables.ts';
import type { LocalNumbers } from './numbers.ts';
import { hostPrefix, prefixKey, prefixOrNone } from './prefixes.ts';
import { Rows } from './working.ts';

const HOST = 1;
const REMOTE_NODE = 6;

/** What needs no input: addresses outside, and those that never leave the node. */
const ALWAYS = [
  ['0.0.0.0/0', 'world', RESERVED_ID.world],
  ['::/0', 'world', RESERVED_ID['world-ipv6']],
  ['fe80::/10', 'host', HOST],
] as const;
const LINK_LOCAL = parsePrefix('fe80::/10');

/**
 * Lower wins. Of its own endpoints a node knows most, then of itself. A pod CIDR beats a CIDR of a rule: an address of the cluster that nobody
 * explained must not count as outside.
 */
const RANK = {
  local: 0,
  host: 16,
  'remote-node': 32,
  endpoint: 48,
  apiserver: 64,
  'pod-cidr': 80,
  cidr: 96,
  world: 112,
} as const;
/** Ranks at which several may claim a prefix. */
const UNSURE: readonly number[] = [RANK.endpoint, RANK['remote-node']];
/** Ranks between two of them are those of parts' sources. */
const BETWEEN = 15;

/** What one row says of one prefix. */
interface Claim {
  readonly prefix: string;
  /** Names the row that claims. */
  readonly owner: string;
  /** A key of RANK, or the name of a part's source. */
  readonly source: string;
  readonly rank: number;
  /** `undefined`: the local number of the prefix itself. */
  readonly identity: number | undefined;
  readonly node?: string;
}
type ClaimKey = Pick<Claim, 'prefix' | 'rank' | 'owner'>;

/** The identity of a CIDR, as slots tell it apart. */
export interface CidrPeer extends PeerIdentity {
  readonly cidr: string;
}

export interface IpcacheInputs {
  readonly db: StateDB;
  readonly nodeName: string;
  readonly numbers: LocalNumbers;
}

/** Whether the kernel has room for the number. */
function isIdentity(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= 0xffff_ffff;
}

function isLinkLocal(prefix: string): boolean {
  return prefixContains(LINK_LOCAL, parsePrefix(prefix));
}

/** Best claim first. Among equals the owner's name decides, so that the answer does not depend on the order of arrival. */
function claimKey({ prefix, rank, owner }: ClaimKey): string {
  return keys.join(prefix, keys.uint(rank, 8), owner);
}

/**
 * Merges what the tables say of each prefix. `dirty` names the prefixes whose row may differ; `row()` says what it is now.
 *
 * A node's addresses are what its kubelet and its agent say of it, so that a taken node can report any. Guarantee: no other node's word is taken for an address in
 * any node's pod CIDRs, which are the pods', or that a local endpoint has; and of a node's addresses only those where API servers are, by
 * their own word, are kube-apiserver.
 */
export class IpcacheDeriver {
  readonly dirty = new Set<string>();
  readonly #inputs: IpcacheInputs;
  readonly #claims: Rows<ClaimKey, Claim>;

  constructor(inputs: IpcacheInputs) {
    this.#inputs = inputs;
    this.#claims = new Rows<ClaimKey, Claim>(
      inputs.db,
      {
        name: 'addressClaims',
        key: claimKey,
        indexes: [
          { name: 'owner', keys: ({ owner }) => [owner] },
          // Prefixes that want a local number.
          { name: 'numbered', keys: ({ prefix, identity }) => (identity === undefined ? [prefix] : []) },
          {
            name: 'podCidr',
            kind: 'lpm',
            keys: (claim) => (claim.source === 'pod-cidr' ? [prefixKey(claim.prefix)] : []),
          },
          {
            // Claims that count less in a pod CIDR.
            name: 'outside',
            kind: 'lpm',
            keys: ({ source, prefix }) => (source === 'cidr' || source === 'remote-node' ? [prefixKey(prefix)] : []),
          },
        ],
      },
      claimKey,
    );
    for (const [prefix, source, identity] of ALWAYS)
      this.#own(`${source} ${prefix}`, [
        { prefix, owner: `${source} ${prefix}`, rank: RANK[source], source, identity },
      ]);
  }

  setNode(row: NodeRow | undefined, name: string): void {
    const owner = `node ${name}`;
    const claims: Claim[] = [];
    const own = name === this.#inputs.nodeName;
    const further = own ? [] : (row?.furtherAddresses ?? []);
    const number = this.#inputs.numbers.numberOfNode(name) ?? REMOTE_NODE;
    for (const address of [...(row?.addresses ?? []), ...further]) {
      const prefix = hostPrefix(address);
      if (prefix === undefined || isLinkLocal(prefix)) continue;
      const source = own ? 'host' : 'remote-node';
      claims.push({ prefix, owner, rank: RANK[source], source, identity: own ? HOST : number });
    }
    for (const text of row?.podCidrs ?? []) {
      const prefix = prefixOrNone(text);
      if (prefix === undefined) continue;
      claims.push({ prefix, owner, rank: RANK['pod-cidr'], source: 'pod-cidr', identity: 0 });
    }
    this.#own(owner, claims);
  }

  /** A pod of the slices, with the identity that it is judged by: 0 while that is not known. */
  setRemote(row: RemoteEndpointRow | undefined, key: string): void {
    const owner = `remote ${key}`;
    const claims: Claim[] = [];
    for (const address of row?.addresses ?? []) {
      const prefix = hostPrefix(address);
      if (prefix === undefined || row === undefined) continue;
      const node = hostPrefix(row.node) === undefined ? {} : { node: row.node };
      claims.push({ prefix, owner, rank: RANK.endpoint, source: 'endpoint', identity: row.identity, ...node });
    }
    this.#own(owner, claims);
  }

  /** A local endpoint's addresses; identity 0 while it waits for one. */
  setLocal(id: number, addresses: readonly string[], identity: number): void {
    const owner = `local ${id}`;
    const prefixes = addresses.flatMap((address) => hostPrefix(address) ?? []);
    this.#own(
      owner,
      prefixes.map((prefix) => ({ prefix, owner, rank: RANK.local, source: 'endpoint', identity })),
    );
  }

  setApiserver(row: ApiserverAddressRow | undefined, address: string): void {
    const owner = `apiserver ${address}`;
    const prefix = row === undefined ? undefined : hostPrefix(row.address);
    this.#own(
      owner,
      prefix === undefined ? [] : [{ prefix, owner, rank: RANK.apiserver, source: 'apiserver', identity: undefined }],
    );
  }

  /**
   * Has the rows of parts' tables as claims. Returns who takes each changed row.
   * @throws PartListError for more sources than there are ranks
   */
  addSources(sources: readonly AddressSource[]): readonly ((row: AddressRow, deleted: boolean) => void)[] {
    if (sources.length > BETWEEN) throw new PartListError(`parts bring more than ${BETWEEN} sources of addresses`);
    for (const { name, after } of sources)
      if (!Object.hasOwn(RANK, after))
        throw new PartListError(
          `source "${name}" of addresses is to come after "${after}", which is none of ${Object.keys(RANK).join(', ')}`,
        );
    for (const { name } of sources)
      if (Object.hasOwn(RANK, name))
        throw new PartListError(`a source of addresses is called "${name}", as one of the core: give it another name`);
    return sources.map(({ name, after, table }, place) => (row, deleted) => {
      const owner = `part ${name} ${table.spec.key(row)}`;
      const usable = row.identity === undefined || isIdentity(row.identity);
      const prefix = deleted || !usable ? undefined : prefixOrNone(row.prefix);
      const claim = { owner, rank: RANK[after] + 1 + place, source: name, identity: row.identity };
      this.#own(owner, prefix === undefined ? [] : [{ prefix, ...claim }]);
    });
  }

  /** A CIDR (or except) that a rule in use names. The whole of a family is the world and needs no number, link-local addresses are the host's. */
  setRuleCidr(text: string, named: boolean): void {
    const prefix = prefixOrNone(text);
    // What is no prefix holds no address.
    if (prefix === undefined || prefix.endsWith('/0') || isLinkLocal(prefix)) return;
    const owner = `cidr ${prefix}`;
    if (this.#claims.has({ prefix, rank: RANK.cidr, owner }) === named) return;
    this.#own(owner, named ? [{ prefix, owner, rank: RANK.cidr, source: 'cidr', identity: undefined }] : []);
  }

  /**
   * What the policy engine wants to know of the prefix's own identity; undefined: it has none. One that nothing needs any more counts until
   * `dirty` is looked at: till then packets are judged by it.
   */
  cidrPeer(prefix: string): CidrPeer | undefined {
    const { numbers } = this.#inputs;
    // An API server's claim comes first.
    const [claim] = this.#claims.list('numbered', prefix);
    if (claim === undefined) {
      const id = this.dirty.has(prefix) ? numbers.numberOf(prefix) : undefined;
      return id === undefined ? undefined : { id, cidr: prefix };
    }
    const id = numbers.cidr(prefix);
    return claim.source === 'apiserver' ? { id, cidr: prefix, kubeApiserver: true } : { id, cidr: prefix };
  }

  /** CIDR identities that nothing needs any more, and whose address is still to be taken away. */
  *leaving(): Generator<readonly [id: number, cidr: string]> {
    for (const prefix of this.dirty) {
      const id = this.#inputs.numbers.numberOf(prefix);
      if (id !== undefined && !this.#numbered(prefix)) yield [id, prefix];
    }
  }

  /** What the tables say now; undefined when nothing explains the prefix. */
  row(prefix: string): IpcacheRow | undefined {
    const best = this.#best(prefix);
    if (best === undefined) return undefined;
    const node = best.node === undefined ? {} : { node: best.node };
    return { prefix, identity: this.#identityOf(best), source: best.source, ...node };
  }

  /** Names the row that decides. */
  owner(prefix: string): string | undefined {
    return this.#best(prefix)?.owner;
  }

  #best(prefix: string): Claim | undefined {
    let best: Claim | undefined;
    for (const claim of this.#claims.select(query.prefix(this.#claims.table, keys.join(prefix)))) {
      if (claim.source === 'remote-node' && this.#inPodCidr(prefix)) continue;
      best ??= claim;
      if (!UNSURE.includes(claim.rank) || claim.rank !== best.rank) break;
      // Slices that lag, two pods that were given one address, or nodes that say one: whose it is nobody knows, and neither gets the other's rights.
      if (claim.identity !== best.identity) return { ...best, identity: 0 };
    }
    return best;
  }

  #identityOf({ prefix, identity, source }: Claim): number {
    if (identity !== undefined)
      return source === 'remote-node' && identity !== 0 && this.#servesApi(prefix) ? withApiServer(identity) : identity;
    return source === 'cidr' && this.#inPodCidr(prefix) ? 0 : this.#inputs.numbers.cidr(prefix);
  }

  #numbered(prefix: string): boolean {
    const [some] = this.#claims.list('numbered', prefix);
    return some !== undefined;
  }

  #servesApi(prefix: string): boolean {
    const start = keys.join(prefix, keys.uint(RANK.apiserver, 8));
    const [some] = this.#claims.select(query.prefix(this.#claims.table, start));
    return some !== undefined;
  }

  #inPodCidr(prefix: string): boolean {
    const [some] = this.#claims.select(query.lookup(this.#claims.table, 'podCidr', prefixKey(prefix)));
    return some !== undefined;
  }

  /** `claims` are all that the owner has from now on. */
  #own(owner: string, claims: readonly Claim[]): void {
    const { table } = this.#claims;
    this.#claims.write((txn) => {
      const touch = ({ prefix, source }: Claim): void => {
        this.dirty.add(prefix);
        if (source !== 'pod-cidr') return;
        for (const claim of txn.covered(table, 'outside', prefixKey(prefix))) this.dirty.add(claim.prefix);
      };
      for (const claim of txn.list(table, 'owner', owner)) {
        txn.delete(table, claimKey(claim));
        touch(claim);
      }
      for (const claim of claims) {
        txn.upsert(table, claim);
        touch(claim);
      }
    });
  }
}
