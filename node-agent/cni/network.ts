import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { canonicalPrefix, ipv4Of } from '@weir/net';
import { codeOf, messageOf } from '@weir/process/errors';
import { CommandError, type RunCommand, runCommand } from '../host/command.ts';
import { batchLines, ipBatch } from '../host/ip.ts';
import { setSetting } from '../host/setting.ts';
import { VETH_PATTERN } from '../host/veth.ts';
import { AddressConflictError, CNI_CODE, CniError } from './errors.ts';
import { describeRoute, type LinkJson, nodeAddresses, type RouteJson } from './kernel-addresses.ts';
import { GATEWAY } from './names.ts';
import type { Network, NodeAddress, PairSpec } from './types.ts';

const ABSENT = /Cannot find device|does not exist|No such device/;
const EXISTS = /File exists/;
const DEFAULT_MTU = 1500;
const WRITABLE = "name the node's writable /proc/sys by --proc-sys (a container's own is read-only)";
/** Settings of the node's end of a pair that are off: no pod gives its node a route or an address, and none is sent another way. */
const OFF = ['ipv6/*/accept_ra', 'ipv6/*/accept_redirects', 'ipv4/*/accept_redirects', 'ipv4/*/send_redirects'];

/**
 * Pod interfaces by iproute2. A pod's two ends never need ARP or a bridge: each side has a permanent neighbour entry for the other,
 * the pod a default route through a link-local gateway, the node one host route for each pod.
 */
export class PodNetwork implements Network {
  readonly #run: RunCommand;
  readonly #procSys: string;
  readonly #set: typeof setSetting;
  readonly #nodeAddress: () => string | undefined;

  constructor(
    options: {
      readonly run?: RunCommand;
      /** Where the node's /proc/sys can be written. Default /proc/sys. */
      readonly procSys?: string;
      /** How a setting is written there. */
      readonly set?: typeof setSetting;
      /** The Node's InternalIP; undefined while unknown. */
      readonly nodeAddress?: () => string | undefined;
    } = {},
  ) {
    this.#run = options.run ?? runCommand;
    this.#procSys = options.procSys ?? '/proc/sys';
    this.#set = options.set ?? setSetting;
    this.#nodeAddress = options.nodeAddress ?? (() => undefined);
  }

  async prepareNode(): Promise<void> {
    await this.forward();
    // Pairs of an earlier version, and what somebody set meanwhile.
    for (const name of await this.hostLinks()) this.#harden(name);
  }

  /** Turns IPv4 forwarding on; whether it was off. @throws CniError when it is off and cannot be turned on */
  async forward(): Promise<boolean> {
    const path = join(this.#procSys, 'net/ipv4/ip_forward');
    try {
      return this.#set(path, '1');
    } catch (error) {
      // The agent does not start without: its last line is all that is read.
      throw new CniError(
        CNI_CODE.network,
        `cannot turn on IPv4 forwarding (${path}): ${messageOf(error)}; run "sysctl -w net.ipv4.ip_forward=1" on the node, or ${WRITABLE}`,
        '',
        { cause: error },
      );
    }
  }

  /** @throws CniError when a setting is on and cannot be turned off */
  #harden(hostName: string): void {
    for (const name of OFF) {
      const path = join(this.#procSys, 'net', name.replace('*', `conf/${hostName}`));
      try {
        this.#set(path, '0');
      } catch (error) {
        // The interface is gone, or has no IPv6, as where its MTU is below 1280.
        if (codeOf(error) === 'ENOENT') continue;
        throw new CniError(CNI_CODE.network, `cannot turn off ${path}: ${messageOf(error)}; ${WRITABLE}`, '', {
          cause: error,
        });
      }
    }
  }

  async uplink(): Promise<{ readonly mtu: number; readonly address?: string }> {
    const [routes, links] = await this.#json<[RouteJson[], LinkJson[]]>(['route show default', 'address show'], 2);
    const outside = links.filter(
      (link) => link.ifname !== 'lo' && !VETH_PATTERN.test(link.ifname) && link.flags?.includes('UP') === true,
    );
    // The address by which the cluster knows the node, where an interface has it: probes and the API server come from it.
    const wanted = this.#nodeAddress();
    const named = wanted === undefined ? undefined : links.find((link) => addressesOf(link).includes(wanted));
    const device = outside.find((link) => link.ifname === routes[0]?.dev) ?? outside[0];
    // A node's address on its loopback says nothing of the wire.
    const wire = named === undefined || named.ifname === 'lo' ? device : named;
    const address = named === undefined ? addressesOf(device)[0] : wanted;
    return { mtu: wire?.mtu ?? DEFAULT_MTU, ...(address === undefined ? {} : { address }) };
  }

  async addressesWithin(cidr: string): Promise<readonly NodeAddress[]> {
    const [links, routes] = await this.#json<[LinkJson[], RouteJson[]]>(
      ['address show', `route show table all root ${canonicalPrefix(cidr)}`],
      2,
    );
    return nodeAddresses(cidr, links, routes);
  }

