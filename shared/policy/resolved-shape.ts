/** Whether something that claims to be a resolved rule has the shape of one. Names that a later release may add to (entities, protocols) pass. */
import { canonicalPrefix } from '@weir/net';
import type { ResolvedRule } from './types.ts';

/** A field of the wrong shape. */
export interface ShapeProblem {
  /** In the rule: `peers`. */
  readonly field: string;
  /** What should be there: `a list`. */
  readonly expected: string;
  readonly value: unknown;
}

type Fields = Readonly<Record<string, unknown>>;

/** The first problem of a rule; undefined where it is a ResolvedRule. */
export function shapeProblem(rule: unknown): ShapeProblem | undefined {
  if (!isMap(rule)) return { field: '', expected: 'a rule', value: rule };
  const problem = (field: keyof ResolvedRule, expected: string): ShapeProblem => ({
    field,
    expected,
    value: rule[field],
  });
  if (!isText(rule.subject)) return problem('subject', 'a PeerSet');
  if (!isText(rule.direction)) return problem('direction', 'a direction');
  if (!isText(rule.verdict)) return problem('verdict', 'a verdict');
  if (typeof rule.defaultDeny !== 'boolean') return problem('defaultDeny', 'true or false');
  if (!Number.isSafeInteger(rule.cookie)) return problem('cookie', 'a whole number');
  if (!isText(rule.path)) return problem('path', 'a text');
  if (!isText(rule.log ?? '')) return problem('log', 'a text');
  if (!isTextList(rule.labels)) return problem('labels', 'a list of texts');
  if (!isListOf(rule.peers, isPeer)) return problem('peers', 'PeerSets, canonical prefixes, names and entities');
  if (!isTextList(rule.dns)) return problem('dns', 'a list of names');
  if (!isListOf(rule.ports, isPort)) return problem('ports', 'port ranges and names');
  return undefined;
}

function isPeer({ peerSet, cidr, except = [], everyone, entity, fqdn }: Fields): boolean {
  const is = [peerSet, cidr, entity, fqdn].filter((each) => each !== undefined);
  return (
    is.length === 1 &&
    is.every(isText) &&
    (cidr === undefined || isPrefix(cidr)) &&
    (everyone === undefined || (everyone === true && cidr !== undefined)) &&
    Array.isArray(except) &&
    except.every(isPrefix)
  );
}

function isPort({ protocol, from, to, name }: Fields): boolean {
  return isText(protocol) && (name === undefined ? isPortNumber(from) && isPortNumber(to) : isText(name));
}

function isTextList(list: unknown): boolean {
  return list === undefined || (Array.isArray(list) && list.every(isText));
}

/** An absent list is one. */
function isListOf(list: unknown, is: (item: Fields) => boolean): boolean {
  return list === undefined || (Array.isArray(list) && list.every((item: unknown) => isMap(item) && is(item)));
}

function isPrefix(text: unknown): boolean {
  try {
    return canonicalPrefix(text as string) === text;
  } catch {
    return false;
  }
}

function isPortNumber(port: unknown): boolean {
  return Number.isInteger(port) && Number(port) >= 0 && Number(port) <= 0xffff;
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function isMap(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
