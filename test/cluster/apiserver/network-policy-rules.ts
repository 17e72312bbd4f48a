/** NetworkPolicies: what the server completes, refuses and warns of. */
import { BlockList, isIPv4, isIPv6 } from 'node:net';
import { type Cause, cause } from './errors.ts';
import { ensureObject, isObject, type Json, type JsonObject, list, object, scalarText, text } from './json.ts';
import { faults, portNameFaults, selectorRules } from './label-rules.ts';
import { objects, portRule, setDefault } from './pod-rules.ts';
import type { Strategy } from './registry.ts';

const PROTOCOLS = ['TCP', 'UDP', 'SCTP'];
const TYPES = ['Ingress', 'Egress'];
const NO_CIDR = 'must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)';

interface Cidr {
  readonly address: string;
  readonly bits: number;
  readonly family: 'ipv4' | 'ipv6';
  /** Leading zeros and IPv4 in IPv6 are still read as what they meant before. */
  readonly odd: boolean;
}

/** Also reads what the real server still takes with a warning. */
function parseCidr(value: string): Cidr | undefined {
  const match = /^([0-9A-Fa-f.:]+)\/(\d{1,3})$/.exec(value);
  if (match === null) return undefined;
  const [, given = '', bitsText = ''] = match;
  const bits = Number(bitsText);
  const plain = /^[\d.]+$/.test(given) ? given.split('.').map(Number).join('.') : given;
  if (isIPv4(plain)) {
    const odd = plain !== given || String(bits) !== bitsText;
    return bits <= 32 ? { address: plain, bits, family: 'ipv4', odd } : undefined;
  }
  if (!isIPv6(plain) || bits > 128) return undefined;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(plain)?.[1];
  if (mapped !== undefined && bits >= 96) return { address: mapped, bits: bits - 96, family: 'ipv4', odd: true };
  return { address: plain, bits, family: 'ipv6', odd: false };
}

/** Whether `inner` is a part of `outer` and not all of it. */
function strictlyIn(inner: Cidr, outer: Cidr): boolean {
  if (inner.family !== outer.family || inner.bits <= outer.bits) return false;
  const block = new BlockList();
  block.addSubnet(outer.address, outer.bits, outer.family);
  return block.check(inner.address, inner.family);
}

/** The network address of an IPv4 block, as text. */
function masked(cidr: Cidr): string {
  const number = cidr.address.split('.').reduce((sum, byte) => sum * 256 + Number(byte), 0);
  const size = 2 ** (32 - cidr.bits);
  const base = Math.floor(number / size) * size;
  return [24, 16, 8, 0].map((shift) => Math.floor(base / 2 ** shift) % 256).join('.');
}

function portRules(port: JsonObject, where: string): Cause[] {
  const out: Cause[] = [];
  if (!PROTOCOLS.includes(scalarText(port.protocol)))
    out.push(cause.notSupported(`${where}.protocol`, port.protocol, PROTOCOLS));
  if (typeof port.port === 'string') {
    out.push(...faults(`${where}.port`, port.port, portNameFaults(port.port)));
    if (port.endPort !== undefined)
      out.push(cause.invalid(`${where}.endPort`, port.endPort, 'may not be specified when `port` is non-numeric'));
  } else if (typeof port.port === 'number') {
    out.push(...portRule(port.port, `${where}.port`));
    if (typeof port.endPort === 'number' && port.endPort < port.port)
      out.push(cause.invalid(`${where}.endPort`, port.port, 'must be greater than or equal to `port`'));
    out.push(...portRule(port.endPort, `${where}.endPort`));
  } else if (port.endPort !== undefined) {
    out.push(cause.invalid(`${where}.endPort`, port.endPort, 'may not be specified when `port` is not specified'));
  }
  return out;
}

function blockRules(block: JsonObject, where: string): Cause[] {
  const given = text(block, 'cidr');
  if (given === '') return [cause.required(`${where}.cidr`)];
  const cidr = parseCidr(given);
  if (cidr === undefined) return [cause.invalid(`${where}.cidr`, given, NO_CIDR)];
  return list(block, 'except').flatMap((entry, i) => {
    const except = parseCidr(scalarText(entry));
    if (except === undefined) return [cause.invalid(`${where}.except[${i}]`, entry, NO_CIDR)];
    if (strictlyIn(except, cidr)) return [];
    return [cause.invalid(`${where}.except[${i}]`, entry, 'must be a strict subset of `cidr`')];
  });
}

