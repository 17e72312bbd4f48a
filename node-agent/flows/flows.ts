/**
 * What programs tell of packets: records of map `events`, made readable for those who follow.
 *
 * Guarantee: without a follower records are thrown away and nothing is made readable.
 */
import { decodeEvent } from '@weir/bpf';
import { messageOf } from '@weir/process/errors';
import type { StateDB, Table } from '@weir/statedb';
import { type BpfMap, RingBufferReader } from 'libbpf-ts';
import { merge, Observable, Subject } from 'rxjs';
import type { Logger, Naming } from '../core.ts';
import { bootOffset } from '../host/boot-clock.ts';
import type { ServiceRow } from '../tables.ts';
import { FlowNames } from './names.ts';
import type { EventKind, EventSource, FlowEvent, PeerNaming } from './types.ts';

/** How soon events come to those who follow them. The ring is polled: programs limit their events, and a thread would cost 20 MB. */
const FOLLOWED_MS = 50;
/** Often enough that 11 CPUs at the programs' rate limit do not fill the ring. */
const UNFOLLOWED_MS = 250;
/** Of a record's kind, as in `struct event` (bpf/layout.h). */
const KIND_AT = 8;

export interface FlowsOptions {
  readonly db: StateDB;
  readonly services: Table<ServiceRow>;
  readonly naming: Naming;
  /** Map `events`; asked for at the start. */
  readonly map: () => BpfMap;
  /** What parts know of the ends of flows. */
  readonly peerNamings?: () => readonly PeerNaming[];
  /** Events of parts; asked for at the start. */
  readonly kinds?: () => readonly EventKind[];
  /** Events that parts tell themselves. */
  readonly sources?: () => readonly EventSource[];
  readonly log: Logger;
}

export class Flows {
  readonly #options: FlowsOptions;
  readonly #subject = new Subject<FlowEvent>();
  readonly #names: FlowNames;
  #ring: RingBufferReader | undefined;
  #error: string | undefined;

  /** The ring is read faster while somebody follows. */
  readonly events = new Observable<FlowEvent>((follower) => {
    const told = (this.#options.sources?.() ?? []).map((source) => source.events(this.#names));
    const subscription = merge(this.#subject, ...told).subscribe((event) => follower.next(event));
    this.#pace();
    return () => {
      subscription.unsubscribe();
      this.#pace();
    };
  });

  constructor(options: FlowsOptions) {
    this.#options = options;
    this.#names = new FlowNames({ ...options, bootOffset });
  }

  /** Why events are not read. */
  get problem(): string | undefined {
    return this.#error;
  }

  start(): void {
    const { map, kinds, log } = this.#options;
    const decoders = new Map((kinds?.() ?? []).map((each) => [each.kind, each]));
    this.#ring = new RingBufferReader({
      map: map(),
      handler: (record) => {
        if (!this.#subject.observed) return;
        const decoder = decoders.get(record[KIND_AT] ?? 0);
        try {
          this.#subject.next(decoder?.decode(record, this.#names) ?? this.#names.event(decodeEvent(record)));
        } catch (error) {
          log.error({ kind: record[KIND_AT], error: messageOf(error) }, 'ignoring an event that cannot be read');
        }
      },
      onError: (error) => {
        this.#error = String(error);
        log.error({ error: this.#error }, 'reading flow events failed');
      },
    });
    this.#pace();
    this.#ring.start();
  }

  stop(): void {
    this.#ring?.close();
    this.#ring = undefined;
  }

  #pace(): void {
    this.#ring?.pace(this.#subject.observed ? FOLLOWED_MS : UNFOLLOWED_MS);
  }
}
