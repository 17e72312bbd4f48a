import type { ElementContext } from './context.ts';
import { mergeRanges, type ReadPorts } from './parse-ports.ts';
import { checkFields, isObject, type Json, listOf, member, nearest, type Problems, show, textOf } from './problems.ts';
import { LAST_TYPE } from './protocols.ts';
import type { IcmpProtocol, PortRange } from './types.ts';

const MAX_FIELDS = 40;
const FAMILIES = { IPv4: 'ICMP', IPv6: 'ICMPv6' } as const satisfies Record<string, IcmpProtocol>;

/** Names of types (spec section 4), from the registries of RFC 792 and RFC 4443. */
const TYPES: Readonly<Record<IcmpProtocol, Readonly<Record<string, number>>>> = {
  ICMP: {
    EchoReply: 0,
    DestinationUnreachable: 3,
    Redirect: 5,
    Echo: 8,
    EchoRequest: 8,
    RouterAdvertisement: 9,
    RouterSelection: 10,
    TimeExceeded: 11,
    ParameterProblem: 12,
    Timestamp: 13,
    TimestampReply: 14,
    Photuris: 40,
    ExtendedEchoRequest: 42,
    ExtendedEchoReply: 43,
  },
  ICMPv6: {
    DestinationUnreachable: 1,
    PacketTooBig: 2,
    TimeExceeded: 3,
    ParameterProblem: 4,
    EchoRequest: 128,
    EchoReply: 129,
    MulticastListenerQuery: 130,
    MulticastListenerReport: 131,
    MulticastListenerDone: 132,
    RouterSolicitation: 133,
    RouterAdvertisement: 134,
    NeighborSolicitation: 135,
    NeighborAdvertisement: 136,
    RedirectMessage: 137,
    RouterRenumbering: 138,
    ICMPNodeInformationQuery: 139,
    ICMPNodeInformationResponse: 140,
    InverseNeighborDiscoverySolicitation: 141,
    InverseNeighborDiscoveryAdvertisement: 142,
    HomeAgentAddressDiscoveryRequest: 144,
    HomeAgentAddressDiscoveryReply: 145,
    MobilePrefixSolicitation: 146,
    MobilePrefixAdvertisement: 147,
    DuplicateAddressRequestCodeSuffix: 157,
    DuplicateAddressConfirmationCodeSuffix: 158,
    ExtendedEchoRequest: 160,
    ExtendedEchoReply: 161,
  },
};

/** Every type of both families: what an item means in a deny that cannot be read. */
const EVERY_TYPE: readonly PortRange[] = Object.values(FAMILIES).map((protocol) => ({
  protocol,
  from: 0,
  to: LAST_TYPE,
}));

/** `icmps` of an element. An item without fields is no type. */
export function parseIcmps(json: Json, context: ElementContext, problems: Problems): ReadPorts {
  const { value: items, lacks } = problems.lacking(() => listOf(json, 'icmps', context.path, problems));
  if (lacks) return { listed: 'any', refused: true };
  if (items === undefined || items.length === 0) return { listed: undefined, refused: false };
  const unread = context.verdict === 'allow' ? [] : EVERY_TYPE;
  const written = items.flatMap((item, index) => {
    const read = problems.lacking(() => parseItem(item, `${context.path}.icmps[${index}]`, unread, problems));
    return read.value ?? unread;
  });
  return { listed: mergeRanges(written), refused: false };
}

/** Undefined: it cannot be read what types it lists. */
function parseItem(
  item: unknown,
  path: string,
  unread: readonly PortRange[],
  problems: Problems,
): readonly PortRange[] | undefined {
  if (!isObject(item)) {
    problems.invalid(path, `${show(item)} is not an ICMP rule: write {fields: [{family: IPv4, type: EchoRequest}]}`);
    return undefined;
  }
  const list = problems.lacking(() => {
    checkFields(item, ['fields'], path, problems);
    return listOf(item, 'fields', path, problems) ?? [];
  });
  const { value: fields } = list;
  if (fields.length > MAX_FIELDS) {
    problems.invalid(
      `${path}.fields`,
      `there are ${fields.length} types, at most ${MAX_FIELDS} are allowed: split them into several icmps entries`,
    );
  }
  if (list.lacks || fields.length > MAX_FIELDS) return undefined;
  return fields.flatMap((field, at) => {
    const read = problems.lacking(() => parseField(field, `${path}.fields[${at}]`, problems));
    return read.lacks ? unread : read.value;
  });
}

function parseField(json: unknown, path: string, problems: Problems): readonly PortRange[] {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not an ICMP type: write {family: IPv4, type: EchoRequest}`);
    return [];
  }
  checkFields(json, ['family', 'type'], path, problems);
  const before = problems.count;
  const protocol = parseFamily(json, path, problems);
  if (protocol === undefined || problems.count > before) return [];
  const type = parseType(member(json, 'type'), protocol, `${path}.type`, problems);
  return type === undefined ? [] : [{ protocol, from: type, to: type }];
}

function parseFamily(json: Json, path: string, problems: Problems): IcmpProtocol | undefined {
  const text = textOf(json, 'family', path, problems) ?? '';
  if (text === '') return FAMILIES.IPv4;
  if (text === 'IPv4' || text === 'IPv6') return FAMILIES[text];
  problems.invalid(`${path}.family`, `${show(text)} is no family: write IPv4 or IPv6`);
  return undefined;
}

function parseType(value: unknown, protocol: IcmpProtocol, path: string, problems: Problems): number | undefined {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= LAST_TYPE) return value;
  const names = TYPES[protocol];
  if (typeof value === 'string') {
    if (/^(?:0|[1-9]\d{0,2})$/.test(value) && Number(value) <= LAST_TYPE) return Number(value);
    if (Object.hasOwn(names, value)) return names[value];
  }
  problems.invalid(path, () => {
    if (value === undefined || value === null)
      return 'the type is missing: write a number 0..255, or a name such as EchoRequest';
    const other = protocol === 'ICMP' ? 'IPv6' : 'IPv4';
    if (typeof value === 'string' && Object.hasOwn(TYPES[FAMILIES[other]], value))
      return `${show(value)} is no type of ${protocol}: it is one of ${FAMILIES[other]}, for which write family: ${other}`;
    const near = typeof value === 'string' && /[a-z]/i.test(value) ? nearest(value, Object.keys(names)) : undefined;
    const hint =
      near === undefined ? `write a number 0..${LAST_TYPE}, or a name such as EchoRequest` : `did you mean ${near}?`;
    return `${show(value)} is no type of ${protocol}: ${hint}`;
  });
  return undefined;
}
