import type { LabelMap } from '@weir/labels';
import { ruleLabels } from '@weir/policy';
import type { Reader } from '@weir/statedb';
import { type EndpointStatus, endpointStatus } from '../core/endpoint-status.ts';
import type { Core } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { both, contentOf } from '../derive/contract.ts';
import type { EndpointRow, SlotContent, SlotRow } from '../tables.ts';
import { type EndpointRef, matchesRef, parseEndpointRef } from './endpoint-id.ts';
import { endpointModel, type LabelsOf, type PolicySide, SlotSummary } from './endpoint-model.ts';
import { NotFoundError } from './errors.ts';
import type { EndpointModel } from './models.ts';
import type { ApiOptions } from './types.ts';

/** An endpoint with all that is known of it. */
export interface EndpointView {
  readonly row: EndpointRow;
  readonly status: EndpointStatus;
  /** In force, or wanted where nothing is. */
  readonly labels: LabelMap | undefined;
  /** Reads what slots hold now. What is returned works the model out: its time grows with the rows of its slot. */
  read(): () => EndpointModel;
}

/** What is wanted of every endpoint and what the kernel acknowledged, by id. */
export function endpointStatuses({ tables }: Pick<Core, 'tables'>, reader: Reader): EndpointStatus[] {
  return Array.from(reader.all(tables.endpoints), (row) => endpointStatus(reader, tables, row));
}

/** The endpoints that are chosen, by id. */
export function endpointViews(
  { core }: Pick<ApiOptions, 'core'>,
  chosen: (row: EndpointRow) => boolean = () => true,
): readonly EndpointView[] {
  using snapshot = core.db.read();
  const rows = [...snapshot.all(core.tables.endpoints)].filter(chosen);
  const sides = new Sides(core, snapshot);
  return rows.map((row) => {
    const status = sides.explained(endpointStatus(snapshot, core.tables, row));
    const pod = row.pod && snapshot.get(core.tables.localPods, tableKey.pod(row.pod.namespace, row.pod.name));
    const labels = status.acknowledged?.labels ?? status.wanted?.labels ?? row.labels;
    const of = sides.of(status);
    const read = (): (() => EndpointModel) => {
      const sidesNow = of();
      return () => endpointModel(status, sidesNow, pod?.namedPorts);
    };
    return { row, status, labels, read };
  });
}

/** Models as JSON, as of now. Other work of the process runs between them. */
export async function endpointTexts(views: readonly EndpointView[]): Promise<readonly string[]> {
  const texts: string[] = [];
  for (const model of views.map((view) => view.read())) {
    texts.push(JSON.stringify(model()));
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  return texts;
}

/** The two sides of endpoints' policies, and what explains both. */
class Sides {
  readonly #core: Core;
  readonly #reader: Reader;
  readonly #realised: ReturnType<Core['realised']>;
  readonly #wanted = new Map<SlotRow, SlotSummary>();
  readonly #inKernel = new Map<number, SlotSummary | undefined>();
  #inputs: { readonly text: string } | undefined;

  constructor(core: Core, reader: Reader) {
    this.#core = core;
    this.#reader = reader;
    this.#realised = core.realised();
  }

  /** Rows are read now, and what the kernel holds when it is called. */
  of({ row, wanted, acknowledged }: EndpointStatus): () => {
    readonly wanted: PolicySide;
    readonly acknowledged: PolicySide;
  } {
    const { tables } = this.#core;
    const slot = wanted && this.#reader.get(tables.slots, tableKey.slot(wanted.slot));
    const lagging = this.#reader.get(tables.laggingEndpoints, tableKey.endpoint(row.id));
    const policyRevision = this.#core.policyRevision();
    // Nothing of this start is in the kernel where that is what was found.
    const known = acknowledged !== undefined && !acknowledged.found;
    return () => ({
      wanted: { state: wanted, slot: slot && this.#summaryOf(slot, row.id), policyRevision },
      acknowledged: {
        state: acknowledged,
        slot: acknowledged && this.#inKernelSummary(acknowledged.slot, row.id),
        policyRevision: known ? (lagging?.revision ?? this.#realised.settled) : 0,
      },
    });
  }

  #summaryOf(slot: SlotRow, endpoint: number): SlotSummary {
    const summary = this.#wanted.get(slot) ?? new SlotSummary(contentOf(slot), this.#labels(endpoint));
    this.#wanted.set(slot, summary);
    return summary;
  }

  #inKernelSummary(slot: number, endpoint: number): SlotSummary | undefined {
    if (!this.#inKernel.has(slot)) {
      const content = this.#core.kernelSlot(slot);
      this.#inKernel.set(slot, content && new SlotSummary(copyOf(content), this.#labels(endpoint)));
    }
    return this.#inKernel.get(slot);
  }

  /** Labels of rules that the endpoint is judged by, read when they are asked for. Endpoints of one slot have the same rules. */
  #labels(endpoint: number): LabelsOf {
    let labels: ReadonlyMap<number, readonly string[]> | undefined;
    return (cookie) => {
      labels ??= new Map(
        Array.from(this.#core.naming.rulesOf(endpoint), ([row, rule]) => [rule.cookie, ruleLabels(row, rule.labels)]),
      );
      return labels.get(cookie);
    };
  }

  /** What is left as it was found waits for inputs. */
  explained(status: EndpointStatus): EndpointStatus {
    if (status.state !== 'restoring') return status;
    this.#inputs ??= {
      text: this.#core.health().checks.find(({ name, ok }) => name === 'inputs' && !ok)?.message ?? '',
    };
    const { text } = this.#inputs;
    return text === '' ? status : { ...status, reason: `${status.reason}: ${text}` };
  }
}

/** What the kernel holds changes under its readers. */
function copyOf({ elements, rows }: SlotContent): SlotContent {
  return {
    elements: both((direction) => new Map(elements[direction])),
    rows: both((direction) => new Map(rows[direction])),
  };
}

export function findEndpoint(options: ApiOptions, ref: EndpointRef): EndpointView | undefined {
  return endpointViews(options, (row) => matchesRef(row, ref))[0];
}

/** Throws `NotFoundError` when there is none. */
export function requireEndpoint(options: ApiOptions, text: string): EndpointView {
  const view = findEndpoint(options, parseEndpointRef(text));
  if (view === undefined)
    throw new NotFoundError(`no endpoint ${text} on this node; \`weir endpoint list\` shows those there are`);
  return view;
}
