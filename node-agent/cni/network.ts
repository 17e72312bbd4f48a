import { stat } from 'node:fs/promises';
import { canonicalPrefix, type Family, familyOf, fullPrefix, ipv6Of } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import { CommandError, type RunCommand, runCommand } from '../host/command.ts';
import { batchLines, ipBatch } from '../host/ip.ts';
import type { Settings } from '../host/setting.ts';
import { VETH_PATTERN } from '../host/veth.ts';
import { AddressConflictError, CNI_CODE, CniError } from './errors.ts';
import { describeRoute, type LinkJson, nodeAddresses, type RouteJson } from './kernel-addresses.ts';
import { GATEWAY } from './names.ts';
import { NodeSettings } from './node-settings.ts';
import type { Network, NodeAddress, PairSpec } from './types.ts';

const ABSENT = /Cannot find device|does not exist|No such device/;
const EXISTS = /File exists/;
const DEFAULT_MTU = 1500;
/** A family's default route, whatever the table. */
const DEFAULT: Readonly<Record<Family, string>> = { 4: 'table all exact 0.0.0.0/0', 6: 'table all exact ::/0' };

/**
 * Pod interfaces by iproute2. A pod's two ends need neither ARP nor neighbour discovery nor a bridge: each side has permanent neighbour
 * entries for the other, the pod default routes through link-local gateways, the node one host route for each address.
 */
export class PodNetwork implements Network {
  readonly #run: RunCommand;
  readonly #settings: NodeSettings;
  readonly #nodeAddresses: () => readonly string[];

  /** Where the node's /proc/sys can be written. */
  readonly procSys: string;

  constructor(
    options: {
      readonly run?: RunCommand;
      /** Where the node's /proc/sys can be written. Default /proc/sys. */
      readonly procSys?: string;
      /** How settings are read and written there. */
      readonly settings?: Settings;
      /** The Node's InternalIPs, of each family one at most; none while they are not known. */
      readonly nodeAddresses?: () => readonly string[];
    } = {},
  ) {
    this.#run = options.run ?? runCommand;
    this.procSys = options.procSys ?? '/proc/sys';
    this.#settings = new NodeSettings(this.procSys, options.settings);
    this.#nodeAddresses = options.nodeAddresses ?? (() => []);
  }

  async prepareNode(): Promise<void> {
    await this.forward(4);
    // Pairs of an earlier version, and what somebody set meanwhile.
    for (const name of await this.hostLinks()) this.#settings.harden(name);
  }

