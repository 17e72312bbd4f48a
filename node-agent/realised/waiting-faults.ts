import type { StateDB, Table } from '@weir/statedb';
import { COMPILE_PENDING } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { Model } from '../derive/index.ts';
import { type Fault, type Generations, lacking } from './policy-failures.ts';
import type { Acknowledgements } from './sources.ts';

/** How long an endpoint may wait for its turn until its policies say so, in milliseconds: most wait for the next plan only. */
const WAITING_AFTER_MS = 5_000;
/** Without a number: one that changes with each plan would be written with each. */
const MESSAGE =
  "endpoints wait for their turn, as there is more to compile for their namespace's endpoints than one plan takes; until then what was enforced " +
  'before stays, nothing passes where nothing was, and peers that are new may be denied';
const NONE: Generations = {};

/** An endpoint whose policies are to be compiled by a later plan. Key: `id`. */
interface WaitingEndpoint {
  readonly id: number;
  /** Milliseconds. */
  readonly since: number;
}

export interface WaitingFaultsOptions {
  readonly db: StateDB;
  readonly model: Model;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
}

/** Policies that endpoints lack which wait for their turn, once that lasts: table `waitingEndpoints`. */
export class WaitingFaults {
  readonly #options: WaitingFaultsOptions;
  readonly #table: Table<WaitingEndpoint>;

  constructor(options: WaitingFaultsOptions) {
    this.#options = options;
    this.#table = options.db.table<WaitingEndpoint>({
      name: 'waitingEndpoints',
      key: ({ id }) => tableKey.endpoint(id),
    });
  }

  /** One fault for the policies of which such an endpoint lacks the generation in force. */
  settle({ endpoints }: Pick<Acknowledgements, 'endpoints'>): Fault[] {
    const different = new Set<Generations>();
    for (const id of this.#lasting()) {
      const wanted = this.#options.model.policiesOf(id);
      const lacks = lacking(wanted, endpoints.held(id)?.policies ?? NONE);
      // Where none is lacking, all are in force but for peers that are new.
      different.add(Object.keys(lacks).length > 0 ? lacks : wanted);
    }
    return different.size === 0
      ? []
      : [{ of: Object.assign({}, ...different), reason: COMPILE_PENDING, message: MESSAGE }];
  }

  /** Endpoints that have waited for long. */
  #lasting(): number[] {
    const { model, db, now } = this.#options;
    const at = now();
    const waiting = new Set([...model.endpoints()].filter((id) => model.waits(id)));
    return db.write([this.#table], (txn) => {
      for (const { id } of txn.all(this.#table)) if (!waiting.has(id)) txn.delete(this.#table, tableKey.endpoint(id));
      for (const id of waiting)
        if (!txn.has(this.#table, tableKey.endpoint(id))) txn.insert(this.#table, { id, since: at });
      return Array.from(txn.all(this.#table)).flatMap(({ id, since }) => (at - since >= WAITING_AFTER_MS ? [id] : []));
    });
  }
}
