/**
 * What a policy names that cannot match in this cluster, as it is now: a CIDR of pods or nodes, a namespace that does not exist, IPv6 where no node
 * has any. Its status warns of it.
 *
 * Guarantee: what an answer was looked up by is kept with it, so that a node or namespace that comes, changes or goes finds the policies whose answer
 * may be another, and no others. A policy is looked up by so many CIDRs and selectors at most: of those beyond nothing is said.
 */
import { isDeepStrictEqual } from 'node:util';
import { type LabelSelector, selectorScope } from '@weir/labels';
import { parsePrefix } from '@weir/net';
import type { PolicyProblem, ResolvedRule, Stack } from '@weir/policy';
import type { AnyTable, Key, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { Tables } from '../tables.ts';
import type { NodeRow } from '../types.ts';
import { cidrKey } from './pod-networks.ts';
import type { PolicyEntry } from './policy-book.ts';

/** CIDRs and selectors of one policy that are looked up. Each takes some microseconds. */
const MOST_LOOKS = 500;
/** Warnings of one policy. */
const MOST_WARNINGS = 20;
/** Nodes that a warning names. */
const MOST_NAMED = 2;
/** A CIDR that holds pod networks is told of only if it is no more bits wider than one of them: a wide one is of other networks, too. */
const WIDER = 8;
/** Of a CIDR that holds addresses of nodes, by its family. */
const NARROW = { 4: 24, 6: 64 } as const;

/** What a node has that no CIDR of a policy matches. */
type Networks = Pick<NodeRow, 'name' | 'podCidrs' | 'addresses'>;

/** What the warnings of a policy were looked up by. */
interface Concern {
  readonly key: string;
  readonly cidrs: readonly string[];
  /** It names IPv6. */
  readonly six: boolean;
  readonly namespaces: readonly string[];
}

export class Surroundings {
  readonly #namespaces: Tables['namespaces'];
  readonly #nodes: Table<Networks>;
  readonly #concerns: Table<Concern>;
  readonly #onStack: (txn: WriteTxn) => void;

  /** @param onStack pods of the cluster have a family of addresses more, or less */
  constructor(db: StateDB, { namespaces }: Pick<Tables, 'namespaces'>, onStack: (txn: WriteTxn) => void) {
    this.#onStack = onStack;
    this.#namespaces = namespaces;
    this.#nodes = db.table<Networks>({
      name: 'nodeNetworks',
      key: ({ name }) => name,
      indexes: [
        { name: 'pods', kind: 'lpm', keys: ({ podCidrs }) => podCidrs.map(cidrKey) },
        { name: 'addresses', kind: 'lpm', keys: ({ addresses }) => addresses.map(hostKey) },
        { name: 'six', keys: (node) => (hasSix(node) ? [''] : []) },
        {
          name: 'families',
          keys: ({ podCidrs }) => new Set(podCidrs.map((cidr) => parsePrefix(cidr).family.toString())),
        },
      ],
    });
    this.#concerns = db.table<Concern>({
      name: 'policySurroundings',
      key: ({ key }) => key,
      indexes: [
        { name: 'cidr', kind: 'lpm', keys: ({ cidrs }) => cidrs.map(cidrKey) },
        { name: 'six', keys: ({ six }) => (six ? [''] : []) },
        { name: 'namespace', keys: ({ namespaces }) => namespaces },
      ],
    });
  }

  get tables(): readonly AnyTable[] {
    return [this.#nodes, this.#concerns];
  }

  /** By the pod networks of nodes. */
  stack(reader: Reader): Stack {
    const has = (family: string): boolean => reader.list(this.#nodes, 'families', family).next().done !== true;
    const [four, six] = [has('4'), has('6')];
    return four && six ? 'dual' : four || six ? 'single' : 'unknown';
  }

  /** What the policy's status is to warn of. */
  warnings(txn: WriteTxn, { row, resolved, selectors }: PolicyEntry): readonly PolicyProblem[] {
    const rules = resolved?.rules ?? [];
    // ipBlock of a NetworkPolicy is of every address.
    const cidrs = row.kind === 'NetworkPolicy' ? [] : namedCidrs(rules);
    const placed = namedNamespaces(selectors, row.namespace);
    const concern = {
      key: row.key,
      cidrs: [...new Set(cidrs.map(({ cidr }) => cidr))],
      six: rules.some(namesSix),
      namespaces: [...new Set(placed.flatMap(({ namespaces }) => namespaces))],
    };
    const isConcerned = concern.cidrs.length > 0 || concern.six || concern.namespaces.length > 0;
    if (isConcerned) txn.upsert(this.#concerns, concern);
    else this.forget(txn, row.key);
    const found = [
      ...cidrs.flatMap(({ cidr, rule }) => warning(rule.path, this.#ofCidr(txn, cidr, rule))),
      ...rules.flatMap((rule) => warning(rule.path, this.#ofSix(txn, rule))),
      ...placed.flatMap(({ hash, namespaces }) => {
        const path = rules.find((rule) => names(rule, hash))?.path;
        return path === undefined ? [] : warning(path, this.#ofNamespaces(txn, namespaces));
      }),
    ];
    return found.slice(0, MOST_WARNINGS);
  }

  forget(txn: WriteTxn, key: string): void {
    txn.delete(this.#concerns, key);
  }

  /** A node has come, changed or gone. Returns the policies whose warnings may be others. */
  nodeChanged(txn: WriteTxn, name: string, after: NodeRow | undefined): ReadonlySet<string> {
    const [was, stack] = [this.#six(txn), this.stack(txn)];
    const before = txn.get(this.#nodes, name);
    const { podCidrs = [], addresses = [] } = after ?? {};
    if (after === undefined) txn.delete(this.#nodes, name);
    else if (isDeepStrictEqual([before?.podCidrs, before?.addresses], [podCidrs, addresses])) return new Set();
    else txn.upsert(this.#nodes, { name, podCidrs, addresses });
    const keys = [...(before?.podCidrs ?? []), ...podCidrs].map(cidrKey);
    for (const address of [...(before?.addresses ?? []), ...addresses]) keys.push(hostKey(address));
    const found = new Set(keys.flatMap((key) => [...this.#near(txn, key)]));
    if (stack !== this.stack(txn)) this.#onStack(txn);
    if (was !== this.#six(txn)) for (const { key } of txn.list(this.#concerns, 'six', '')) found.add(key);
    return found;
  }

  /** The namespace has come, changed or gone. Returns the same. */
  *namespaceChanged(reader: Reader, name: string): Generator<string> {
    for (const { key } of reader.list(this.#concerns, 'namespace', name)) yield key;
  }

  *#near(reader: Reader, key: Key): Generator<string> {
    for (const concern of reader.covering(this.#concerns, 'cidr', key)) yield concern.key;
    for (const concern of reader.covered(this.#concerns, 'cidr', key)) yield concern.key;
  }

  /** `none`: nodes say where pods are, and none of them has an address of IPv6. */
  #six(reader: Reader): 'some' | 'none' | 'unknown' {
    if (reader.list(this.#nodes, 'six', '').next().done !== true) return 'some';
    for (const { podCidrs } of reader.all(this.#nodes)) if (podCidrs.length > 0) return 'none';
    return 'unknown';
  }

  #ofCidr(reader: Reader, cidr: string, { direction }: ResolvedRule): string | undefined {
    if (cidr.includes(':') && this.#six(reader) === 'none') return undefined;
    const key = cidrKey(cidr);
    const word = direction === 'ingress' ? 'from' : 'to';
    const [around] = reader.covering(this.#nodes, 'pods', key);
    if (around !== undefined)
      return `${cidr} is in the pod network of node ${around.name}, and no CIDR matches a pod: write ${word}Endpoints`;
    const { bits, family } = parsePrefix(cidr);
    const nodes = some(reader.covered(this.#nodes, 'pods', key));
    const widest = nodes.first[0]?.podCidrs.filter((each) => family === parsePrefix(each).family) ?? [];
    if (widest.some((each) => parsePrefix(each).bits - bits <= WIDER))
      return `${cidr} holds pod networks of ${nodes.text}, and no CIDR matches a pod: write ${word}Endpoints`;
    if (bits < NARROW[family]) return undefined;
    const hosts = some(reader.covered(this.#nodes, 'addresses', key));
    if (hosts.first.length === 0) return undefined;
    return `${cidr} holds addresses of ${hosts.text}, and no CIDR matches a node: write ${word}Entities (host, remote-node or kube-apiserver)`;
  }

  #ofSix(reader: Reader, rule: ResolvedRule): string | undefined {
    if (!namesSix(rule) || this.#six(reader) !== 'none') return undefined;
    return 'it names IPv6, and no node has an address or a pod network of it: what it says of IPv6 matches nothing';
  }

  #ofNamespaces(reader: Reader, wanted: readonly string[]): string | undefined {
    if (wanted.some((name) => reader.has(this.#namespaces, name))) return undefined;
    const quoted = wanted.slice(0, MOST_NAMED).map((name) => JSON.stringify(name));
    const more = wanted.length > MOST_NAMED ? ' and others' : '';
    return wanted.length === 1
      ? `namespace ${quoted[0]} does not exist: what selects pods of it selects none until it does`
      : `namespaces ${quoted.join(', ')}${more} do not exist: what selects pods of them selects none until one does`;
  }
}

function warning(path: string, message: string | undefined): PolicyProblem[] {
  return message === undefined ? [] : [{ code: 'Warning', path, message }];
}

function some(nodes: Iterable<Networks>): { readonly first: readonly Networks[]; readonly text: string } {
  const first: Networks[] = [];
  let more = '';
  for (const node of nodes) {
    if (first.some(({ name }) => name === node.name)) continue;
    if (first.length === MOST_NAMED) {
      more = ' and others';
      break;
    }
    first.push(node);
  }
  const plural = first.length > 1 ? 's' : '';
  return { first, text: `node${plural} ${first.map(({ name }) => name).join(', ')}${more}` };
}

/** As far as they are looked up, each with its rule. */
function namedCidrs(rules: readonly ResolvedRule[]): readonly { readonly cidr: string; readonly rule: ResolvedRule }[] {
  const found: { readonly cidr: string; readonly rule: ResolvedRule }[] = [];
  for (const rule of rules)
    for (const peer of rule.peers ?? []) {
      if (!('cidr' in peer)) continue;
      if (found.length === MOST_LOOKS) return found;
      found.push({ cidr: peer.cidr, rule });
    }
  return found;
}

/** Selectors that name namespaces other than the policy's own. */
function namedNamespaces(
  selectors: ReadonlyMap<string, LabelSelector>,
  own: string | undefined,
): readonly { readonly hash: string; readonly namespaces: readonly string[] }[] {
  const found: { readonly hash: string; readonly namespaces: readonly string[] }[] = [];
  let looks = MOST_LOOKS;
  for (const [hash, selector] of selectors) {
    const { namespaces } = selectorScope(selector);
    if (namespaces === undefined || namespaces.length === 0 || namespaces.includes(own ?? '')) continue;
    looks -= namespaces.length;
    if (looks < 0) return found;
    found.push({ hash, namespaces });
  }
  return found;
}

function names({ subject, peers = [] }: ResolvedRule, hash: string): boolean {
  return subject === hash || peers.some((peer) => 'peerSet' in peer && peer.peerSet === hash);
}

/** It is about IPv6: a CIDR, or ICMPv6. */
function namesSix({ peers = [], ports = [] }: ResolvedRule): boolean {
  return (
    peers.some((peer) => 'cidr' in peer && peer.cidr.includes(':')) ||
    ports.some(({ protocol }) => protocol === 'ICMPv6')
  );
}

function hasSix({ podCidrs, addresses }: Networks): boolean {
  return [...podCidrs, ...addresses].some((each) => each.includes(':'));
}

function hostKey(address: string): Key {
  return cidrKey(`${address}/${address.includes(':') ? 128 : 32}`);
}
