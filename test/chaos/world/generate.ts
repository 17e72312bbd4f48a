/** Random pods and policies: few labels, so that everything meets everything. */
import type { Random } from '../random.ts';
import { PORTS } from '../traffic/protocol.ts';
import {
  type Direction,
  type Element,
  type Labels,
  NAMESPACE_KEY,
  NAMESPACE_LABELS,
  type Port,
  type Requirement,
  type Rule,
  type Selector,
} from './policy.ts';

export const APPS = ['a', 'b', 'c', 'd'] as const;
export const TIERS = ['x', 'y', 'z'] as const;
const TEAMS = ['red', 'blue'] as const;
export const NAMESPACES = ['default', 'shop'] as const;
/** Addresses beyond the cluster; the first is the one that takes part. */
export const OUTSIDE_ADDRESS = '203.0.113.9';
const PREFIXES = ['203.0.113.9/32', '203.0.113.0/24', '203.0.112.0/23', '0.0.0.0/0', '198.51.100.0/24'] as const;

export const podLabels = (random: Random): Labels => ({ app: random.pick(APPS), tier: random.pick(TIERS) });

export const namespaceLabels = (random: Random): Labels => ({ team: random.pick(TEAMS) });

function requirement(random: Random): Requirement {
  const [key, values] = random.pick([
    ['app', APPS],
    ['tier', TIERS],
    ['tier', TIERS],
  ] as const);
  const operator = random.pick(['In', 'In', 'In', 'NotIn', 'Exists'] as const);
  if (operator === 'Exists') return { key, operator };
  return { key, operator, values: random.some<string>(values, random.between(1, values.length - 1)) };
}

function subject(random: Random): Selector {
  if (random.chance(0.15)) return {};
  if (random.chance(0.5)) return { matchLabels: { app: random.pick(APPS) } };
  return { matchExpressions: [requirement(random)] };
}

function peer(random: Random): Selector {
  const wide = random.chance(0.5)
    ? { matchExpressions: [{ key: NAMESPACE_KEY, operator: 'Exists' } as const] }
    : random.chance(0.3)
      ? { matchLabels: { [`${NAMESPACE_LABELS}team`]: random.pick(TEAMS) } }
      : {};
  const narrow = random.chance(0.2)
    ? {}
    : random.chance(0.4)
      ? { matchLabels: { app: random.pick(APPS) } }
      : { matchExpressions: [requirement(random)] };
  return {
    ...(wide.matchLabels === undefined && narrow.matchLabels === undefined
      ? {}
      : { matchLabels: { ...wide.matchLabels, ...narrow.matchLabels } }),
    ...(wide.matchExpressions === undefined && narrow.matchExpressions === undefined
      ? {}
      : { matchExpressions: [...(wide.matchExpressions ?? []), ...(narrow.matchExpressions ?? [])] }),
  };
}

const ports = (random: Random): readonly Port[] =>
  random
    .some(PORTS, random.between(1, PORTS.length))
    .map((port) => ({ port, protocol: random.pick(['TCP', 'UDP', 'ANY', 'ANY'] as const) }));

function element(random: Random): Element {
  const withPorts = random.chance(0.35) ? { ports: ports(random) } : {};
  if (random.chance(0.06)) return {};
  if (random.chance(0.12)) return { ports: ports(random) };
  if (random.chance(0.12)) return { cidrs: random.some(PREFIXES, random.between(1, 2)), ...withPorts };
  const endpoints = Array.from({ length: random.between(1, 2) }, () => peer(random));
  return { endpoints, ...withPorts };
}

const elements = (random: Random): readonly Element[] =>
  Array.from({ length: random.between(1, 2) }, () => element(random));

export function rule(random: Random): Rule {
  const direction: Direction = random.pick(['ingress', 'ingress', 'egress']);
  const both = random.chance(0.15);
  const directions: readonly Direction[] = both ? ['ingress', 'egress'] : [direction];
  const lists = (make: boolean): Rule['allow'] =>
    make ? Object.fromEntries(directions.map((each) => [each, elements(random)])) : {};
  const kind = random.pick(['allow', 'allow', 'deny', 'both'] as const);
  const open = random.chance(kind === 'deny' ? 0.7 : 0.1);
  return {
    subject: subject(random),
    allow: lists(kind !== 'deny'),
    deny: lists(kind !== 'allow'),
    ...(open ? { defaultDeny: { [direction]: false } } : {}),
  };
}

/** Another rule than this one: a part of it changed, or all of it. */
export function edited(random: Random, before: Rule): Rule {
  for (;;) {
    const fresh = rule(random);
    const after = random.pick([
      { ...before, subject: fresh.subject },
      { ...before, allow: before.deny, deny: before.allow },
      { ...before, allow: Object.keys(before.allow).length > 0 ? fresh.allow : before.allow },
      { ...before, deny: Object.keys(before.deny).length > 0 ? fresh.deny : before.deny },
      fresh,
      fresh,
    ]);
    if (isRule(after) && JSON.stringify(after) !== JSON.stringify(before)) return after;
  }
}

const isRule = ({ allow, deny }: Rule): boolean => Object.keys(allow).length + Object.keys(deny).length > 0;
