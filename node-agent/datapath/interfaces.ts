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

/**
 * The interfaces of the node's network namespace (default: the process's own), by name.
 * @throws Error when `ip` cannot be run or understood
 */
export async function nodeInterfaces(netns?: string): Promise<ReadonlyMap<string, NodeInterface>> {
  const command = ['ip', '-json', 'link', 'show'];
  const line = netns === undefined ? command : ['nsenter', `--net=${netns}`, ...command];
  const { stdout } = await run(line[0] ?? '', line.slice(1), { maxBuffer: 64 << 20 });
  const links: unknown = JSON.parse(stdout);
  if (!Array.isArray(links)) throw new Error(`${line.join(' ')} printed no list`);
  return new Map(
    links.map((link: { ifname: string; ifindex: number; address?: string }) => {
      const mac = link.address === undefined ? {} : { mac: link.address.toLowerCase() };
      return [link.ifname, { name: link.ifname, ifindex: link.ifindex, ...mac }];
    }),
  );
}
