import { messageOf } from '@weir/process/errors';
import { type EndpointStatus, type EndpointWord, endpointStatus } from '../core/endpoint-status.ts';
import type { Core, Logger } from '../core.ts';
import { EndpointNotReadyError } from '../errors.ts';
import type { EndpointRow } from '../tables.ts';
import { CNI_CODE, CniError, cniErrorOf } from './errors.ts';
import { vethName } from './names.ts';
import type { Attachment, CniCall, Network, PairSpec } from './types.ts';

export interface AttachmentsOptions {
  readonly core: Pick<Core, 'db' | 'tables' | 'files' | 'allocateEndpointId' | 'upsertEndpoint' | 'deleteEndpoint'>;
  readonly network: Network;
  readonly log: Logger;
  /** The agent ends: nobody waits for the kernel any longer. */
  readonly ending: AbortSignal;
}

const ENFORCED: ReadonlySet<EndpointWord> = new Set(['ready', 'regenerating', 'waiting-to-regenerate']);

const AWAITED =
  'kubelet tries again by itself; if that goes on: the message says what is awaited; what comes from the cluster needs weir-operator to run and the API server to answer this node';

function notEnforced(cause: unknown): CniError {
  return cause instanceof EndpointNotReadyError && cause.waits
    ? new CniError(CNI_CODE.tryLater, cause.message, AWAITED, { cause })
    : new CniError(CNI_CODE.notEnforced, `endpoint could not be enforced: ${messageOf(cause)}`, '', { cause });
}

/** Pods' interfaces together with their endpoints: there is no moment at which one of them could send unjudged. */
export class Attachments {
  readonly #options: AttachmentsOptions;

  constructor(options: AttachmentsOptions) {
    this.#options = options;
  }

  /** Pair (pod side down), enforcement, pod side up: in this order. Undone in the opposite order when any step fails. */
  async attach(call: CniCall, attachment: Attachment, pair: PairSpec, deadline: number): Promise<void> {
    let id: number | undefined;
    try {
      const ifindex = await this.#options.network.createPair(pair);
      id = this.#options.core.allocateEndpointId();
      const state = await this.#unlessEnding(
        this.#options.core.upsertEndpoint(
          {
            id,
            ifindex,
            interfaceName: pair.hostName,
            addresses: pair.addresses,
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
      await this.#options.network.configurePod(pair);
      this.#options.log.info(
        { endpoint: id, container: attachment.containerId, addresses: pair.addresses, pod: call.pod },
        'pod attached',
      );
    } catch (error) {
      throw await this.#undo(pair.hostName, id, cniErrorOf(error) ?? notEnforced(error));
    }
  }

  /** Returns the error to report: the failure, and what could not be undone. */
  async #undo(hostName: string, id: number | undefined, failure: CniError): Promise<CniError> {
    try {
      await this.#options.network.removeLink(hostName);
      if (id !== undefined) await this.#options.core.deleteEndpoint(id);
      return failure;
    } catch (error) {
      const details = [failure.details, `undoing it failed too: ${messageOf(error)}`]
        .filter((part) => part !== '')
        .join('; ');
      return new CniError(failure.cniCode, failure.message, details, { cause: failure });
    }
  }

  /** Removes interface and endpoints by the interface's name, which tells an attachment as well. Returns the addresses that it had. */
  async remove(name: string): Promise<readonly string[]> {
    const { core, network, log } = this.#options;
    const removed = await network.removeLink(name);
    const attached = this.endpoints().filter(({ interfaceName }) => interfaceName === name);
    for (const { id, containerId } of attached) {
      await core.deleteEndpoint(id);
      log.info({ endpoint: id, container: containerId, link: removed }, 'pod detached');
    }
    if (attached.length > 0) await core.files.saved();
    return attached.flatMap(({ addresses }) => addresses);
  }

  /** @throws CniError naming what is not as `attach` made it */
  async check(attachment: Attachment, netns: string): Promise<void> {
    const endpoint = this.endpoints().find(({ interfaceName }) => interfaceName === vethName(attachment));
    if (endpoint === undefined) {
      throw new CniError(
        CNI_CODE.unknownContainer,
        `no endpoint for container ${attachment.containerId} interface ${attachment.ifname}`,
      );
    }
    const problems = [
      ...(await this.#options.network.checkPod({
        netns,
        podName: attachment.ifname,
        addresses: endpoint.addresses,
        hostName: vethName(attachment),
      })),
    ];
    const { state, acknowledged, reason } = this.#status(endpoint);
    // While a change is carried out the kernel enforces what was before it.
    if (acknowledged === undefined || !ENFORCED.has(state))
      problems.push(`endpoint ${endpoint.id} is ${state}${reason === undefined ? '' : `: ${reason}`}`);
    if (problems.length > 0)
      throw new CniError(CNI_CODE.checkFailed, problems.join('; '), 'delete the pod, so that it is recreated');
  }

  endpoints(): readonly EndpointRow[] {
    using snapshot = this.#options.core.db.read();
    return [...snapshot.all(this.#options.core.tables.endpoints)];
  }

  #status(endpoint: EndpointRow): EndpointStatus {
    const { db, tables } = this.#options.core;
    using snapshot = db.read();
    return endpointStatus(snapshot, tables, endpoint);
  }

  /** Rejects with "try later" when the agent ends before the kernel has acknowledged the endpoint. */
  async #unlessEnding<T>(running: Promise<T>): Promise<T> {
    const { ending: signal } = this.#options;
    const { promise, reject } = Promise.withResolvers<never>();
    const ended = (): void =>
      reject(
        new CniError(
          CNI_CODE.tryLater,
          'the agent is ending before the endpoint is enforced',
          'the next agent connects the pod',
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
}
