import { consequence, type ElementContext, readSelector, warnOfUnseenLabels } from './context.ts';
import { peerSelector } from './namespace.ts';
import { type CidrSetItem, parseBareCidr, parseCidrSetItem } from './parse-cidr.ts';
import { parseIcmps } from './parse-icmps.ts';
import { parsePorts } from './parse-ports.ts';
import { checkFields, isObject, type Json, listOf, member, nearest, type Problems, show } from './problems.ts';
import type { Entity, RuleElement, RulePeer } from './types.ts';

export const ENTITIES: readonly Entity[] = [
  'all',
  'world',
  'world-ipv4',
  'world-ipv6',
  'cluster',
  'host',
  'remote-node',
  'kube-apiserver',
  'ingress',
  'health',
  'init',
  'unmanaged',
  'none',
];

/** L3 members that are enforced, and those that are not yet. Each is prefixed by `from` or `to`. */
const SUPPORTED_L3 = ['Endpoints', 'CIDR', 'CIDRSet', 'Entities'];
/** Members that a deny does not take. */
const NO_DENY = ['toFQDNs', 'authentication'];
const EXPLICIT_EMPTY_L3 = [...SUPPORTED_L3, 'Nodes'];

/** Parses one element of a direction list (spec 1.2, 2.5). Undefined when it is not readable at all. */
export function parseElement(json: unknown, context: ElementContext, problems: Problems): RuleElement | undefined {
  const { path, direction, verdict } = context;
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not a rule element: write an object, {} selects nothing`);
    return undefined;
  }
  const prefix = direction === 'ingress' ? 'from' : 'to';
  const l3 = [
    ...[...SUPPORTED_L3, 'Nodes', 'Groups'].map((name) => prefix + name),
    ...(direction === 'egress' ? ['toServices', 'toFQDNs'] : []),
  ];
  const fields = [...l3, 'toPorts', 'icmps', 'authentication'];
  const noDeny = verdict === 'deny' ? fields.filter((field) => NO_DENY.includes(field)) : [];
  const taken = fields.filter((field) => !noDeny.includes(field));
  checkFields(json, taken, path, problems, [...noDeny, `${prefix}Requires`]);

  const l3Peers = parseL3(json, l3, prefix, context, problems);
  const { filled, explicitEmpty } = l3Peers;
  const requires = member(json, `${prefix}Requires`);
  const required = requires !== undefined && requires !== null;
  if (required)
    problems.unsupported(
      `${path}.${prefix}Requires`,
      `${prefix}Requires was removed from the language: write its labels into each selector of ${prefix}Endpoints; ${consequence(verdict)}`,
    );
  const peersUnsupported = l3Peers.unsupported || required;

  const authentication = parseAuthentication(json, context, problems);
  const icmps = parseIcmps(json, context, problems);
  const ports = parsePorts(json, context, problems);
  if (icmps !== undefined && ports !== undefined) {
    problems.invalid(`${path}.icmps`, 'toPorts and icmps are in one element: split them into two elements');
  }
  const portsUnsupported = ports === 'unsupported';
  const unsupported = peersUnsupported || portsUnsupported || authentication === 'unsupported';

  const written = icmps ?? (ports === undefined || portsUnsupported ? 'any' : ports);
  const noMember = !filled && !explicitEmpty && !peersUnsupported;
  const hasPorts = icmps !== undefined || ports !== undefined;
  let selected: RuleElement['peers'] = l3Peers.peers;
  if (explicitEmpty) selected = [];
  else if (noMember) selected = hasPorts ? 'any' : [];
  if (unsupported && verdict === 'allow') selected = [];
  if (peersUnsupported && verdict === 'deny' && !explicitEmpty) selected = 'any';
  return { direction, verdict, peers: selected, ports: written, path };
}

/** What the L3 members of an element say. */
interface L3Peers {
  readonly peers: readonly RulePeer[];
  /** Some member names peers. */
  readonly filled: boolean;
  /** Some member is an empty list, which selects nobody. */
  readonly explicitEmpty: boolean;
  /** Some member, or peer, is not supported. */
  readonly unsupported: boolean;
}

function parseL3(
  json: Json,
  fields: readonly string[],
  prefix: string,
  context: ElementContext,
  problems: Problems,
): L3Peers {
  const { path, verdict } = context;
  const filled: string[] = [];
  const peers: RulePeer[] = [];
  let explicitEmpty = false;
  let unsupported = false;
  for (const field of fields) {
    const items = listOf(json, field, path, problems);
    if (items === undefined) continue;
    const where = `${path}.${field}`;
    const name = field.slice(prefix.length);
    if (field === 'toFQDNs' && verdict === 'deny') {
      problems.invalid(
        where,
        'toFQDNs cannot deny: names are not known before they are looked up; deny CIDRs or entities',
      );
      continue;
    }
    if (items.length === 0) {
      if (EXPLICIT_EMPTY_L3.includes(name)) explicitEmpty = true;
      else problems.invalid(where, `the list is empty: remove ${field}, or name at least one peer`);
      continue;
    }
    filled.push(field);
    if (name === 'Services' && context.scope.kind !== 'BareRules') {
      const { services } = context.known;
      for (const [index, item] of items.entries())
        for (const peer of services.read(item, context, `${where}[${index}]`, problems)) peers.push(peer);
      continue;
    }
    if (!SUPPORTED_L3.includes(name)) {
      unsupported = true;
      const why =
        name === 'Services'
          ? 'is read in a CiliumNetworkPolicy alone, not in imported rules: use toEndpoints'
          : 'is not supported by Weir yet';
      problems.unsupported(where, `${field} ${why}; ${consequence(verdict)}`);
      continue;
    }
    for (const [index, item] of items.entries()) {
      const peer = parsePeer(name, item, `${where}[${index}]`, context, problems);
      if (peer === 'unsupported') unsupported = true;
      else if (peer !== undefined) peers.push(peer);
    }
  }
  if (filled.length > 1) {
    problems.invalid(
      `${path}.${filled[1]}`,
      `${filled.join(' and ')} are in one element: split them into separate elements, each with its own ports`,
    );
  }
  return { peers, filled: filled.length > 0, explicitEmpty, unsupported };
}

function parsePeer(
  member: string,
  item: unknown,
  path: string,
  context: ElementContext,
  problems: Problems,
): RulePeer | 'unsupported' | undefined {
  switch (member) {
    case 'Endpoints': {
      if (item === null) {
        problems.invalid(path, 'null would select every pod in scope: write {} if that is meant');
        return undefined;
      }
      return parseEndpoints(item, path, context, problems);
    }
    case 'CIDR':
      return cidrPeer(parseBareCidr(item, path, problems));
    case 'CIDRSet':
      return cidrPeer(parseCidrSetItem(item, path, context.verdict, problems));
    default:
      return parseEntity(item, path, problems);
  }
}

/** A selector that the policy repeats, as its author may 50,000 times, is read once, unless there is something to say of each. */
function parseEndpoints(
  item: unknown,
  path: string,
  context: ElementContext,
  problems: Problems,
): RulePeer | 'unsupported' | undefined {
  const text = JSON.stringify(item);
  const known = context.known.peers.get(text);
  if (known !== undefined) return known;
  const before = problems.count;
  const selector = readSelector(item, path, problems);
  if (selector === undefined) return undefined;
  warnOfUnseenLabels(selector, path, problems);
  const peer = peerSelector(selector, path, context, problems);
  if (peer !== undefined && peer !== 'unsupported' && problems.count === before) context.known.peers.set(text, peer);
  return peer;
}

function cidrPeer(item: CidrSetItem): RulePeer | 'unsupported' | undefined {
  return item === undefined || item === 'unsupported' ? item : { kind: 'cidr', cidr: item };
}

function parseEntity(item: unknown, path: string, problems: Problems): RulePeer | undefined {
  const entity = ENTITIES.find((known) => known === item);
  if (entity !== undefined) return { kind: 'entity', entity };
  problems.invalid(path, () => {
    const near = typeof item === 'string' ? nearest(item, ENTITIES) : undefined;
    const hint = near === undefined ? `write one of ${ENTITIES.join(', ')}` : `did you mean ${near}?`;
    return `${show(item)} is no entity: ${hint}`;
  });
  return undefined;
}

function parseAuthentication(json: Json, context: ElementContext, problems: Problems): 'unsupported' | undefined {
  const value = member(json, 'authentication');
  if (value === undefined || value === null) return undefined;
  const path = `${context.path}.authentication`;
  if (context.verdict === 'deny') {
    problems.invalid(path, 'a deny takes no authentication: remove it');
    return undefined;
  }
  if (!isObject(value)) {
    problems.invalid(path, `${show(value)} is not {mode: ...}`);
    return undefined;
  }
  checkFields(value, ['mode'], path, problems);
  const mode = member(value, 'mode');
  if (mode === 'disabled') return undefined;
  if (mode === 'required' || mode === 'test-always-fail') {
    problems.unsupported(`${path}.mode`, `mutual authentication is not supported by Weir yet; ${consequence('allow')}`);
    return 'unsupported';
  }
  problems.invalid(`${path}.mode`, `${show(mode)} is no mode: write disabled, required or test-always-fail`);
  return undefined;
}
