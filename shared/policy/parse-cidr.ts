import {
  comparePrefixes,
  formatPrefix,
  isV4Mapped,
  type Prefix,
  prefixContains,
  readPrefix,
  Unreadable,
} from '@weir/net';
import type { ElementContext } from './context.ts';
import { checkFields, isObject, type Json, listOf, member, type Problems, show, textOf } from './problems.ts';
import type { CidrPeer, RulePeer } from './types.ts';

/** An item of fromCIDR or toCIDR: a prefix, or a bare address for one address. */
export function parseBareCidr(item: unknown, path: string, problems: Problems): CidrPeer | undefined {
  const prefix = readCidr(item, path, false, problems);
  return prefix === undefined ? undefined : { cidr: formatPrefix(prefix), except: [] };
}

/** An item of fromCIDRSet or toCIDRSet: exactly one of cidr, cidrGroupRef, cidrGroupSelector; and `except` (spec 1.3, 11 and 12). */
export function parseCidrSetItem(
  item: unknown,
  path: string,
  context: ElementContext,
  problems: Problems,
): readonly RulePeer[] {
  if (!isObject(item)) {
    problems.invalid(path, `${show(item)} is not a CIDR rule: write {cidr: 10.0.0.0/8}`);
    return [];
  }
  checkFields(item, ['cidr', 'cidrGroupRef', 'cidrGroupSelector', 'except'], path, problems);
  const before = problems.count;
  const cidr = textOf(item, 'cidr', path, problems);
  const group = textOf(item, 'cidrGroupRef', path, problems);
  const selector = member(item, 'cidrGroupSelector');
  if (problems.count > before) return [];
  const present = [
    ...(cidr ? ['cidr'] : []),
    ...(group ? ['cidrGroupRef'] : []),
    ...(selector !== undefined ? ['cidrGroupSelector'] : []),
  ];
  if (present.length !== 1) {
    const found = present.length === 0 ? 'none of them' : present.join(' and ');
    problems.invalid(
      path,
      `a CIDR rule has exactly one of cidr, cidrGroupRef and cidrGroupSelector, not ${found}: mend it`,
    );
    return [];
  }
  if (present[0] !== 'cidr') return context.known.cidrGroups.read(item, context, path, problems);
  const peer = parseCidrWithExcept(item, path, problems);
  return peer === undefined ? [] : [{ kind: 'cidr', cidr: peer }];
}

/** `{cidr, except}`: exceptions must lie inside. Undefined when reported. */
export function parseCidrWithExcept(item: Json, path: string, problems: Problems): CidrPeer | undefined {
  const outer = readCidr(member(item, 'cidr'), `${path}.cidr`, true, problems);
  const excepts: Prefix[] = [];
  (listOf(item, 'except', path, problems) ?? []).forEach((text, index) => {
    const where = `${path}.except[${index}]`;
    const inner = readCidr(text, where, true, problems);
    if (inner === undefined || outer === undefined) return;
    if (prefixContains(outer, inner)) excepts.push(inner);
    else
      problems.invalid(
        where,
        `${formatPrefix(inner)} is not inside ${formatPrefix(outer)}: an exception must lie in its cidr`,
      );
  });
  if (outer === undefined) return undefined;
  return { cidr: formatPrefix(outer), except: [...new Set(excepts.sort(comparePrefixes).map(formatPrefix))] };
}

/** A prefix; undefined when it was reported. */
export function readCidr(item: unknown, path: string, requireLength: boolean, problems: Problems): Prefix | undefined {
  if (typeof item !== 'string') {
    problems.invalid(path, `${show(item)} is not a CIDR: write a text such as "10.0.0.0/8"`);
    return undefined;
  }
  const prefix = readPrefix(item, { requireLength });
  if (prefix instanceof Unreadable) {
    problems.invalid(path, () => prefix.message);
    return undefined;
  }
  if (prefix.bits < 96 || !isV4Mapped(prefix)) return prefix;
  problems.invalid(path, `${show(item)} is IPv4 written as IPv6 and would match nothing: write the IPv4 prefix`);
  return undefined;
}
