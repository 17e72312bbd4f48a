/** What policies may refer to, as the tables have it. */
import type { Referents } from '@weir/policy';
import type { Reader } from '@weir/statedb';
import type { Tables } from '../tables.ts';
import { cidrGroupsIn } from './cidr-group-needs.ts';
import { servicesIn } from './service-needs.ts';
import type { Surroundings } from './surroundings.ts';

export function referentsIn(
  reader: Reader,
  tables: Pick<Tables, 'servicePeers' | 'cidrGroups'>,
  surroundings: Pick<Surroundings, 'stack'>,
): Referents {
  return {
    services: servicesIn(reader, tables),
    cidrGroups: cidrGroupsIn(reader, tables),
    stack: surroundings.stack(reader),
  };
}
