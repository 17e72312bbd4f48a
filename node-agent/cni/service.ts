import { messageOf } from '@weir/process/errors';
import type { AnyTable } from '@weir/statedb';
import { PodEvents, type PodRef } from '../core/pod-events.ts';
import type { Core, Logger } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { bootClock } from '../host/boot-clock.ts';
import type { EndpointRow } from '../tables.ts';
import { AddressConflicts } from './address-conflicts.ts';
import { AddressLeases } from './address-leases.ts';
import { addResult, failureAnswer, ownInterface, required } from './answers.ts';
import { Attachments } from './attachments.ts';
import { AddressConflictError, CNI_CODE, CniError, cniErrorOf } from './errors.ts';
import { Failures } from './failures.ts';
import { Ipam } from './ipam.ts';
import { KnownAs } from './known-as.ts';
import { macOf, vethName } from './names.ts';
import { answerVersion, commandOf, parseCall } from './request.ts';
import {
  type Attachment,
  type CniAnswer,
  type CniCall,
  type Network,
  type NodeAddress,
  type PairSpec,
  SUPPORTED_VERSIONS,
} from './types.ts';

/** How long an ADD waits for its endpoint to be enforced, in milliseconds. The shim waits longer. */
const ENFORCE_TIMEOUT_MS = 30_000;

/** Checks that keep no pod from starting: one endpoint is refused, something is put back, a disk is full. */
const OTHERS: readonly string[] = ['kernel', 'enforcement', 'state-folder'];

const CLOSED_FIX = 'install Weir again, or another network plugin';

export interface CniServiceOptions {
  readonly core: Core;
  readonly network: Network;
  /** The node's pod CIDRs, of each family one at most, IPv4 first; none while they are not known. */
  readonly podCidrs: () => readonly string[];
  readonly log: Logger;
  /** Part of every identity. */
  readonly clusterName: string;
  readonly enforceTimeoutMs?: number;
  /** Whether the agent learns of pods from the API server. Default true. */
  readonly kubernetes?: boolean;
  /** No agent of Weir has run on this node since it booted. Default false. */
  readonly firstHere?: boolean;
  /** Boot clock in milliseconds. */
  readonly now?: () => number;
  /** Told of every request that has ended. */
  readonly onCall?: (call: { readonly command: string; readonly ok: boolean; readonly seconds: number }) => void;
}

/** The CNI plugin's logic: one request in, the runtime's answer out. Requests for one attachment run one after another. */
export class CniService {
  readonly #core: Core;
  readonly #network: Network;
  readonly #log: Logger;
  readonly #attachments: Attachments;
  readonly #leases: AddressLeases;
  readonly #firstHere: boolean;
  readonly #kubernetes: boolean;
  readonly #ipam: Ipam;
  readonly #knownAs: KnownAs;
  readonly #events: PodEvents;
  readonly #conflicts: AddressConflicts;
  readonly #failures: Failures;
  readonly #enforceTimeoutMs: number;
  readonly #onCall: NonNullable<CniServiceOptions['onCall']>;
  /** In flight: the end of the last request for each interface that has one. */
  readonly #queues = new Map<string, Promise<unknown>>();
  readonly #ending = new AbortController();
  /** Why no pod may be attached any more. */
  #closed: string | undefined;

  constructor(options: CniServiceOptions) {
    this.#core = options.core;
    this.#network = options.network;
    this.#log = options.log;
    this.#enforceTimeoutMs = options.enforceTimeoutMs ?? ENFORCE_TIMEOUT_MS;
    this.#onCall = options.onCall ?? (() => undefined);
    const { core, network, podCidrs, log } = options;
    this.#kubernetes = options.kubernetes ?? true;
    this.#firstHere = options.firstHere ?? false;
    const { db, tables, files } = core;
    const now = options.now ?? bootClock;
    const { endpoints } = tables;
    this.#knownAs = new KnownAs({ db, tables, clusterName: options.clusterName });
    this.#leases = new AddressLeases({ db, endpoints, now, log, files, knownAs: this.#knownAs });
    this.#ipam = new Ipam({ db, tables, leases: this.#leases, cidrs: podCidrs });
    this.#attachments = new Attachments({ core, network, log, ending: this.#ending.signal });
    this.#events = new PodEvents(core);
    this.#failures = new Failures({ db, now, log });
    this.#conflicts = new AddressConflicts({ core, network, podCidrs, events: this.#events, log });
  }

  /** Turns on forwarding, and takes up what is known of the node's addresses. After the core: endpoints have been restored. */
  async start(): Promise<void> {
    await this.#network.prepareNode();
    const bare = this.#attachments.endpoints().length === 0 && (await this.#network.hostLinks()).length === 0;
    this.#leases.start(this.#firstHere && bare);
    this.#conflicts.start();
  }

