import type { FastifyReply } from 'fastify';
import type { EndpointRow, SlotRow } from '../tables.ts';
import { type EndpointRef, matchesRef, parseEndpointRef } from './endpoint-id.ts';
import { endpointModel } from './endpoint-model.ts';
import { NotFoundError } from './errors.ts';
import { foundState, type ShownState } from './found-state.ts';
import type { EndpointModel } from './models.ts';
import type { ApiOptions } from './types.ts';

/** An endpoint with all that is known of it, from one snapshot. */
export interface EndpointView {
  readonly row: EndpointRow;
  readonly state: ShownState | undefined;
  readonly model: EndpointModel;
}

/** Every endpoint, by id. */
export function endpointViews(options: ApiOptions): readonly EndpointView[] {
  const { core } = options;
  using snapshot = core.db.read();
  const states = new Map([...snapshot.all(core.tables.endpointStates)].map((state) => [state.id, state]));
  const slots = new Map<number, SlotRow>([...snapshot.all(core.tables.slots)].map((slot) => [slot.slot, slot]));
  const revision = core.policyRevision();
  const pods = new Map([...snapshot.all(core.tables.localPods)].map((pod) => [`${pod.namespace}/${pod.name}`, pod]));
  return [...snapshot.all(core.tables.endpoints)]
    .sort((a, b) => a.id - b.id)
    .map((row) => {
      const state = states.get(row.id) ?? foundState(core, row, snapshot);
      return {
        row,
        state,
        model: endpointModel(
          row,
          state,
          state === undefined ? undefined : slots.get(state.slot),
          revision,
          row.pod === undefined ? [] : pods.get(`${row.pod.namespace}/${row.pod.name}`)?.namedPorts,
        ),
      };
    });
}

export function findEndpoint(options: ApiOptions, ref: EndpointRef): EndpointView | undefined {
  return endpointViews(options).find((view) => matchesRef(view.row, ref));
}

/** Throws `NotFoundError` when there is none. */
export function requireEndpoint(options: ApiOptions, text: string): EndpointView {
  const view = findEndpoint(options, parseEndpointRef(text));
  if (view === undefined)
    throw new NotFoundError(`no endpoint ${text} on this node; \`weir endpoint list\` shows those there are`);
  return view;
}

/** Sends plain JSON of any type (a bare string too). */
export function sendJson(reply: FastifyReply, status: number, body: unknown): FastifyReply {
  return reply.code(status).type('application/json; charset=utf-8').send(JSON.stringify(body));
}