  async createPair(spec: PairSpec): Promise<number> {
    await this.#refuseOwnNamespace(spec.netns);
    const src = spec.nodeAddress === undefined ? '' : ` src ${spec.nodeAddress}`;
    const held = `route show table all root ${ipv4Of(spec.addresses)}/32`;
    const [links, routes] = await this.#json<[LinkJson[], RouteJson[]]>(
      [
        `link add name ${spec.hostName} mtu ${spec.mtu} address ${spec.hostMac} type veth peer name ${spec.podName} mtu ${spec.mtu} address ${spec.podMac} netns ${spec.netns}`,
        `link set dev ${spec.hostName} addrgenmode none`,
        `link set dev ${spec.hostName} up`,
        `neighbour replace ${ipv4Of(spec.addresses)} lladdr ${spec.podMac} dev ${spec.hostName} nud permanent`,
        // Not "replace": that would take another interface's route.
        `route add ${ipv4Of(spec.addresses)}/32 dev ${spec.hostName} scope link${src}`,
        `link show dev ${spec.hostName}`,
        held,
      ],
      2,
    ).catch(async (error: unknown) => {
      if (!(error instanceof CommandError && EXISTS.test(error.message))) throw error;
      const [there] = await this.#json<[RouteJson[]]>([held], 1);
      throw conflict(spec, there, { cause: error }) ?? error;
    });
    // One of another metric or table stands beside ours.
    const other = conflict(spec, routes);
    if (other !== undefined) throw other;
    const ifindex = links[0]?.ifindex;
    if (ifindex === undefined)
      throw new CniError(CNI_CODE.network, `interface ${spec.hostName} is gone right after it was made`);
    // Nothing has come in: the pod's end is still down.
    this.#harden(spec.hostName);
    return ifindex;
  }

  async configurePod(spec: PairSpec): Promise<void> {
    await this.#run(
      'nsenter',
      [`--net=${spec.netns}`, 'ip', '-batch', '-'],
      batchLines([
        'link set dev lo up',
        `address add ${ipv4Of(spec.addresses)}/32 dev ${spec.podName}`,
        `link set dev ${spec.podName} addrgenmode none`,
        `link set dev ${spec.podName} up`,
        `neighbour replace ${GATEWAY} lladdr ${spec.hostMac} dev ${spec.podName} nud permanent`,
        `route add default via ${GATEWAY} dev ${spec.podName} onlink`,
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
    const problems: string[] = [];
    try {
      const [links, routes] = await this.#json<[LinkJson[], RouteJson[]]>(
        [`address show dev ${spec.podName}`, 'route show default'],
        2,
        spec.netns,
      );
      const link = links[0];
      if (link?.flags?.includes('UP') !== true) problems.push(`pod interface ${spec.podName} is down`);
      const found =
        link?.addr_info
          ?.filter((entry) => entry.family === 'inet')
          .map((entry) => `${entry.local}/${entry.prefixlen}`) ?? [];
      if (!found.includes(`${ipv4Of(spec.addresses)}/32`))
        problems.push(`pod interface ${spec.podName} has not ${ipv4Of(spec.addresses)}/32 but [${found.join(' ')}]`);
      if (!routes.some((route) => route.gateway === GATEWAY && route.dev === spec.podName)) {
        problems.push(`pod has no default route by ${GATEWAY} on ${spec.podName}`);
      }
    } catch (error) {
      problems.push(messageOf(error));
    }
    try {
      const [links, routes] = await this.#json<[LinkJson[], RouteJson[]]>(
        [`link show dev ${spec.hostName}`, `route show ${ipv4Of(spec.addresses)}`],
        2,
      );
      if (links[0]?.flags?.includes('UP') !== true) problems.push(`host interface ${spec.hostName} is down`);
      if (!routes.some((route) => route.dev === spec.hostName))
        problems.push(`node has no route to ${ipv4Of(spec.addresses)} by ${spec.hostName}`);
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

/** What to throw when a route leads the address elsewhere. */
function conflict(spec: PairSpec, routes: readonly RouteJson[], options?: ErrorOptions): CniError | undefined {
  const other = routes.find(({ dev }) => dev !== spec.hostName);
  return other && new AddressConflictError(ipv4Of(spec.addresses) ?? '', describeRoute(other), options);
}

/** Its IPv4 addresses that other machines may know. */
function addressesOf(link: LinkJson | undefined): readonly string[] {
  return (link?.addr_info ?? [])
    .filter((entry) => entry.family === 'inet' && entry.scope === 'global')
    .map((entry) => entry.local);
}
