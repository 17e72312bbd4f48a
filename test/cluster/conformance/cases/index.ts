/** All cases, in the groups that the golden files have. */
import type { Case } from '../types.ts';
import { applying } from './applying.ts';
import { basics } from './basics.ts';
import { custom } from './custom.ts';
import { deleting } from './deleting.ts';
import { discovery } from './discovery.ts';
import { kinds } from './kinds.ts';
import { listing } from './listing.ts';
import { patching } from './patching.ts';
import { policies } from './policies.ts';
import { tables } from './tables.ts';
import { tools } from './tools.ts';

export const GROUPS: Readonly<Record<string, readonly Case[]>> = {
  discovery,
  basics,
  patching,
  applying,
  listing,
  deleting,
  kinds,
  policies,
  custom,
  tables,
  tools,
};
