import { ASKING, consequence, type ElementContext, readSelector, seenSelector } from './context.ts';
import { entityPeer, peerSelector } from './namespace.ts';
import { parseNodes } from './nodes.ts';
import { checkAuthentication, mayAuthenticate } from './parse-authentication.ts';
import { parseBareCidr, parseCidrSetItem } from './parse-cidr.ts';
import { parseIcmps } from './parse-icmps.ts';
import { L7_FIELDS } from './parse-l7.ts';
import { parseName } from './parse-names.ts';
import { type AskingPorts, canonicalPorts, parsePorts } from './parse-ports.ts';
import { checkFields, isObject, type Json, listOf, member, nearest, Problems, show } from './problems.ts';
import { oddSpelling } from './spellings.ts';
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
const SUPPORTED_L3 = ['Endpoints', 'CIDR', 'CIDRSet', 'Entities', 'Nodes'];
/** An item of it names hosts. */
const NAMES = 'FQDNs';
/** Members that a deny does not take. */
const NO_DENY = ['toFQDNs', 'authentication'];

/** What an element is that cannot be read at all: it allows nothing, or denies everything. */
export function refusedElement({
  path,
  direction,
  verdict,
}: Pick<RuleElement, 'path' | 'direction' | 'verdict'>): RuleElement {
  return { direction, verdict, peers: verdict === 'allow' ? [] : 'any', ports: 'any', path };
}

/**
 * Parses one element of a direction list (spec 1.2, 2.5). Of what it lists, peers and ports, what cannot be read is left out of an allow, and stands for all
 * that it may mean in a deny. What else cannot be read might restrict it: then an allow selects nobody.
 */