function peerRules(peer: JsonObject, where: string): Cause[] {
  const out: Cause[] = [];
  const parts = ['podSelector', 'namespaceSelector', 'ipBlock'].filter((name) => isObject(peer[name]));
  for (const name of ['podSelector', 'namespaceSelector']) out.push(...selectorRules(peer[name], `${where}.${name}`));
  if (isObject(peer.ipBlock)) out.push(...blockRules(peer.ipBlock, `${where}.ipBlock`));
  if (parts.length === 0) out.push(cause.required(where, 'must specify a peer'));
  else if (parts.length > 1 && parts.includes('ipBlock'))
    out.push(cause.forbidden(where, 'may not specify both ipBlock and another peer'));
  return out;
}

const DIRECTIONS = [
  ['ingress', 'from'],
  ['egress', 'to'],
] as const;

function rules(o: JsonObject): Cause[] {
  const out = selectorRules(object(o, 'spec').podSelector, 'spec.podSelector');
  for (const [direction, field] of DIRECTIONS) {
    objects(o, 'spec', direction).forEach((rule, i) => {
      objects(rule, 'ports').forEach((port, j) => {
        out.push(...portRules(port, `spec.${direction}[${i}].ports[${j}]`));
      });
      objects(rule, field).forEach((peer, j) => {
        out.push(...peerRules(peer, `spec.${direction}[${i}].${field}[${j}]`));
      });
    });
  }
  const types = list(o, 'spec', 'policyTypes');
  if (types.length > 2) {
    out.push(cause.invalid('spec.policyTypes', types, 'may not specify more than two policyTypes'));
    return out;
  }
  types.forEach((type, i) => {
    if (!TYPES.includes(scalarText(type))) out.push(cause.notSupported(`spec.policyTypes[${i}]`, type, TYPES));
  });
  return out;
}

function warnings(o: JsonObject): string[] {
  const out: string[] = [];
  for (const [direction, field] of DIRECTIONS) {
    objects(o, 'spec', direction).forEach((rule, i) => {
      objects(rule, field).forEach((peer, j) => {
        const where = `spec.${direction}[${i}].${field}[${j}].ipBlock`;
        const block = object(peer, 'ipBlock');
        const given: [string, Json | undefined][] = [
          [`${where}.cidr`, block.cidr],
          ...list(block, 'except').map((entry, k): [string, Json] => [`${where}.except[${k}]`, entry]),
        ];
        for (const [path, value] of given) out.push(...cidrWarnings(path, scalarText(value)));
      });
    });
  }
  return out;
}

function cidrWarnings(path: string, given: string): string[] {
  const cidr = parseCidr(given);
  if (cidr === undefined || cidr.family !== 'ipv4') return [];
  const base = `${masked(cidr)}/${cidr.bits}`;
  if (cidr.odd)
    return [
      `${path}: non-standard CIDR value "${given}" will be considered invalid in a future Kubernetes release: use "${base}"`,
    ];
  if (base === given) return [];
  return [`${path}: CIDR value "${given}" is ambiguous in this context (should be "${base}" or "${cidr.address}/32"?)`];
}

/** Empty lists are no lists, once what depends on them is decided. */
function dropEmpty(parent: JsonObject, ...names: readonly string[]): void {
  for (const name of names) if (Array.isArray(parent[name]) && parent[name].length === 0) delete parent[name];
}

export const networkPolicy: Strategy = {
  defaults: (o) => {
    const spec = ensureObject(o, 'spec');
    setDefault(spec, 'podSelector', {});
    dropEmpty(spec, 'ingress', 'egress', 'policyTypes');
    if (spec.policyTypes === undefined)
      spec.policyTypes = spec.egress === undefined ? ['Ingress'] : ['Ingress', 'Egress'];
    for (const rule of [...objects(spec, 'ingress'), ...objects(spec, 'egress')]) {
      dropEmpty(rule, 'from', 'to', 'ports');
      for (const port of objects(rule, 'ports')) setDefault(port, 'protocol', 'TCP');
      for (const peer of [...objects(rule, 'from'), ...objects(rule, 'to')]) {
        if (isObject(peer.ipBlock)) {
          dropEmpty(peer.ipBlock, 'except');
          setDefault(peer.ipBlock, 'cidr', '');
        }
      }
    }
  },
  validate: rules,
  warnings,
};
