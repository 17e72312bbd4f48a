import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** One interface of the node. */
export interface NodeInterface {
  readonly name: string;
  readonly ifindex: number;
  /** Lower case; absent for interfaces without one. */
  readonly mac?: string;
}

const run = promisify(execFile);

interface LinkRoute {
  readonly dst?: string;
  readonly dev?: string;
  readonly gateway?: string;
}

/**
 * The addresses behind each interface, by its name: of host routes on the link, as the CNI plugin makes them.
 * @throws Error when `ip` cannot be run or understood
 */
export async function podRoutes(netns?: string): Promise<ReadonlyMap<string, readonly string[]>> {
  const found = new Map<string, readonly string[]>();
  // Routes of IPv6 have no scope.
  for (const words of [
    ['-4', 'route', 'show', 'scope', 'link'],
    ['-6', 'route', 'show', 'type', 'unicast'],
  ])
    for (const { dst, dev, gateway } of (await ipJson(netns, ...words)) as LinkRoute[])
      if (dst !== undefined && dev !== undefined && gateway === undefined && !dst.includes('/') && dst !== 'default')
        found.set(dev, [...(found.get(dev) ?? []), dst]);
  return found;
}

/**
 * The interfaces of the node's network namespace (default: the process's own), by name; but for the loopback, which is no pod's.
 * @throws Error when `ip` cannot be run or understood
 */
export async function nodeInterfaces(netns?: string): Promise<ReadonlyMap<string, NodeInterface>> {
  const links = (await ipJson(netns, 'link', 'show')) as {
    ifname: string;
    ifindex: number;
    address?: string;
    link_type?: string;
  }[];
  const others = links.filter(({ link_type }) => link_type !== 'loopback');
  return new Map(
    others.map((link) => {
      const mac = link.address === undefined ? {} : { mac: link.address.toLowerCase() };
      return [link.ifname, { name: link.ifname, ifindex: link.ifindex, ...mac }];
    }),
  );
}

async function ipJson(netns: string | undefined, ...words: readonly string[]): Promise<unknown[]> {
  const command = ['ip', '-json', ...words];
  const line = netns === undefined ? command : ['nsenter', `--net=${netns}`, ...command];
  const { stdout } = await run(line[0] ?? '', line.slice(1), { maxBuffer: 64 << 20 });
  // Nothing to show is an empty answer of some versions.
  const list: unknown = stdout.trim() === '' ? [] : JSON.parse(stdout);
  if (!Array.isArray(list)) throw new Error(`${line.join(' ')} printed no list`);
  return list;
}
