import { formatPrefix, readPrefix, Unreadable } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import { loadAll } from 'js-yaml';
import { CoreError } from '../errors.ts';
import type { MasqueradeConfig } from './types.ts';

/** Private networks (RFC 1918). */
const PRIVATE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'];
const LINK_LOCAL = '169.254.0.0/16';
const LINK_LOCAL_IPV6 = 'fe80::/10';
/** Never leaves with another address: the node itself, groups, everybody on the link. */
const NEVER = ['127.0.0.0/8', '224.0.0.0/4', '255.255.255.255/32', '::1/128', 'ff00::/8'];
/** A duration as Go writes it: 60s, 1m30s. */
const DURATION = /^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$/;
const KEYS = ['nonMasqueradeCIDRs', 'masqLinkLocal', 'masqLinkLocalIPv6', 'resyncInterval'];

/**
 * The file of `--masquerade-config` cannot be read, or has content without a meaning. The former configuration stays in force.
 * @fix Correct the key that the message names; the agent looks at the file again within seconds.
 */
export class MasqueradeConfigError extends CoreError {
  constructor(file: string, problem: string, cause?: unknown) {
    super('ERR_WEIR_MASQUERADE_CONFIG', `the masquerade configuration ${file} ${problem}`, cause);
  }
}

/**
 * Packets cannot be masqueraded by this kernel.
 * @fix Run Linux 6.6 or newer, or start the agent with `--masquerade auto` or `off`.
 */
export class MasqueradeKernelError extends CoreError {
  constructor() {
    super('ERR_WEIR_MASQUERADE_KERNEL', '--masquerade on needs Linux 6.6 or newer: use auto, or off');
  }
}

export const DEFAULT_CONFIG: MasqueradeConfig = {
  nonMasqueradeCidrs: PRIVATE,
  linkLocal: false,
  linkLocalIpv6: false,
};

/** Reads YAML or JSON. An absent key has its default. @throws MasqueradeConfigError */
export function parseConfig(file: string, text: string): MasqueradeConfig {
  const values = document(file, text);
  const unknown = Object.keys(values).find((key) => !KEYS.includes(key));
  if (unknown !== undefined)
    throw new MasqueradeConfigError(file, `has the unknown key ${show(unknown)}: the keys are ${KEYS.join(', ')}`);
  const { nonMasqueradeCIDRs: cidrs = PRIVATE, resyncInterval } = values;
  if (!Array.isArray(cidrs)) throw wrong(file, 'nonMasqueradeCIDRs', cidrs, 'write a list of CIDRs');
  if (resyncInterval !== undefined && (typeof resyncInterval !== 'string' || !DURATION.test(resyncInterval)))
    throw wrong(file, 'resyncInterval', resyncInterval, 'write a duration such as 60s');
  return {
    nonMasqueradeCidrs: cidrs.map((cidr, index) => prefixOf(file, `nonMasqueradeCIDRs[${index}]`, cidr)),
    linkLocal: flagOf(file, 'masqLinkLocal', values.masqLinkLocal),
    linkLocalIpv6: flagOf(file, 'masqLinkLocalIPv6', values.masqLinkLocalIPv6),
  };
}

/** All addresses that a configuration excludes. */
export function excludedBy({ nonMasqueradeCidrs, linkLocal, linkLocalIpv6 }: MasqueradeConfig): ReadonlySet<string> {
  return new Set([
    ...nonMasqueradeCidrs,
    ...(linkLocal ? [] : [LINK_LOCAL]),
    ...(linkLocalIpv6 ? [] : [LINK_LOCAL_IPV6]),
    ...NEVER,
  ]);
}

function document(file: string, text: string): Readonly<Record<string, unknown>> {
  let read: unknown;
  try {
    // Of an empty file there is none.
    [read] = loadAll(text);
  } catch (error) {
    throw new MasqueradeConfigError(file, `is neither YAML nor JSON: ${messageOf(error)}`, error);
  }
  if (read === undefined || read === null) return {};
  if (typeof read !== 'object' || Array.isArray(read))
    throw new MasqueradeConfigError(file, `has ${show(read)} where keys are expected: ${KEYS.join(', ')}`);
  return read as Readonly<Record<string, unknown>>;
}

function prefixOf(file: string, key: string, value: unknown): string {
  if (typeof value !== 'string') throw wrong(file, key, value, 'write a CIDR such as 10.0.0.0/8');
  const prefix = readPrefix(value, { requireLength: true });
  if (prefix instanceof Unreadable) throw wrong(file, key, value, prefix.error.message);
  const canonical = formatPrefix(prefix);
  if (canonical.split('/')[0] !== value.split('/')[0]?.toLowerCase())
    throw wrong(file, key, value, `write the network, ${canonical}`);
  return canonical;
}

function flagOf(file: string, key: string, value: unknown): boolean {
  if (value === undefined) return false;
  if (typeof value !== 'boolean') throw wrong(file, key, value, 'write true or false');
  return value;
}

function wrong(file: string, key: string, value: unknown, fix: string): MasqueradeConfigError {
  return new MasqueradeConfigError(file, `has ${show(value)} at ${key}: ${fix}`);
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? String(value)).slice(0, 100);
}