  /** Turns a family's forwarding on; whether it was off. @throws CniError when it is off and cannot be turned on */
  forward(family: Family): Promise<boolean> {
    return this.#settings.forward(family, async () => {
      const [links] = await this.#json<[LinkJson[]]>(['link show'], 1);
      return links.map(({ ifname }) => ifname).filter((name) => !VETH_PATTERN.test(name));
    });
  }

  async uplink(): Promise<{ readonly mtu: number; readonly addresses: readonly string[] }> {
    const [ipv4, ipv6, links] = await this.#json<[RouteJson[], RouteJson[], LinkJson[]]>(
      [`route show ${DEFAULT[4]}`, `route show ${DEFAULT[6]}`, 'address show'],
      3,
    );
    const outside = links.filter(
      (link) => link.ifname !== 'lo' && !VETH_PATTERN.test(link.ifname) && link.flags?.includes('UP') === true,
    );
    // The addresses by which the cluster knows the node, where an interface has them: probes and the API server come from them.
    const wanted = this.#nodeAddresses();
    const named = ([4, 6] as const).flatMap((family) => {
      const address = wanted.find((each) => familyOf(each) === family);
      const link = links.find((each) => address !== undefined && addressesOn(each, family).includes(address));
      return address === undefined || link === undefined ? [] : [{ family, address, link }];
    });
    const route = [...ipv4, ...ipv6].find(({ dev }) => outside.some(({ ifname }) => ifname === dev));
    const device = outside.find(({ ifname }) => ifname === route?.dev) ?? outside[0];
    // A node's address on its loopback says nothing of the wire.
    const wire = named.find(({ link }) => link.ifname !== 'lo')?.link ?? device;
    const addresses = ([4, 6] as const).flatMap(
      (family) => named.find((each) => each.family === family)?.address ?? addressesOn(device, family)[0] ?? [],
    );
    return { mtu: wire?.mtu ?? DEFAULT_MTU, addresses };
  }

  async addressesWithin(cidr: string): Promise<readonly NodeAddress[]> {
    const [links, routes] = await this.#json<[LinkJson[], RouteJson[]]>(
      ['address show', `route show table all root ${canonicalPrefix(cidr)}`],
      2,
    );
    return nodeAddresses(cidr, links, routes);
  }

  async createPair(spec: PairSpec): Promise<number> {
    const { hostName, podName, mtu, addresses } = spec;
    await this.#refuseOwnNamespace(spec.netns);
    const ipv6 = ipv6Of(addresses) !== undefined;
    if (ipv6) await this.forward(6);
    await this.#json(
      [
        `link add name ${hostName} mtu ${mtu} address ${spec.hostMac} type veth peer name ${podName} mtu ${mtu} address ${spec.podMac} netns ${spec.netns}`,
        `link set dev ${hostName} addrgenmode none`,
      ],
      0,
    );
    this.#settings.harden(hostName);
    if (ipv6) this.#settings.admitIPv6(hostName);
    const held = addresses.map((address) => `route show table all root ${fullPrefix(address)}`);
    const [links, ...routes] = await this.#json<[LinkJson[], ...RouteJson[][]]>(
      [
        `link set dev ${hostName} up`,
        ...addresses.flatMap((address) => [
          `neighbour replace ${address} lladdr ${spec.podMac} dev ${hostName} nud permanent`,
          // Not "replace": that would take another interface's route.
          `route add ${fullPrefix(address)} dev ${hostName}${sourceTo(address, spec)}`,
        ]),
        `link show dev ${hostName}`,
        ...held,
      ],
      1 + held.length,
    ).catch(async (error: unknown) => {
      if (!(error instanceof CommandError && EXISTS.test(error.message))) throw error;
      const there = await this.#json<RouteJson[][]>(held, held.length);
      throw conflict(spec, there, { cause: error }) ?? error;
    });
    // One of another metric or table stands beside ours.
    const other = conflict(spec, routes);
    if (other !== undefined) throw other;
    const ifindex = links[0]?.ifindex;
    if (ifindex === undefined)
      throw new CniError(CNI_CODE.network, `interface ${hostName} is gone right after it was made`);
    return ifindex;
  }

  async configurePod({ netns, podName, hostMac, addresses }: PairSpec): Promise<void> {
    const families = addresses.map(familyOf);
    if (families.includes(6)) this.#settings.admitIPv6InPod(netns, podName);
    await this.#run(
      'nsenter',
      [`--net=${netns}`, 'ip', '-batch', '-'],
      batchLines([
        'link set dev lo up',
        // No address of its own makes the pod ask for routers, nor wait until it may use the one that it is given.
        `link set dev ${podName} addrgenmode none`,
        ...addresses.map(
          (address) => `address add ${fullPrefix(address)} dev ${podName}${familyOf(address) === 6 ? ' nodad' : ''}`,
        ),
        `link set dev ${podName} up`,
        ...families.flatMap((family) => [
          `neighbour replace ${GATEWAY[family]} lladdr ${hostMac} dev ${podName} nud permanent`,
          `route add default via ${GATEWAY[family]} dev ${podName} onlink`,
        ]),
      ]),
    );
  }

  async removeLink(hostName: string): Promise<boolean> {
    try {
      await this.#run('ip', ['link', 'delete', 'dev', hostName]);
      return true;
    } catch (error) {
      if (error instanceof CommandError && ABSENT.test(error.message)) return false;
      throw error;
    }
  }

  async checkPod(spec: {
    netns: string;
    podName: string;
    addresses: readonly string[];
    hostName: string;
  }): Promise<readonly string[]> {
    return [...(await this.#checkPodSide(spec)), ...(await this.#checkHostSide(spec))];
  }

  async #checkPodSide({ netns, podName, addresses }: Parameters<Network['checkPod']>[0]): Promise<readonly string[]> {
    const problems: string[] = [];
    try {
      const [links, ...routes] = await this.#json<[LinkJson[], ...RouteJson[][]]>(
        [`address show dev ${podName}`, ...addresses.map((address) => `route show ${DEFAULT[familyOf(address)]}`)],
        1 + addresses.length,
        netns,
      );
      const link = links[0];
      if (link?.flags?.includes('UP') !== true) problems.push(`pod interface ${podName} is down`);
      const found = (link?.addr_info ?? []).map((entry) => `${entry.local}/${entry.prefixlen}`);
      for (const [index, address] of addresses.entries()) {
        const gateway = GATEWAY[familyOf(address)];
        if (!found.includes(fullPrefix(address)))
          problems.push(`pod interface ${podName} has not ${fullPrefix(address)} but [${found.join(' ')}]`);
        if (routes[index]?.some((route) => route.gateway === gateway && route.dev === podName) !== true)
          problems.push(`pod has no default route by ${gateway} on ${podName}`);
      }
    } catch (error) {
      problems.push(messageOf(error));
    }
    return problems;
  }

  async #checkHostSide({ hostName, addresses }: Parameters<Network['checkPod']>[0]): Promise<readonly string[]> {
    const problems: string[] = [];
    try {
      const [links, ...routes] = await this.#json<[LinkJson[], ...RouteJson[][]]>(
        [
          `link show dev ${hostName}`,
          ...addresses.map((address) => `route show table all root ${fullPrefix(address)}`),
        ],
        1 + addresses.length,
      );
      if (links[0]?.flags?.includes('UP') !== true) problems.push(`host interface ${hostName} is down`);
      for (const [index, address] of addresses.entries())
        if (routes[index]?.some((route) => route.dev === hostName) !== true)
          problems.push(`node has no route to ${address} by ${hostName}`);
    } catch (error) {
      problems.push(messageOf(error));
    }
    return problems;
  }

  async hostLinks(): Promise<readonly string[]> {
    const [links] = await this.#json<[LinkJson[]]>(['link show type veth'], 1);
    return links.map((link) => link.ifname).filter((name) => VETH_PATTERN.test(name));
  }

  async interfaceIndex(name: string): Promise<number> {
    if (!/^[A-Za-z0-9_.@-]{1,15}$/.test(name))
      throw new CniError(CNI_CODE.network, `"${name}" is not an interface name`);
    const [links] = await this.#json<[LinkJson[]]>([`link show dev ${name}`], 1);
    const ifindex = links[0]?.ifindex;
    if (ifindex === undefined) throw new CniError(CNI_CODE.network, `the node has no interface ${name}`);
    return ifindex;
  }

  #json<T extends unknown[]>(batch: readonly string[], count: number, netns?: string): Promise<T> {
    return ipBatch<T>(this.#run, batch, count, netns);
  }

  /** A pod in the node's own namespace would have the node's routes rewritten. */
  async #refuseOwnNamespace(netns: string): Promise<void> {
    const own = await stat('/proc/self/ns/net');
    let other: { readonly ino: number; readonly dev: number };
    try {
      other = await stat(netns);
    } catch (error) {
      throw new CniError(
        CNI_CODE.invalidEnvironment,
        `CNI_NETNS ${netns} cannot be opened: ${String(error)}`,
        "the agent must see the host's network namespaces (hostPID, or /run/netns mounted)",
        {
          cause: error,
        },
      );
    }
    if (own.ino === other.ino && own.dev === other.dev) {
      throw new CniError(
        CNI_CODE.invalidEnvironment,
        `CNI_NETNS ${netns} is the node's own network namespace`,
        'pods with hostNetwork need no CNI call',
      );
    }
  }
}

/** What to throw when a route leads one of the addresses elsewhere. `routes`: to each. */
function conflict(
  { addresses, hostName }: PairSpec,
  routes: readonly (readonly RouteJson[])[],
  options?: ErrorOptions,
): CniError | undefined {
  for (const [index, address] of addresses.entries()) {
    const other = routes[index]?.find(({ dev }) => dev !== hostName);
    if (other !== undefined) return new AddressConflictError(address, describeRoute(other), options);
  }
  return undefined;
}

/** How the node's own packets reach the address. */
function sourceTo(address: string, { nodeAddresses: own }: PairSpec): string {
  const family = familyOf(address);
  const source = own.find((each) => familyOf(each) === family);
  return `${family === 4 ? ' scope link' : ''}${source === undefined ? '' : ` src ${source}`}`;
}

/** Its addresses of the family that other machines may know. */
function addressesOn(link: LinkJson | undefined, family: Family): readonly string[] {
  return (link?.addr_info ?? [])
    .filter(({ local, scope, temporary, deprecated, tentative }) => {
      const lasting = temporary !== true && deprecated !== true && tentative !== true;
      return familyOf(local) === family && scope === 'global' && lasting;
    })
    .map(({ local }) => local);
}
