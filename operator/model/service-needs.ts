/** Which Services a policy names, so that a change of one finds the policies to read again. */
import { type ServicePeers, type ServiceRef, type ServiceView, selectsService } from '@weir/policy';
import { type IndexSpec, keys, type Reader, type Table } from '@weir/statedb';
import type { Tables } from '../tables.ts';

/** What is known of a policy that has been read. */
export interface NamesServices {
  readonly services: readonly ServiceRef[];
}

/** Place of a reference that says no namespace. */
const ANYWHERE = '*';

const byName = (namespace: string, name: string): string => keys.join('name', namespace, name);
const bySelector = (namespace: string): string => keys.join('selector', namespace);

/** Index of tables whose rows name Services. */
export const SERVICE_INDEX: IndexSpec<NamesServices, 'service'> = {
  name: 'service',
  keys: ({ services }) => {
    const all = new Set(services.flatMap(keysOf));
    // What left a selector's Services is found by what it was. References that repeat others share what they found.
    for (const found of new Set(services.map((each) => each.found)))
      for (const key of found) all.add(keys.join('found', key));
    return all;
  },
};

function keysOf({ name, namespace = ANYWHERE, selector }: ServiceRef): string[] {
  return [
    ...(name === undefined ? [] : [byName(namespace, name)]),
    ...(selector === undefined ? [] : [bySelector(namespace)]),
  ];
}

/** Rows that another state of this Service may change: those that mean it, and those that would now. */
export function* dependents<Row extends NamesServices>(
  reader: Reader,
  table: Table<Row>,
  service: ServicePeers,
): Generator<Row> {
  const { namespace, name } = service;
  for (const key of [keys.join('found', `${namespace}/${name}`), byName(namespace, name), byName(ANYWHERE, name)])
    yield* reader.list(table, SERVICE_INDEX.name, key);
  for (const place of [namespace, ANYWHERE])
    for (const row of reader.list(table, SERVICE_INDEX.name, bySelector(place))) {
      const isMeant = row.services.some(
        ({ selector, namespace: only = namespace }) =>
          selector !== undefined && only === namespace && selectsService(selector, service),
      );
      if (isMeant) yield row;
    }
}

/** Services as the tables have them. */
export function servicesIn(reader: Reader, { servicePeers }: Pick<Tables, 'servicePeers'>): ServiceView {
  return {
    get: (namespace, name) => reader.get(servicePeers, `${namespace}/${name}`),
    named: (name) => reader.list(servicePeers, 'name', name),
    all: (namespace) =>
      namespace === undefined ? reader.all(servicePeers) : reader.prefix(servicePeers, `${namespace}/`),
  };
}
