/**
 * Lines of the log that whoever may write objects in one namespace, or of one node, causes, as often as they like. Of each kind of lines each has
 * ten a minute; the count of the others follows when the minute is over. So one tenant neither fills the log nor hides others' lines.
 */
import { type KubeObject, MOST_NODE_ADDRESSES } from '@weir/kube';
import { messageOf } from '@weir/process/errors';
import { LineLimit } from '@weir/process/line-limit';
import type { Logger } from 'pino';
import type { Totals } from './metrics.ts';
import type { RefusedAddress } from './types.ts';

/** Why a pod does not get the address that its status says, and what to do. */
const REFUSED: Readonly<Record<RefusedAddress['reason'], string>> = {
  elsewhere:
    "it is not in the pod CIDRs of the pod's node, or is another node's; see who may write the status of pods there",
  taken: 'another pod had it first, and keeps it for as long as it claims it',
  contested: 'other pods claimed it at the same time; delete all of them but one',
};

export class TenantLog {
  readonly #log: Logger;
  readonly #totals: Pick<Totals, 'error'>;
  readonly #addresses: LineLimit;
  readonly #objects: LineLimit;
  readonly #nodes: LineLimit;

  constructor(log: Logger, totals: Pick<Totals, 'error'>) {
    this.#log = log;
    this.#totals = totals;
    const limit = (message: string, key = 'namespace'): LineLimit =>
      new LineLimit({ onLeftOut: (of, leftOut) => log.warn({ [key]: of, leftOut }, message) });
    this.#addresses = limit('more address claims of this namespace are rejected; they are not logged one by one');
    this.#objects = limit('more objects of this namespace cannot be read; they are not logged one by one');
    this.#nodes = limit('a node has reported too many addresses again; this is not logged each time', 'node');
  }

  /** A kubelet reports them as often as it likes. */
  nodeAddressesLeftOut(node: string, reported: number): void {
    this.#totals.error('address');
    if (!this.#nodes.admits(node)) return;
    this.#log.warn(
      { node, reported, counted: MOST_NODE_ADDRESSES },
      'a node reports too many addresses: only the first count, internal ones before external ones; check who has the credentials of its kubelet',
    );
  }

  addressRefused({ address, pod, reason, others }: RefusedAddress): void {
    this.#totals.error('address');
    const [namespace = ''] = pod.split('/');
    if (!this.#addresses.admits(namespace)) return;
    this.#log.warn({ address, pod, others, reason: REFUSED[reason] }, 'rejecting an address that a pod claims');
  }

  /** Objects without a namespace are one key. */
  objectUnreadable(kind: string, { metadata: { namespace, name } }: KubeObject, error: unknown): void {
    this.#totals.error('object');
    if (!this.#objects.admits(namespace ?? '')) return;
    this.#log.warn({ kind, namespace, name, error: messageOf(error) }, 'cannot read an object; its former state stays');
  }

  /** Tells what has been left out so far. */
  stop(): void {
    this.#addresses.stop();
    this.#objects.stop();
    this.#nodes.stop();
  }
}
