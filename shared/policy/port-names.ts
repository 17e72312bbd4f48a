/** Port names -> numbers (spec section 4). What a name stands for depends on the pod, so it is known only when compiling. */
import { RESERVED_ID } from '@weir/identity';
import { compareNumber } from './order.ts';
import { PORT_PROTOCOLS } from './protocols.ts';
import type {
  Direction,
  NamedPort,
  PortNames,
  PortProtocol,
  PortRange,
  ResolvedRule,
  RulePort,
  Verdict,
} from './types.ts';

/** For a cluster without named ports. */
export const NO_PORT_NAMES: PortNames = { own: () => undefined, peers: () => new Map() };

export function isNamed(port: RulePort): port is NamedPort {
  return 'name' in port;
}

/** A service name of RFC 6335, in letters of any case. */
export function isPortName(text: string): boolean {
  return text.length <= 15 && /^[a-z0-9]+(-[a-z0-9]+)*$/i.test(text) && /[a-z]/i.test(text);
}

/** Text that is equal for equal names only. */
export function namedPortKey({ protocol, name }: NamedPort): string {
  return `${protocol}/${name}`;
}

/** Sorted by protocol and name, each once. */
export function uniqueNames(ports: Iterable<NamedPort>): NamedPort[] {
  const byKey = new Map<string, NamedPort>();
  for (const port of ports) byKey.set(namedPortKey(port), port);
  return [...byKey.values()].sort(
    (a, b) => PORT_PROTOCOLS.indexOf(a.protocol) - PORT_PROTOCOLS.indexOf(b.protocol) || (a.name < b.name ? -1 : 1),
  );
}

/**
 * The port names that `rules` use, sorted, each once: all that `compile` asks `PortNames` for. `ingress` is asked of `own`,
 * `egress` of `peers`; a compiled slot is the same as long as these answers are.
 */
export function portNamesOf(rules: readonly ResolvedRule[]): {
  readonly ingress: readonly NamedPort[];
  readonly egress: readonly NamedPort[];
} {
  const names = (direction: Direction) =>
    uniqueNames(rules.flatMap((rule) => (rule.direction === direction ? (rule.ports ?? []).filter(isNamed) : [])));
  return { ingress: names('ingress'), egress: names('egress') };
}

/** Numbers that a rule's port name stands for, for one peer. */
export type NumbersOf = (port: NamedPort) => readonly number[];

/** The rule's ports as numbers; undefined for every port. */
export function numbered(
  ports: readonly RulePort[] | undefined,
  numbersOf: NumbersOf,
): readonly PortRange[] | undefined {
  return ports?.flatMap((port) =>
    isNamed(port) ? numbersOf(port).map((number) => ({ protocol: port.protocol, from: number, to: number })) : [port],
  );
}

/** Ingress: the endpoint's own number, whoever the peer is. */
export function ownNumbers(names: PortNames): NumbersOf {
  return ({ name, protocol }) => {
    const number = names.own(name, protocol);
    return number === undefined ? [] : [number];
  };
}

/**
 * Egress to one identity: an ambiguous name allows nothing, and denies all that it may mean. An unknown peer may be anyone:
 * it is denied every number that anyone gives the name, and allowed none.
 */
export function peerNumbers(names: PortNames, identity: number, verdict: Verdict): NumbersOf {
  return ({ name, protocol }) => {
    if (identity === RESERVED_ID.unknown) return verdict === 'allow' ? [] : everyNumber(names, name, protocol);
    const numbers = names.peers(name, protocol).get(identity) ?? [];
    return verdict === 'allow' && numbers.length !== 1 ? [] : numbers;
  };
}

function everyNumber(names: PortNames, name: string, protocol: PortProtocol): number[] {
  const numbers = new Set(names.every?.(name, protocol));
  if (names.every === undefined)
    for (const [id, own] of names.peers(name, protocol))
      if (id !== RESERVED_ID.unknown) for (const number of own) numbers.add(number);
  return [...numbers].sort(compareNumber);
}

/** The names as these identities give them, and all numbers, as anybody may give them. */
export function namesOf(identities: Iterable<number>, names: PortNames): PortNames {
  const ids = [...identities];
  const numbersOf = (id: number, name: string, protocol: PortProtocol): readonly number[] =>
    names.of === undefined ? (names.peers(name, protocol).get(id) ?? []) : names.of(id, name, protocol);
  return {
    ...names,
    peers: (name, protocol) =>
      new Map(
        ids.flatMap((id) => {
          const numbers = numbersOf(id, name, protocol);
          return numbers.length === 0 ? [] : [[id, numbers] as const];
        }),
      ),
    every: (name, protocol) => everyNumber(names, name, protocol),
  };
}
