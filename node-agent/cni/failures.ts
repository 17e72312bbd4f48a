import { keys, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { PodRef } from '../core/pod-events.ts';
import type { Logger } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { CNI_CODE, type CniCode, type CniError } from './errors.ts';

/** Interval between two warnings about one failure, in milliseconds. A failure that does not recur within it is forgotten. */
const REPEAT_MS = 600_000;

/** The runtime asks again, and its events tell why: nobody need do anything. */
const WAITS: readonly CniCode[] = [CNI_CODE.tryLater, CNI_CODE.notAvailable];

/** These are the node's, whichever pod meets them. */
const OF_THE_NODE: readonly CniCode[] = [CNI_CODE.addressesExhausted, CNI_CODE.invalidConfig];

type Pod = Pick<PodRef, 'namespace' | 'name'>;

/** A failure that requests meet again and again. Key: `key`. */
interface FailureRow {
  readonly key: string;
  /** Whose success ends it: the command, and the pod if it is a pod's. */
  readonly of: string;
  readonly code: CniCode;
  readonly error: string;
  /** Absent: the node's. */
  readonly pod?: Pod;
  /** Since `first`. */
  readonly count: number;
  /** Boot clock in milliseconds, as the next three. */
  readonly first: number;
  readonly last: number;
  readonly saidAt: number;
  /** A request succeeded after `last`. */
  readonly over?: number;
}

export interface FailuresOptions {
  readonly db: StateDB;
  /** Boot clock in milliseconds. */
  readonly now: () => number;
  readonly log: Logger;
}

/** A request that ended: which, and for which pod. */
export interface Ended {
  readonly command: string;
  readonly pod?: Pod | undefined;
}

/**
 * What is logged of requests that fail. The runtime makes a request that failed again every few seconds, for as long as it takes: a line that
 * needs a person comes once, then every 10 minutes with the number of failures, and a last one says that it is over. Table `cniFailures`.
 */
export class Failures {
  readonly #options: FailuresOptions;
  readonly #table: Table<FailureRow>;

  constructor(options: FailuresOptions) {
    this.#options = options;
    this.#table = options.db.table<FailureRow>({
      name: 'cniFailures',
      key: ({ key }) => key,
      indexes: [
        { name: 'of', keys: ({ of }) => [of] },
        { name: 'last', keys: ({ last }) => [keys.uint(last)] },
      ],
    });
  }

  failed({ command, pod }: Ended, failure: CniError): void {
    const { db, log } = this.#options;
    const { cniCode: code, message: error, details } = failure;
    const name = pod === undefined ? {} : { pod: { namespace: pod.namespace, name: pod.name } };
    const fields = { command, code, ...name, error, details };
    const { say, times } = WAITS.includes(code)
      ? { say: false, times: 1 }
      : db.write([this.#table], (txn) => this.#count(txn, { command, code, error, ...name }));
    log[say ? 'error' : 'info']({ ...fields, ...(times === 1 ? {} : { times }) }, 'cni request failed');
  }

  succeeded({ command, pod }: Ended): void {
    const { db, log } = this.#options;
    const now = this.#now();
    const over = db.write([this.#table], (txn) => {
      const ended = [command, ...(pod === undefined ? [] : [ofPod(command, pod)])]
        .flatMap((of) => [...txn.list(this.#table, 'of', of)])
        .filter((row) => row.over === undefined);
      for (const row of ended) txn.upsert(this.#table, { ...row, over: now });
      return ended;
    });
    for (const { code, pod: name, error, count: times, first } of over) {
      const seconds = Math.round((now - first) / 1000);
      log.info(
        { command, code, ...(name === undefined ? {} : { pod: name }), error, times, seconds },
        'cni requests that failed succeed again',
      );
    }
  }

  /** How often it has failed, and whether to warn now. */
  #count(
    txn: WriteTxn,
    { command, code, error, pod }: { command: string; code: CniCode; error: string; pod?: Pod },
  ): { readonly say: boolean; readonly times: number } {
    const now = this.#now();
    for (const { key } of txn.range(this.#table, '', keys.uint(Math.max(0, now - REPEAT_MS)), 'last'))
      txn.delete(this.#table, key);
    const of = pod === undefined || OF_THE_NODE.includes(code) ? command : ofPod(command, pod);
    const key = `${of} ${code}`;
    const before = txn.get(this.#table, key);
    const say = before === undefined || now - before.saidAt >= REPEAT_MS;
    // Over, and there again: who was called knows of it; it is counted again.
    const goesOn = before !== undefined && before.over === undefined;
    const times = goesOn ? before.count + 1 : 1;
    txn.upsert(this.#table, {
      ...{ key, of, code, error, count: times, last: now },
      ...(of === command ? {} : { pod }),
      first: goesOn ? before.first : now,
      saidAt: say ? now : before.saidAt,
    });
    return { say, times };
  }

  #now(): number {
    return Math.floor(this.#options.now());
  }
}

function ofPod(command: string, { namespace, name }: Pod): string {
  return `${command} ${tableKey.pod(namespace, name)}`;
}