  /** Resolves when the requests under way have ended. */
  async stop(): Promise<void> {
    await Promise.allSettled(this.#queues.values());
    await this.#conflicts.stop();
    this.#leases.stop();
  }

  /** Looks now for addresses that two have; it does so from time to time by itself. */
  async auditAddresses(): Promise<void> {
    await this.#conflicts.audit();
  }

  /** Whether each address of this node's pods is theirs alone. */
  addresses(): { readonly ok: boolean; readonly message: string } {
    return this.#conflicts.status();
  }

  /** Why, and for how long, addresses without a record rest; undefined: there are none. */
  resting(): string | undefined {
    return this.#ipam.resting;
  }

  /** From now on, requests that still wait for the kernel after `graceMs` are given up and undone: the runtime tries again later. */
  endWithin(graceMs: number): void {
    setTimeout(() => this.#ending.abort(), graceMs).unref();
  }

  /**
   * No pod is attached any more, and the core is no longer asked for anything: DEL only takes the interface away. Resolves when the
   * requests under way have ended.
   */
  async close(why: string): Promise<void> {
    this.#closed = why;
    await Promise.allSettled(this.#queues.values());
  }

  /** Never rejects: every failure is a CNI error. */
  async handle(request: unknown): Promise<CniAnswer> {
    const began = performance.now();
    const answer = await this.#answer(request);
    this.#onCall({ command: commandOf(request), ok: answer.ok, seconds: (performance.now() - began) / 1000 });
    return answer;
  }

  async #answer(request: unknown): Promise<CniAnswer> {
    const command = commandOf(request);
    let call: CniCall | undefined;
    try {
      const parsed = parseCall(request);
      call = parsed;
      const { attachment } = parsed;
      const answer =
        attachment === undefined
          ? await this.#run(parsed)
          : await this.#inOrder(vethName(attachment), () => this.#run(parsed));
      this.#failures.succeeded({ command, pod: parsed.pod });
      return answer;
    } catch (error) {
      const failure = cniErrorOf(error) ?? new CniError(CNI_CODE.io, messageOf(error), '', { cause: error });
      this.#failures.failed({ command, pod: call?.pod }, failure);
      return { ok: false, body: failureAnswer(failure, answerVersion(request)) };
    }
  }

  /** Removes an endpoint this plugin made, interface first: nothing is left that could send unjudged. False when it is not one of ours. */
  async detach(endpoint: EndpointRow): Promise<boolean> {
    const name = ownInterface(endpoint);
    if (name === undefined) return false;
    await this.#inOrder(name, () => this.#remove(name));
    return true;
  }

  async #run(call: CniCall): Promise<CniAnswer> {
    switch (call.command) {
      case 'VERSION':
        return { ok: true, body: { cniVersion: call.cniVersion, supportedVersions: SUPPORTED_VERSIONS } };
      case 'STATUS':
        return await this.#status();
      case 'GC':
        return await this.#collect(call);
      case 'ADD':
        return await this.#add(call, required(call.attachment), required(call.netns));
      case 'CHECK':
        await this.#attachments.check(required(call.attachment), required(call.netns));
        return { ok: true };
      case 'DEL':
        await this.#remove(vethName(required(call.attachment)));
        return { ok: true };
    }
  }

  async #add(call: CniCall, attachment: Attachment, netns: string): Promise<CniAnswer> {
    if (this.#closed !== undefined) throw new CniError(CNI_CODE.tryLater, this.#closed, CLOSED_FIX);
    if (call.prevResult !== undefined) {
      throw new CniError(
        CNI_CODE.invalidConfig,
        'weir-cni must be the first plugin of its list',
        'it makes the pod interface itself: remove the plugins before it',
      );
    }
    if (call.pod !== undefined && !this.#kubernetes)
      throw new CniError(
        CNI_CODE.invalidEnvironment,
        `CNI_ARGS names pod ${call.pod.namespace}/${call.pod.name}, and an agent with --no-kubernetes knows no pods`,
        'leave K8S_POD_NAMESPACE and K8S_POD_NAME out, or run the agent without --no-kubernetes',
      );
    const deadline = performance.now() + this.#enforceTimeoutMs;
    await this.#claimsKnown();
    const before = await this.#remove(vethName(attachment));
    const pod = call.pod && { ...call.pod, uid: call.pod.uid ?? this.#podUid(call.pod) };
    const kernel: NodeAddress[] = [];
    for (const cidr of this.#ipam.cidrs) kernel.push(...(await this.#network.addressesWithin(cidr)));
    const knownAs = pod === undefined ? undefined : this.#knownAs.pod(pod);
    const addresses = this.#ipam.allocate({ podUid: pod?.uid, kernel, before, knownAs });
    try {
      const uplink = await this.#network.uplink();
      const pair: PairSpec = {
        hostName: vethName(attachment),
        hostMac: macOf(attachment, 'host'),
        podName: attachment.ifname,
        podMac: macOf(attachment, 'pod'),
        netns,
        addresses,
        mtu: uplink.mtu,
        nodeAddresses: uplink.addresses,
      };
      await this.#attachments.attach(call, attachment, pair, deadline);
      await this.#core.files.saved();
      this.#warnOfHostPorts(call, pod);
      return { ok: true, body: addResult(call, pair) };
    } catch (error) {
      if (error instanceof AddressConflictError) this.#conflicts.refused(error.address, error.message, pod);
      throw error;
    } finally {
      this.#ipam.release(addresses);
    }
  }

  /** Who has which address is known only once pods and slices have been listed. */
  async #claimsKnown(): Promise<void> {
    const { db, tables } = this.#core;
    const inputs: readonly AnyTable[] = [tables.localPods, tables.remoteEndpoints];
    const signal = AbortSignal.any([this.#ending.signal, AbortSignal.timeout(this.#enforceTimeoutMs)]);
    try {
      await Promise.all(inputs.map((table) => db.initialisedWatch(table).wait(signal)));
    } catch (error) {
      const waiting = inputs.flatMap((table) => db.pendingInitialisers(table).map((name) => `${table.name} (${name})`));
      throw new CniError(
        CNI_CODE.tryLater,
        `which addresses are free is not known yet: ${waiting.join(', ')} not complete`,
        'kubelet tries again by itself; does the API server answer this node?',
        { cause: error },
      );
    }
  }

  #podUid({ namespace, name }: PodRef): string | undefined {
    using snapshot = this.#core.db.read();
    return snapshot.get(this.#core.tables.localPods, tableKey.pod(namespace, name))?.uid;
  }

  /** The runtime passes them on to whoever maps them; where nobody does, the pod runs without, and says nothing. */
  #warnOfHostPorts({ hostPorts, mapsHostPorts }: CniCall, pod: PodRef | undefined): void {
    if (hostPorts.length === 0 || mapsHostPorts || pod === undefined) return;
    this.#events.warn(
      pod,
      'HostPortNotMapped',
      `hostPort ${hostPorts.join(', ')} does not reach this pod: the node has no CNI plugin "portmap". Put it into the node's CNI folder ` +
        '(/opt/cni/bin; it is in containernetworking-plugins), and delete the pod: its successor gets the port',
    );
  }

  /** While Weir is being removed there are no endpoints to ask for: only the interface goes. */
  async #remove(name: string): Promise<readonly string[]> {
    if (this.#closed === undefined) return await this.#attachments.remove(name);
    await this.#network.removeLink(name);
    return [];
  }

  async #collect(call: CniCall): Promise<CniAnswer> {
    if (this.#closed !== undefined) throw new CniError(CNI_CODE.notAvailable, this.#closed, CLOSED_FIX);
    const keep = new Set(call.valid.map(vethName));
    for (const endpoint of this.#attachments.endpoints()) {
      const name = ownInterface(endpoint);
      if (name === undefined || keep.has(name)) continue;
      await this.#inOrder(name, async () => {
        // Since then the pod may have been attached again, which the runtime's list does not know of.
        if (this.#attachments.endpoints().some(({ ifindex }) => ifindex === endpoint.ifindex)) await this.#remove(name);
      });
    }
    for (const name of await this.#network.hostLinks()) {
      // A request for it that is under way takes care of it.
      if (!keep.has(name) && !this.#queues.has(name)) await this.#inOrder(name, () => this.#removeOrphan(name));
    }
    return { ok: true };
  }

  async #removeOrphan(name: string): Promise<void> {
    if (this.#attachments.endpoints().some(({ interfaceName }) => interfaceName === name)) return;
    await this.#network.removeLink(name);
    this.#log.info({ interface: name }, 'orphaned interface removed');
  }

  async #status(): Promise<CniAnswer> {
    if (this.#closed !== undefined) throw new CniError(CNI_CODE.notAvailable, this.#closed, CLOSED_FIX);
    const failing = this.#core.health().checks.filter(({ ok, name }) => !ok && !OTHERS.includes(name));
    if (failing.length > 0) {
      const why = failing.map((check) => `${check.name}: ${check.message}`).join('; ');
      throw new CniError(CNI_CODE.notAvailable, `the agent is not ready: ${why}`);
    }
    const { cidrs } = this.#ipam;
    if (cidrs.length === 0) throw new CniError(CNI_CODE.notAvailable, "this node's pod CIDRs are not known yet");
    for (const cidr of cidrs)
      if (!this.#ipam.hasFree(cidr, await this.#network.addressesWithin(cidr)))
        throw new CniError(CNI_CODE.notAvailable, `the node's pod CIDR ${cidr} has no free address`);
    return { ok: true };
  }

  async #inOrder<T>(key: string, run: () => Promise<T>): Promise<T> {
    const before = this.#queues.get(key) ?? Promise.resolve();
    const mine = before.then(run, run);
    this.#queues.set(key, mine);
    try {
      return await mine;
    } finally {
      if (this.#queues.get(key) === mine) this.#queues.delete(key);
    }
  }
}