export function parseElement(json: unknown, context: ElementContext, problems: Problems): readonly RuleElement[] {
  const { path, direction, verdict } = context;
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not a rule element: write an object, {} selects nothing`);
    return [refusedElement(context)];
  }
  const members = problems.lacking(() => checkMembers(json, context, problems));
  const { prefix, l3 } = members.value;
  const { value: peers, lacks: lacksPeers } = problems.lacking(() => parseL3(json, l3, prefix, context, problems));
  // One that cannot be read is taken for one that is required.
  const authenticates = problems.lacking(() => checkAuthentication(json, context, problems)).lacks;
  const ports = parseElementPorts(json, context, problems);

  if (verdict === 'deny') return [denied(context, peers, ports, members.lacks)];
  if (members.lacks || peers.refused || ports.refused) return [refusedDemand(json, context, authenticates, ports)];
  const selected = peers.explicitEmpty || !(peers.filled || ports.given) ? [] : peers.listed;
  const element = { direction, verdict: authenticates ? 'authenticate' : verdict, peers: selected, path } as const;
  if (peers.named && ports.asking.some(({ dns }) => dns !== undefined))
    problems.unsupported(
      `${path}.toFQDNs`,
      `a DNS server cannot be told by its name, as names are not known before it answers: name its address; ${ASKING}`,
    );
  const asking = ports.asking.map(
    (part): RuleElement => ({
      ...element,
      verdict: authenticates ? 'authenticate' : 'redirect',
      ...(authenticates || peers.named ? { path: part.path, ports: part.ports } : part),
    }),
  );
  // Ports that ask for a proxy are no plain ones.
  const plain = asking.length > 0 && ports.listed !== 'any' && ports.listed.length === 0;
  const elements = plain ? asking : [{ ...element, ports: ports.listed }, ...asking];
  if (!(authenticates || asking.length > 0) || !(lacksPeers || ports.lacks)) return elements;
  // What a demand may be about beside: as a deny, it is taken at its widest, and nothing passes by it.
  const widest = widestDemand(json, l3, prefix, context);
  const asked = canonicalPorts(asking.flatMap((part) => (part.ports === 'any' ? [] : part.ports)));
  return [
    ...elements,
    {
      ...{ direction, path, verdict: authenticates ? ('authenticate' as const) : ('redirect' as const) },
      peers: lacksPeers ? widest.peers : selected,
      ports: ports.lacks || authenticates ? widest.ports : asked,
    },
  ];
}

/**
 * An element that asks for a proxy or for authentication keeps its rank, so that a broader rule does not allow its flows: of whatever peer, where these cannot
 * be read, and by whatever port.
 */
function refusedDemand(
  json: Json,
  context: ElementContext,
  authenticates: boolean,
  { asking, refused, given }: ElementPorts,
): RuleElement {
  const none = refusedElement(context);
  if (authenticates || mayAuthenticate(json)) return { ...none, verdict: 'authenticate', peers: 'any' };
  if (asking.length === 0 && !asksUnread(json)) return none;
  const ports = refused || !given ? 'any' : canonicalPorts(asking.flatMap((part) => part.ports));
  return { ...none, verdict: 'redirect', peers: 'any', ports };
}

/** What the element would deny, were it a deny. */
function widestDemand(
  json: Json,
  l3: readonly string[],
  prefix: string,
  context: ElementContext,
): Pick<RuleElement, 'peers' | 'ports'> {
  const unheard = new Problems();
  const asDeny = { ...context, verdict: 'deny' } as const;
  const { listed: peers } = parseL3(json, l3, prefix, asDeny, unheard);
  return { peers, ports: parseElementPorts(json, asDeny, unheard).listed };
}

/** What is no list of ports asks for a proxy, or a member that nobody knows does. */
function asksUnread(json: Json): boolean {
  return Object.entries(json).some(
    ([field, value]) =>
      nearest(field, ['toPorts']) !== undefined &&
      [value]
        .flat()
        .some((item) => isObject(item) && L7_FIELDS.some((asked) => (member(item, asked) ?? null) !== null)),
  );
}

/** A deny of which something cannot be read, or is not supported, denies all that it may mean; one that says nothing denies nothing (spec 2.5). */
function denied(
  { path, direction, verdict }: ElementContext,
  peers: L3Peers,
  ports: ElementPorts,
  saysMore: boolean,
): RuleElement {
  const nothing = peers.explicitEmpty || !(peers.filled || ports.given || saysMore);
  return { direction, verdict, peers: nothing ? [] : peers.listed, ports: ports.listed, path };
}

/** Reports members that an element of the direction does not take. */
function checkMembers(
  json: Json,
  { path, direction, verdict }: ElementContext,
  problems: Problems,
): { readonly prefix: string; readonly l3: readonly string[] } {
  const prefix = direction === 'ingress' ? 'from' : 'to';
  const l3 = [
    ...[...SUPPORTED_L3, 'Groups'].map((name) => prefix + name),
    ...(direction === 'egress' ? ['toServices', 'toFQDNs'] : []),
  ];
  const fields = [...l3, 'toPorts', 'icmps', 'authentication'];
  const noDeny = verdict === 'deny' ? fields.filter((field) => NO_DENY.includes(field)) : [];
  const taken = fields.filter((field) => !noDeny.includes(field));
  checkFields(json, taken, path, problems, [...noDeny, `${prefix}Requires`]);
  if ((member(json, `${prefix}Requires`) ?? null) !== null)
    problems.unsupported(
      `${path}.${prefix}Requires`,
      `${prefix}Requires was removed from the language: write its labels into each selector of ${prefix}Endpoints; ${consequence(verdict)}`,
    );
  return { prefix, l3 };
}

/** What `toPorts` and `icmps` say. */
interface ElementPorts {
  readonly listed: RuleElement['ports'];
  /** One of them is there. */
  readonly given: boolean;
  /** Something in them might restrict the element. */
  readonly refused: boolean;
  /** Some port or type cannot be read. */
  readonly lacks: boolean;
  readonly asking: readonly AskingPorts[];
}

function parseElementPorts(json: Json, context: ElementContext, problems: Problems): ElementPorts {
  const { value: icmps, lacks } = problems.lacking(() => parseIcmps(json, context, problems));
  const ports = parsePorts(json, context, problems);
  const both = icmps.listed !== undefined && ports.listed !== undefined;
  if (both)
    problems.invalid(`${context.path}.icmps`, 'toPorts and icmps are in one element: split them into two elements');
  const { asking } = ports;
  return {
    listed: both ? union(icmps.listed, ports.listed) : (icmps.listed ?? ports.listed ?? 'any'),
    given: icmps.listed !== undefined || ports.listed !== undefined,
    refused: both || icmps.refused || ports.refused,
    lacks: lacks || ports.lacks,
    asking,
  };
}

function union(some: RuleElement['ports'] = 'any', others: RuleElement['ports'] = 'any'): RuleElement['ports'] {
  return some === 'any' || others === 'any' ? 'any' : canonicalPorts([...some, ...others]);
}

/** What the L3 members of an element say. */
interface L3Peers {
  /** Of a deny, widened by what cannot be read or is not supported. */
  readonly listed: RuleElement['peers'];
  /** Some member names peers. */
  readonly filled: boolean;
  /** They are told by names. */
  readonly named: boolean;
  /** Some member is an empty list, which selects nobody. */
  readonly explicitEmpty: boolean;
  /** What they select together cannot be read. */
  readonly refused: boolean;
}

/** What an item of a member may mean that cannot be read, or is not supported: addresses outside, nodes, or anybody. */
const WIDEST: Readonly<Record<string, readonly Entity[]>> = {
  CIDR: ['world'],
  CIDRSet: ['world'],
  Groups: ['world'],
  FQDNs: ['world'],
  Nodes: ['remote-node'],
};

function parseL3(
  json: Json,
  fields: readonly string[],
  prefix: string,
  context: ElementContext,
  problems: Problems,
): L3Peers {
  const filled: string[] = [];
  const peers: RulePeer[] = [];
  let anybody = true;
  let explicitEmpty = false;
  let refused = false;
  let unbounded = false;
  for (const field of fields) {
    const name = field.slice(prefix.length);
    const member = problems.lacking(() => parseMember(json, field, name, context, problems));
    const { value: items } = member;
    if (items === undefined && !member.lacks) continue;
    anybody = false;
    if (items === 'empty') explicitEmpty = true;
    else {
      filled.push(field);
      // Peers of a list are alternatives: what is left out selects nobody. Without its list it is not known who they are.
      if (!Array.isArray(items)) refused = true;
      for (const peer of Array.isArray(items) ? items : []) peers.push(peer);
    }
    if (!member.lacks || context.verdict === 'allow') continue;
    if (WIDEST[name] === undefined) unbounded = true;
    else for (const entity of WIDEST[name]) peers.push({ kind: 'entity', entity });
  }
  if (filled.length > 1) {
    refused = true;
    problems.invalid(
      `${context.path}.${filled[1]}`,
      `${filled.join(' and ')} are in one element: split them into separate elements, each with its own ports`,
    );
  }
  return {
    listed: anybody || unbounded ? 'any' : peers,
    filled: filled.length > 0,
    named: filled.includes(`to${NAMES}`),
    explicitEmpty,
    refused,
  };
}

/** The peers of one L3 member that can be read; `empty`: it selects nobody; undefined: it is absent, or none of it can be read. */
function parseMember(
  json: Json,
  field: string,
  name: string,
  context: ElementContext,
  problems: Problems,
): readonly RulePeer[] | 'empty' | undefined {
  const { path, verdict, scope } = context;
  const items = listOf(json, field, path, problems);
  if (items === undefined) return undefined;
  const where = `${path}.${field}`;
  if (field === 'toFQDNs' && verdict === 'deny') {
    problems.invalid(
      where,
      'toFQDNs cannot deny: names are not known before they are looked up; deny CIDRs or entities',
    );
    return undefined;
  }
  if (items.length === 0) {
    if (SUPPORTED_L3.includes(name)) return 'empty';
    problems.invalid(where, `the list is empty: remove ${field}, or name at least one peer`);
    return undefined;
  }
  const services = name === 'Services' && scope.kind !== 'BareRules';
  if (!services && !SUPPORTED_L3.includes(name) && name !== NAMES) {
    readUnsupported(name, items, where, problems);
    const why =
      name === 'Services'
        ? 'is read in a CiliumNetworkPolicy alone, not in imported rules: use toEndpoints'
        : 'is not supported by Weir yet';
    problems.unsupported(where, `${field} ${why}; ${consequence(verdict)}`);
    return undefined;
  }
  const peers: RulePeer[] = [];
  for (const [index, item] of items.entries()) {
    const at = `${where}[${index}]`;
    const read = problems.lacking(() => {
      if (services) return context.known.services.read(item, context, at, problems);
      if (name === NAMES) {
        const pattern = parseName(item, at, problems);
        return pattern === undefined ? [] : [{ kind: 'names' as const, pattern }];
      }
      if (name === 'CIDRSet') return parseCidrSetItem(item, at, context, problems);
      const peer = parsePeer(name, item, at, context, problems);
      return peer === undefined || peer === 'unsupported' ? [] : [peer];
    });
    if (!read.lacks) for (const peer of read.value) peers.push(peer);
  }
  return peers;
}

/** Reports what cannot be read of members that are not supported: to be mended now. */
function readUnsupported(name: string, items: readonly unknown[], path: string, problems: Problems): void {
  for (const [index, item] of items.entries()) {
    const where = `${path}[${index}]`;
    if (name === 'Groups') parseGroup(item, where, problems);
  }
}

function parseGroup(json: unknown, path: string, problems: Problems): void {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is no group: write {aws: {...}}`);
    return;
  }
  checkFields(json, ['aws'], path, problems);
  const aws = member(json, 'aws') ?? {};
  if (isObject(aws))
    checkFields(aws, ['labels', 'securityGroupsIds', 'securityGroupsNames', 'region'], `${path}.aws`, problems);
  else problems.invalid(`${path}.aws`, `${show(aws)} is not {securityGroupsIds: [...]}`);
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
    case 'CIDR': {
      const cidr = parseBareCidr(item, path, problems);
      return cidr === undefined ? undefined : { kind: 'cidr', cidr };
    }
    case 'Nodes':
      return parseNodes(item, path, problems);
    default:
      return parseEntity(item, path, context, problems);
  }
}

