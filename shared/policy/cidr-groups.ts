/**
 * `cidrGroupRef` and `cidrGroupSelector` (spec 3.3): CIDRs that a CiliumCIDRGroup lists stand for it, less the rule's `except`. One that is unknown stands
 * for nobody.
 */
import { type LabelSelector, matches } from '@weir/labels';
import { comparePrefixes, formatPrefix, type Prefix, prefixContains, readPrefix, Unreadable } from '@weir/net';
import { type ElementContext, readSelector } from './context.ts';
import { readCidr } from './parse-cidr.ts';
import { checkFields, isObject, type Json, listOf, member, Problems, show, textOf } from './problems.ts';
import type { CidrGroup, CidrGroupRef, CidrGroupView, CidrPeer, PolicyProblem, RulePeer } from './types.ts';

/** Peers that the groups of one policy may come to, and groups that it may look through: both are done in one piece. */
const MOST_PEERS = 50_000;
const MOST_LOOKS = 100_000;
/** Of labels of groups. */
const SOURCE = 'cidrgroup:';
const NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LONGEST_NAME = 253;

export const NO_CIDR_GROUPS: CidrGroupView = cidrGroupView([]);

/** Of a few groups. */
export function cidrGroupView(groups: readonly CidrGroup[]): CidrGroupView {
  return { get: (name) => groups.find((each) => each.name === name), all: () => groups };
}

/** Whether a selector of groups selects this one. */
export function selectsCidrGroup(selector: LabelSelector, { labels }: Pick<CidrGroup, 'labels'>): boolean {
  return matches(selector, Object.fromEntries(Object.entries(labels).map(([key, value]) => [SOURCE + key, value])));
}

/** Reads a CiliumCIDRGroup's `spec`: its CIDRs, canonical, each once, ascending; and what of it cannot be read. */
export function parseCidrGroup(spec: unknown): {
  readonly cidrs: readonly string[];
  readonly problems: readonly PolicyProblem[];
} {
  const problems = new Problems();
  const prefixes: Prefix[] = [];
  if (!isObject(spec)) problems.invalid('spec', 'the group has no spec: write spec: {externalCIDRs: [...]}');
  else {
    checkFields(spec, ['externalCIDRs'], 'spec', problems);
    const list = listOf(spec, 'externalCIDRs', 'spec', problems);
    if (list === undefined && problems.count === 0)
      problems.invalid('spec.externalCIDRs', 'the group has no list: write a list of CIDRs, or []');
    for (const [index, item] of (list ?? []).entries()) {
      const prefix = readCidr(item, `spec.externalCIDRs[${index}]`, true, problems);
      if (prefix !== undefined) prefixes.push(prefix);
    }
  }
  return { cidrs: [...new Set(prefixes.sort(comparePrefixes).map(formatPrefix))], problems: problems.list };
}

/** A group as policies refer to it. One that cannot be read is there, too: what it denies is not to be opened. */
export function cidrGroupOf(name: string, labels: CidrGroup['labels'], spec: unknown): CidrGroup {
  const { cidrs, problems } = parseCidrGroup(spec);
  const [problem] = problems;
  return { name, labels, cidrs, ...(problem && { unreadable: `${problem.path}: ${problem.message}` }) };
}

/** Reads the groups that one policy names. */
export class CidrGroupReader {
  /** In the order of the text. */
  readonly refs: CidrGroupRef[] = [];
  readonly #view: CidrGroupView;
  /** By the text of a reference. */
  readonly #found = new Map<string, Found>();
  #peers = 0;
  #looks = 0;

  constructor(view: CidrGroupView) {
    this.#view = view;
  }

