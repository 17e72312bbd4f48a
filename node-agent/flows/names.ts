import { type DatapathEvent, DROP_REASONS } from '@weir/bpf';
import { reservedName } from '@weir/identity';
import { formatLabels } from '@weir/labels';
import { formatAddress } from '@weir/net';
import { PROTOCOL_NUMBERS } from '@weir/policy';
import type { StateDB, Table } from '@weir/statedb';
import type { Naming } from '../core.ts';
import type { PolicyRow, ServiceRow } from '../tables.ts';
import type { EventNames, FlowEvent, FlowPeer, PeerNaming } from './types.ts';

const PROTOCOLS: Readonly<Record<number, string>> = Object.fromEntries(
  Object.entries(PROTOCOL_NUMBERS).map(([name, number]) => [number, name]),
);
/** EtherTypes of IPv4, ARP and IPv6. */
const JUDGED: ReadonlySet<number> = new Set([0x0800, 0x0806, 0x86dd]);
const PORTED: ReadonlySet<number> = new Set([6, 17, 132]);
const KINDS: Readonly<Record<PolicyRow['kind'], string>> = {
  CiliumNetworkPolicy: 'cnp',
  CiliumClusterwideNetworkPolicy: 'ccnp',
  NetworkPolicy: 'knp',
  BareRules: 'rule',
};
/** A content network may have any number of names for one address. */
const MOST_HOST_NAMES = 5;
/** "No rule allows": the policies to name are those whose default deny was not lifted. */
const NO_MATCH: ReadonlySet<string> = new Set(['policy', 'unknown-identity']);

/** Of a frame that is not judged. The kernel takes off a VLAN tag, and shows the type of what was in it. */
function frameType(ethertype: number): string {
  const written = `0x${ethertype.toString(16).padStart(4, '0')}`;
  return JUDGED.has(ethertype) ? ` It has a VLAN tag, around EtherType ${written}.` : ` Its EtherType is ${written}.`;
}

/** Names what the kernel reports by numbers. */
export class FlowNames implements EventNames {
  readonly #naming: Naming;
  /** Wall clock less boot clock, in nanoseconds. */
  readonly #bootOffset: () => bigint;
  readonly #db: StateDB;
  readonly #services: Table<ServiceRow>;
  readonly #namings: () => readonly PeerNaming[];

  constructor(options: {
    readonly naming: Naming;
    readonly bootOffset: () => bigint;
    readonly db: StateDB;
    readonly services: Table<ServiceRow>;
    readonly peerNamings?: () => readonly PeerNaming[];
  }) {
    this.#naming = options.naming;
    this.#bootOffset = options.bootOffset;
    this.#db = options.db;
    this.#services = options.services;
    this.#namings = options.peerNamings ?? (() => []);
  }

  event(raw: DatapathEvent): FlowEvent {
    const direction = raw.direction === 0 ? 'ingress' : 'egress';
    const reason = raw.reasonName;
    const forged = reason === 'invalid-source';
    const known = DROP_REASONS.get(raw.reason)?.sentence ?? 'A policy allows the flow, or none is in force.';
    const foreign = reason === 'unknown-l3';
    const more = forged ? this.#claim(raw.src) : foreign ? frameType(raw.ethertype) : '';
    const sentence = `${known}${more}`;
    const fromPod = forged || (foreign && direction === 'egress');
    const noMatch = NO_MATCH.has(reason) || (reason === 'group-address' && raw.cookie === 0);
    const policies = this.#policies(raw.endpoint, direction, raw.cookie, noMatch);
    const icmp = raw.protocol === 1 || raw.protocol === 58;
    return {
      time: this.time(raw.timeNs),
      verdict: raw.kind === 'drop' ? 'dropped' : 'allowed',
      direction,
      endpoint: raw.endpoint,
      source: fromPod ? this.#sender(raw) : this.#end(raw.src, raw.srcIdentity, raw.sport, raw.protocol),
      destination: this.#end(raw.dst, raw.dstIdentity, raw.dport, raw.protocol),
      protocol: PROTOCOLS[raw.protocol] ?? String(raw.protocol),
      ...(icmp ? { icmpType: raw.icmpType } : {}),
      ...(PORTED.has(raw.protocol) ? { sourcePort: raw.sport, destinationPort: raw.dport } : {}),
      reason,
      message: policies.length === 0 ? sentence : `${sentence} (${policies.join(', ')})`,
      policies,
      revision: raw.revision,
    };
  }