/** A selector that the policy repeats, as its author may 50,000 times, is read once, unless there is something to say of each. */
function parseEndpoints(
  item: unknown,
  path: string,
  context: ElementContext,
  problems: Problems,
): RulePeer | 'unsupported' | undefined {
  const text = JSON.stringify([item, context.scope]);
  const known = context.known.peers.get(text);
  if (known !== undefined) return known;
  const before = problems.count;
  const written = readSelector(item, path, problems);
  if (written === undefined) return undefined;
  const odd = oddSpelling(item, context.known.stack);
  if (odd !== undefined) {
    problems.unsupported(`${path}${odd.path}`, `${odd.message}; ${consequence(context.verdict)}`);
    return 'unsupported';
  }
  const selector = seenSelector(written, path, context, problems);
  if (selector === 'unsupported') return selector;
  const peer = peerSelector(selector, path, context, problems);
  if (peer !== undefined && peer !== 'unsupported' && problems.count === before) context.known.peers.set(text, peer);
  return peer;
}

function parseEntity(item: unknown, path: string, context: ElementContext, problems: Problems): RulePeer | undefined {
  const entity = ENTITIES.find((known) => known === item);
  if (entity !== undefined) return entityPeer(entity, path, context, problems);
  problems.invalid(path, () => {
    const near = typeof item === 'string' ? nearest(item, ENTITIES) : undefined;
    const hint = near === undefined ? `write one of ${ENTITIES.join(', ')}` : `did you mean ${near}?`;
    return `${show(item)} is no entity: ${hint}`;
  });
  return undefined;
}
