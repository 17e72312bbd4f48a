/**
 * What the model has to do: each piece in the turns of the namespace that causes it. A namespace has several lines, so that its pods do not
 * wait for policies and sets, which anybody may have many of, nor policies for the evaluation of another's selectors.
 */
import type { FairQueue, Queued } from './fair-queue.ts';

/**
 * - `node`, `service`, `group` (a CiliumCIDRGroup), `policy`, `pod`: the input row of this key has come, changed or gone.
 * - `reread`: a policy is to be read again, though it has not changed.
 * - `sets`: selectors of a policy are to be evaluated, before its rules are written.
 * - `namespace`: pods of a namespace are to be placed again, as its labels have changed.
 * - `waiting`: pods that wait for an identity are to be placed again, as one is free.
 * - `status`: the status of a policy is to be folded.
 * - `identity`: an identity comes to the sets that match it, or leaves them.
 */
export type Kind =
  | 'node'
  | 'service'
  | 'group'
  | 'policy'
  | 'reread'
  | 'sets'
  | 'namespace'
  | 'pod'
  | 'waiting'
  | 'identity'
  | 'status';

export interface Work extends Queued {
  readonly kind: Kind;
  /** Of the row that it is about. */
  readonly of: string;
  /** Where it goes on; undefined: it has not begun. */
  readonly from?: string;
}

const LINES: Readonly<Record<Kind, string>> = {
  node: 'nodes',
  service: 'services',
  group: 'services',
  policy: 'policies',
  reread: 'policies',
  sets: 'sets',
  namespace: 'pods',
  pod: 'pods',
  waiting: 'pods',
  identity: 'identities',
  status: 'statuses',
};

/** @param by the namespace that causes it, or the node */
export function work(kind: Kind, of: string, by: string): Work {
  return { kind, of, key: workKey(kind, of), owner: `${LINES[kind]} ${by}` };
}

export function workKey(kind: Kind, of: string): string {
  return `${kind} ${of}`;
}

export type WorkQueue = FairQueue<Work>;