  time(bootNs: bigint): string {
    return new Date(Number((bootNs + this.#bootOffset()) / 1_000_000n)).toISOString();
  }

  #end(bytes: Uint8Array, identity: number, port: number, protocol: number): FlowPeer {
    const peer = this.peer(bytes, identity);
    if (port === 0) return peer;
    const backendOf = this.#namings().flatMap((naming) => naming.backendOf(peer.address, port, protocol));
    return backendOf.length === 0 ? peer : { ...peer, backendOf };
  }

  peer(bytes: Uint8Array, identity: number): FlowPeer {
    if (bytes.length === 0) return { address: '', identity };
    const address = formatAddress(bytes);
    const name = this.#owner(bytes, identity) ?? reservedName(identity) ?? this.#naming.prefixOf(identity);
    const service = this.#service(address);
    const hostNames = this.#namings().flatMap((naming) => naming.hostNames?.(address) ?? []);
    return {
      address,
      identity,
      ...(name === undefined ? {} : { name }),
      ...(service === undefined ? {} : { service }),
      ...(hostNames.length === 0 ? {} : { hostNames: hostNames.slice(0, MOST_HOST_NAMES) }),
      ...this.#labels(identity),
    };
  }

  /** Who sent a packet whose source address is not its own: the endpoint, whoever has the address. Events of ARP have no identity. */
  #sender({ src, endpoint, srcIdentity }: DatapathEvent): FlowPeer {
    const identity = srcIdentity || (this.#naming.endpoint(endpoint)?.identity ?? 0);
    const address = src.length === 0 ? '' : formatAddress(src);
    return { address, identity, name: this.#local(endpoint), ...this.#labels(identity) };
  }

  /** Whose address it is that such a packet has, where that is known. */
  #claim(src: Uint8Array): string {
    if (src.length === 0) return '';
    const service = this.#service(formatAddress(src));
    const owner = this.#owner(src, 0) ?? (service === undefined ? undefined : `service ${service}`);
    return owner === undefined ? '' : ` It is that of ${owner}.`;
  }

  #labels(identity: number): Pick<FlowPeer, 'labels'> {
    const labels = this.#naming.labelsOf(identity);
    return labels === undefined ? {} : { labels: formatLabels(labels) };
  }

  /** Several Services may share an external address: the first by name. */
  #service(address: string): string | undefined {
    using snapshot = this.#db.read();
    const [name] = Array.from(
      snapshot.list(this.#services, 'address', address),
      (row) => `${row.namespace}/${row.name}`,
    ).sort();
    return name;
  }

  /** The pod or the node that has an address. */
  #owner(bytes: Uint8Array, identity: number): string | undefined {
    const owner = this.#naming.ownerOf(`${formatAddress(bytes)}/${bytes.length * 8}`);
    const space = owner?.indexOf(' ') ?? -1;
    if (owner === undefined || space <= 0) return undefined;
    const [kind, name] = [owner.slice(0, space), owner.slice(space + 1)];
    if (kind === 'remote') return name;
    if (kind === 'node') return identity === 1 ? 'host' : name;
    return kind === 'local' ? this.#local(Number(name)) : undefined;
  }

  #local(endpoint: number): string {
    const pod = this.#naming.endpoint(endpoint)?.row.pod;
    return pod ? `${pod.namespace}/${pod.name}` : `endpoint ${endpoint}`;
  }

  #policies(endpoint: number, direction: 'ingress' | 'egress', cookie: number, noMatch: boolean): string[] {
    const out = new Set<string>();
    for (const [row, rule] of this.#naming.rulesOf(endpoint)) {
      if (rule.direction !== direction) continue;
      const name = `${KINDS[row.kind]} ${row.namespace === undefined ? '' : `${row.namespace}/`}${row.name}`;
      if (noMatch) {
        if (rule.defaultDeny) out.add(name);
      } else if (rule.cookie === cookie && cookie !== 0) out.add(`${name} ${rule.path}`);
    }
    return [...out];
  }
}
