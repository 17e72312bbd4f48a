import type { AnyTable } from '@weir/statedb';
import { bootClock } from '../boot-clock.ts';
import { messageOf } from '../config/system-error.ts';
import type { Core, Logger } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { PodEvents, type PodRef } from '../pod-events.ts';
import type { EndpointRow, EndpointStateRow } from '../tables.ts';
import { AddressConflicts } from './address-conflicts.ts';
import { AddressLeases } from './address-leases.ts';
import { addResult, ownInterface, required } from './answers.ts';
import { AddressConflictError, CNI_CODE, CniError } from './errors.ts';
import { Ipam } from './ipam.ts';
import { macOf, vethName } from './names.ts';
import { answerVersion, commandOf, parseCall } from './request.ts';
import {
  type Attachment,
  type CniAnswer,
  type CniCall,
  type Network,
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
  /** The node's pod CIDR; undefined while unknown. */
  readonly podCidr: () => string | undefined;
  readonly log: Logger;
  readonly enforceTimeoutMs?: number;
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
  readonly #leases: AddressLeases;
  readonly #firstHere: boolean;
  readonly #ipam: Ipam;
  readonly #events: PodEvents;
  readonly #conflicts: AddressConflicts;
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
    const { core, network, podCidr, log } = options;
    this.#firstHere = options.firstHere ?? false;
    const { db, tables, files } = core;
    const now = options.now ?? bootClock;
    const { endpoints } = tables;
    this.#leases = new AddressLeases({ db, endpoints, now, log, files });
    this.#ipam = new Ipam({ db, tables, leases: this.#leases, cidr: podCidr });
    this.#events = new PodEvents(core);
    this.#conflicts = new AddressConflicts({ core, network, podCidr, events: this.#events, log });
  }

  /** Turns on forwarding, and takes up what is known of the node's addresses. After the core: endpoints have been restored. */
  async start(): Promise<void> {
    await this.#network.prepareNode();
    const bare = this.#endpoints().length === 0 && (await this.#network.hostLinks()).length === 0;
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
    try {
      const call = parseCall(request);
      const { attachment } = call;
      return attachment === undefined
        ? await this.#run(call)
        : await this.#inOrder(vethName(attachment), () => this.#run(call));
    } catch (error) {
      const failure =
        error instanceof CniError ? error : new CniError(CNI_CODE.io, messageOf(error), '', { cause: error });
      // What the runtime asks again is no fault: it waits, and its events tell why.
      const waits = failure.cniCode === CNI_CODE.tryLater || failure.cniCode === CNI_CODE.notAvailable;
      this.#log[waits ? 'info' : 'error'](
        { command: commandOf(request), code: failure.cniCode, error: failure.message, details: failure.details },
        'cni request failed',
      );
      return {
        ok: false,
        body: {
          cniVersion: answerVersion(request),
          code: failure.cniCode,
          msg: failure.message,
          details: failure.details,
        },
      };
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
        return await this.#check(required(call.attachment), required(call.netns));
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
    const deadline = performance.now() + this.#enforceTimeoutMs;
    await this.#claimsKnown();
    const [before] = await this.#remove(vethName(attachment));
    const pod = call.pod && { ...call.pod, uid: call.pod.uid ?? this.#podUid(call.pod) };
    const cidr = this.#ipam.cidr;
    const kernel = cidr === undefined ? [] : await this.#network.addressesWithin(cidr);
    const ipv4 = this.#ipam.allocate({ podUid: pod?.uid, kernel, before });
    try {
      const uplink = await this.#network.uplink();
      const pair: PairSpec = {
        hostName: vethName(attachment),
        hostMac: macOf(attachment, 'host'),
        podName: attachment.ifname,
        podMac: macOf(attachment, 'pod'),
        netns,
        ipv4,
        mtu: uplink.mtu,
        ...(uplink.address === undefined ? {} : { nodeAddress: uplink.address }),
      };
      await this.#attach(call, attachment, pair, deadline);
      await this.#core.files.saved();
      this.#warnOfHostPorts(call, pod);
      return { ok: true, body: addResult(call, pair) };
    } catch (error) {
      if (error instanceof AddressConflictError) this.#conflicts.refused(ipv4, error.message, pod);
      throw error;
    } finally {
      this.#ipam.release(ipv4);
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

  /** Pair (pod side down), enforcement, pod side up: in this order. Undone in the opposite order when any step fails. */
  async #attach(call: CniCall, attachment: Attachment, pair: PairSpec, deadline: number): Promise<void> {
    let id: number | undefined;
    try {
      const ifindex = await this.#network.createPair(pair);
      id = this.#core.allocateEndpointId();
      const state = await this.#unlessEnding(
        this.#core.upsertEndpoint(
          {
            id,
            ifindex,
            interfaceName: pair.hostName,
            ipv4: pair.ipv4,
            mac: pair.podMac,
            hostMac: pair.hostMac,
            containerId: attachment.containerId,
            containerInterface: attachment.ifname,
            netns: pair.netns,
            ...(call.pod === undefined ? {} : { pod: call.pod }),
            createdAt: new Date().toISOString(),
          },
          { timeoutMs: Math.max(1, Math.round(deadline - performance.now())) },
        ),
      );
      if (state.state !== 'ready') {
        throw new CniError(CNI_CODE.tryLater, `endpoint ${id} is not enforced yet: ${state.reason ?? state.state}`);
      }
      await this.#network.configurePod(pair);
      this.#log.info(
        { endpoint: id, container: attachment.containerId, ipv4: pair.ipv4, pod: call.pod },
        'pod attached',
      );
    } catch (error) {
      const failure =
        error instanceof CniError
          ? error
          : new CniError(CNI_CODE.notEnforced, `endpoint could not be enforced: ${messageOf(error)}`, '', {
              cause: error,
            });
      throw await this.#undo(pair.hostName, id, failure);
    }
  }

  /** Returns the error to report: the failure, and what could not be undone. */
  async #undo(hostName: string, id: number | undefined, failure: CniError): Promise<CniError> {
    try {
      await this.#network.removeLink(hostName);
      if (id !== undefined) await this.#core.deleteEndpoint(id);
      return failure;
    } catch (error) {
      const details = [failure.details, `undoing it failed too: ${messageOf(error)}`]
        .filter((part) => part !== '')
        .join('; ');
      return new CniError(failure.cniCode, failure.message, details, { cause: failure });
    }
  }

  /**
   * Returns the addresses that it had. `name`: the interface of an attachment, which tells it as well as the attachment does.
   */
  async #remove(name: string): Promise<readonly string[]> {
    const removed = await this.#network.removeLink(name);
    if (this.#closed !== undefined) return [];
    const attached = this.#endpoints().filter(({ interfaceName }) => interfaceName === name);
    for (const { id, containerId } of attached) {
      await this.#core.deleteEndpoint(id);
      this.#log.info({ endpoint: id, container: containerId, link: removed }, 'pod detached');
    }
    if (attached.length > 0) await this.#core.files.saved();
    return attached.flatMap(({ ipv4 }) => (ipv4 === '' ? [] : [ipv4]));
  }

  async #check(attachment: Attachment, netns: string): Promise<CniAnswer> {
    const endpoint = this.#endpoints().find(({ interfaceName }) => interfaceName === vethName(attachment));
    if (endpoint === undefined) {
      throw new CniError(
        CNI_CODE.unknownContainer,
        `no endpoint for container ${attachment.containerId} interface ${attachment.ifname}`,
      );
    }
    const problems = [
      ...(await this.#network.checkPod({
        netns,
        podName: attachment.ifname,
        ipv4: endpoint.ipv4,
        hostName: vethName(attachment),
      })),
    ];
    const state = this.#state(endpoint.id);
    if (state?.state !== 'ready')
      problems.push(
        `endpoint ${endpoint.id} is ${state?.state ?? 'not in the kernel'}${state?.reason === undefined ? '' : `: ${state.reason}`}`,
      );
    if (problems.length > 0)
      throw new CniError(CNI_CODE.checkFailed, problems.join('; '), 'delete the pod: it is made anew');
    return { ok: true };
  }

  async #collect(call: CniCall): Promise<CniAnswer> {
    if (this.#closed !== undefined) throw new CniError(CNI_CODE.notAvailable, this.#closed, CLOSED_FIX);
    const keep = new Set(call.valid.map(vethName));
    const stale = this.#endpoints().flatMap((endpoint) => {
      const name = ownInterface(endpoint);
      return name === undefined || keep.has(name) ? [] : [name];
    });
    for (const name of stale) await this.#inOrder(name, () => this.#remove(name));
    const known = new Set(this.#endpoints().map((endpoint) => endpoint.interfaceName));
    for (const name of await this.#network.hostLinks()) {
      if (keep.has(name) || known.has(name) || this.#queues.has(name)) continue;
      await this.#network.removeLink(name);
      this.#log.info({ interface: name }, 'orphaned interface removed');
    }
    return { ok: true };
  }

  /** Rejects with "try later" when the agent ends before the kernel has acknowledged the endpoint. */
  async #unlessEnding<T>(running: Promise<T>): Promise<T> {
    const { signal } = this.#ending;
    const { promise, reject } = Promise.withResolvers<never>();
    const ended = (): void =>
      reject(
        new CniError(
          CNI_CODE.tryLater,
          'the agent is ending before the endpoint is enforced',
          'its successor makes the pod',
        ),
      );
    signal.addEventListener('abort', ended, { once: true });
    if (signal.aborted) ended();
    try {
      return await Promise.race([running, promise]);
    } finally {
      signal.removeEventListener('abort', ended);
      running.catch(() => undefined);
    }
  }

  async #status(): Promise<CniAnswer> {
    if (this.#closed !== undefined) throw new CniError(CNI_CODE.notAvailable, this.#closed, CLOSED_FIX);
    const failing = this.#core.health().checks.filter(({ ok, name }) => !ok && !OTHERS.includes(name));
    if (failing.length > 0) {
      const why = failing.map((check) => `${check.name}: ${check.message}`).join('; ');
      throw new CniError(CNI_CODE.notAvailable, `the agent is not ready: ${why}`);
    }
    const { cidr } = this.#ipam;
    if (cidr === undefined) throw new CniError(CNI_CODE.notAvailable, "this node's pod CIDR is not known yet");
    if (!this.#ipam.hasFree(cidr, await this.#network.addressesWithin(cidr)))
      throw new CniError(CNI_CODE.notAvailable, `the node's pod CIDR ${cidr} has no free address`);
    return { ok: true };
  }

  #endpoints(): readonly EndpointRow[] {
    using snapshot = this.#core.db.read();
    return [...snapshot.all(this.#core.tables.endpoints)];
  }

  #state(id: number): EndpointStateRow | undefined {
    using snapshot = this.#core.db.read();
    return snapshot.get(this.#core.tables.endpointStates, tableKey.endpoint(id));
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
