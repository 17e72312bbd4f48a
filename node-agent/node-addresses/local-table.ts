/** The local routing table, as `ip -json route show table local` prints it. */
import { addressBits, addressIn, formatPrefix, type Prefix, parsePrefix } from '@weir/net';
import type { LocalAddressRow } from './types.ts';

/** IDENTITY_HOST. */
const HOST = 1;

/** Where kube-proxy's mode `ipvs` keeps the addresses of Services, which are no addresses of a node. */
const IPVS_DEVICE = 'kube-ipvs0';

const KINDS = ['local', 'broadcast', 'anycast'] as const;
/** Of each host alone, or of one link: others do not route them. */
const LOOPBACK = ['127.0.0.0/8', '::1/128'].map((text) => parsePrefix(text));
const LINK_LOCAL = ['169.254.0.0/16', 'fe80::/10'].map((text) => parsePrefix(text));
const LINK_LOCAL_V6 = LINK_LOCAL.filter(({ family }) => family === 6);

/** What is read of a route. */
interface RouteJson {
  readonly type?: unknown;
  readonly dst?: unknown;
  readonly dev?: unknown;
}

/** The node's addresses in what `ip` printed, of either family. IPv6 addresses of links are left out: all nodes have the same. */
export function localAddressesIn(printed: string): readonly LocalAddressRow[] {
  const routes: unknown = printed.trim() === '' ? [] : JSON.parse(printed);
  if (!Array.isArray(routes)) throw new Error('ip -json route show printed no list');
  const rows = new Map<string, LocalAddressRow>();
  for (const { type, dst, dev } of routes as readonly RouteJson[]) {
    const kind = KINDS.find((each) => each === type);
    if (kind === undefined || typeof dst !== 'string' || dst === 'default' || dev === IPVS_DEVICE) continue;
    const parsed = parsePrefix(dst);
    if (parsed.bits === 0 || inside([...LOOPBACK, ...LINK_LOCAL_V6], parsed)) continue;
    const prefix = formatPrefix(parsed);
    // The same address at two interfaces is one.
    if (rows.get(prefix)?.kind === 'local') continue;
    rows.set(prefix, { prefix, identity: HOST, kind, device: typeof dev === 'string' ? dev : '' });
  }
  return [...rows.values()];
}

/**
 * The single addresses that others may send to, each as text.
 * @param reported addresses by which the cluster knows the node: of these interfaces' networks others have the broadcast and anycast addresses
 *   themselves, or a router answers there before the node
 */
export function reachable(rows: Iterable<LocalAddressRow>, reported: ReadonlySet<string>): string[] {
  const all = Array.from(rows, (row) => ({ ...row, address: row.prefix.split('/')[0] ?? '' }));
  const known = new Set(all.flatMap(({ address, device }) => (reported.has(address) ? [device] : [])));
  return all.flatMap(({ kind, device, prefix, address }) => {
    const parsed = parsePrefix(prefix);
    const single = parsed.bits === addressBits(parsed.family);
    return single && (kind === 'local' || !known.has(device)) && !inside(LINK_LOCAL, parsed) ? [address] : [];
  });
}

function inside(prefixes: readonly Prefix[], { bits, bytes }: Prefix): boolean {
  return prefixes.some((outer) => outer.bits <= bits && addressIn(outer, bytes));
}
