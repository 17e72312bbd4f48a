/** The interfaces of the node that lead out, as `ip -json address show` prints them. */
import type { UplinkRow } from './types.ts';

/** What is read of an address. */
interface AddressInfo {
  readonly family?: string;
  readonly local?: string;
  readonly scope?: string;
  readonly secondary?: boolean;
  readonly temporary?: boolean;
  readonly deprecated?: boolean;
  readonly tentative?: boolean;
}

interface LinkInfo {
  readonly ifindex?: number;
  readonly ifname?: string;
  readonly link_type?: string;
  readonly addr_info?: readonly AddressInfo[];
}

/**
 * Ethernet interfaces with an address that is valid beyond their link, but for those of pods.
 * @param preferred the node's own addresses: where an interface has one, what is sent there leaves with that
 */
export function uplinksOf(
  printed: string,
  isPods: (ifindex: number) => boolean,
  preferred: readonly string[],
): readonly UplinkRow[] {
  const links: unknown = printed.trim() === '' ? [] : JSON.parse(printed);
  if (!Array.isArray(links)) throw new Error('ip -json address show printed no list');
  return (links as readonly LinkInfo[]).flatMap(({ ifindex, ifname, link_type, addr_info = [] }) => {
    if (ifindex === undefined || ifname === undefined || link_type !== 'ether' || isPods(ifindex)) return [];
    const of = (family: string): string | undefined => {
      const usable = addr_info.filter(
        (each) => each.family === family && each.scope === 'global' && !each.deprecated && !each.tentative,
      );
      const first = usable.find(({ secondary, temporary }) => !secondary && !temporary) ?? usable[0];
      return (usable.find(({ local }) => local !== undefined && preferred.includes(local)) ?? first)?.local;
    };
    const [ipv4, ipv6] = [of('inet'), of('inet6')];
    if (ipv4 === undefined && ipv6 === undefined) return [];
    return [
      {
        ifindex,
        name: ifname,
        ...(ipv4 === undefined ? {} : { ipv4 }),
        ...(ipv6 === undefined ? {} : { ipv6 }),
      },
    ];
  });
}
