import { familyOf, fullPrefix } from '@weir/net';
import { clipped, printableLines } from '@weir/process/printable';
import { VETH_PATTERN } from '../host/veth.ts';
import type { EndpointRow } from '../tables.ts';
import { CNI_CODE, CniError } from './errors.ts';
import { GATEWAY, vethName } from './names.ts';
import type { CniCall, PairSpec } from './types.ts';

/** Characters of a message, which the runtime puts into Events of the pod. */
const LONGEST_MESSAGE = 1024;

const EVERYWHERE = { 4: '0.0.0.0/0', 6: '::/0' } as const;

/** The error of the CNI specification. */
export interface CniFailure {
  readonly cniVersion: string;
  readonly code: number;
  readonly msg: string;
  readonly details: string;
}

/** The endpoint's interface, when this plugin made it: of what was found without a file, the name alone tells. */
export function ownInterface({
  interfaceName,
  containerId,
  containerInterface: ifname,
  found,
}: EndpointRow): string | undefined {
  if (containerId === undefined || ifname === undefined)
    return found !== undefined && VETH_PATTERN.test(interfaceName) ? interfaceName : undefined;
  return interfaceName === vethName({ containerId, ifname }) ? interfaceName : undefined;
}

/** What ADD answers. */
export function addResult(call: CniCall, pair: PairSpec): object {
  const mtu = call.cniVersion === '1.1.0' ? { mtu: pair.mtu } : {};
  return {
    cniVersion: call.cniVersion,
    interfaces: [
      { name: pair.hostName, mac: pair.hostMac, ...mtu },
      { name: pair.podName, mac: pair.podMac, sandbox: pair.netns, ...mtu },
    ],
    ips: pair.addresses.map((address) => ({
      ...(call.cniVersion === '0.4.0' ? { version: String(familyOf(address)) } : {}),
      address: fullPrefix(address),
      gateway: GATEWAY[familyOf(address)],
      interface: 1,
    })),
    routes: pair.addresses.map((address) => ({ dst: EVERYWHERE[familyOf(address)], gw: GATEWAY[familyOf(address)] })),
    dns: {},
  };
}

/** What a failed call answers, in the version that the request named. */
export function failureAnswer({ cniCode: code, message, details }: CniError, cniVersion: string): CniFailure {
  return { cniVersion, code, msg: clipped(message, LONGEST_MESSAGE), details: printableLines(details) };
}

/** What parseCall has made sure of. */
export function required<T>(value: T | undefined): T {
  if (value === undefined) throw new CniError(CNI_CODE.invalidEnvironment, 'the request lacks what its command needs');
  return value;
}