  /** An item of fromCIDRSet or toCIDRSet that has `cidrGroupRef` or `cidrGroupSelector`, not both. */
  read(item: Json, { scope }: ElementContext, path: string, problems: Problems): readonly RulePeer[] {
    const before = problems.count;
    const wanted = wantedOf(item, path, problems);
    const excepts = exceptsOf(item, path, problems);
    if (wanted === undefined || problems.count > before) return [];
    if (scope.kind === 'BareRules') {
      problems.unsupported(
        wanted.path,
        `CiliumCIDRGroups are read in a CiliumNetworkPolicy alone, not in imported rules: write their CIDRs`,
      );
      return [];
    }
    const { groups, ...names } = this.#foundBy(wanted);
    // One that is repeated is looked through again.
    this.#looks += groups.length;
    if (this.#looks > MOST_LOOKS) {
      problems.excess(
        wanted.path,
        `the selectors of groups look through more than ${MOST_LOOKS} CiliumCIDRGroups: write fewer, or name groups`,
      );
      return [];
    }
    this.refs.push({ path: wanted.path, ...names });
    const peers: RulePeer[] = [];
    let listed = 0;
    for (const { name, cidrs, unreadable } of groups) {
      if (unreadable !== undefined) {
        problems.invalid(wanted.path, `CiliumCIDRGroup ${name}: ${unreadable}`);
        return [];
      }
      listed += cidrs.length;
      if (this.#peers + listed > MOST_PEERS) {
        // What follows is not looked at.
        this.#peers = MOST_PEERS;
        problems.excess(
          wanted.path,
          `the CiliumCIDRGroups that the policy names come to more than ${MOST_PEERS} CIDRs: name fewer, or split it`,
        );
        return [];
      }
      for (const cidr of cidrs) {
        const peer = lessened(cidr, excepts);
        if (peer !== undefined) peers.push({ kind: 'cidr', cidr: peer });
      }
    }
    this.#peers += listed;
    return peers;
  }

  #foundBy({ path: _, ...wanted }: Wanted): Found {
    const text = JSON.stringify(wanted);
    const known = this.#found.get(text);
    if (known !== undefined) return known;
    const groups = this.#find(wanted);
    const found = { ...wanted, groups, found: groups.map(({ name }) => name) };
    this.#found.set(text, found);
    return found;
  }

  #find({ name, selector }: Omit<Wanted, 'path'>): readonly CidrGroup[] {
    if (selector === undefined) {
      const group = name === undefined ? undefined : this.#view.get(name);
      return group === undefined ? [] : [group];
    }
    const groups: CidrGroup[] = [];
    for (const group of this.#view.all()) {
      this.#looks += 1;
      if (this.#looks > MOST_LOOKS) return [];
      if (selectsCidrGroup(selector, group)) groups.push(group);
    }
    return groups;
  }
}

/** What a reference means; all that repeat it share it. */
interface Found extends Omit<CidrGroupRef, 'path'> {
  readonly groups: readonly CidrGroup[];
}

type Wanted = Omit<CidrGroupRef, 'found'>;

function wantedOf(item: Json, at: string, problems: Problems): Wanted | undefined {
  const name = textOf(item, 'cidrGroupRef', at, problems);
  if (name) {
    const path = `${at}.cidrGroupRef`;
    if (name.length <= LONGEST_NAME && NAME.test(name)) return { path, name };
    problems.invalid(
      path,
      `${show(name)} is no name of a CiliumCIDRGroup: lower-case letters, digits, "-" and ".", at most ${LONGEST_NAME}`,
    );
    return undefined;
  }
  const path = `${at}.cidrGroupSelector`;
  const written = member(item, 'cidrGroupSelector');
  if (written === null) {
    problems.invalid(path, 'null would select every group: write {} if that is meant');
    return undefined;
  }
  const selector = readSelector(written, path, problems);
  if (selector === undefined) return undefined;
  const foreign = selector.requirements.find(({ key }) => !key.startsWith('any:') && !key.startsWith(SOURCE));
  if (foreign === undefined) return { path, selector };
  problems.invalid(path, `${show(foreign.key)}: labels of a CiliumCIDRGroup have no such source: write the key alone`);
  return undefined;
}

function exceptsOf(item: Json, path: string, problems: Problems): readonly Prefix[] {
  return (listOf(item, 'except', path, problems) ?? []).flatMap(
    (text, index) => readCidr(text, `${path}.except[${index}]`, true, problems) ?? [],
  );
}

/** Undefined: nothing of it is left. */
function lessened(cidr: string, excepts: readonly Prefix[]): CidrPeer | undefined {
  if (excepts.length === 0) return { cidr, except: [] };
  const outer = readPrefix(cidr, { requireLength: true });
  if (outer instanceof Unreadable) return undefined;
  if (excepts.some((inner) => prefixContains(inner, outer))) return undefined;
  const inside = excepts.filter((inner) => prefixContains(outer, inner));
  return { cidr, except: [...new Set(inside.sort(comparePrefixes).map(formatPrefix))] };
}
