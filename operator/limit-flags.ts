import { type Flag, flag } from '@weir/process/flags';
import { InvalidArgumentError } from 'commander';
import { DEFAULT_LIMITS, IDENTITIES, type Limits } from './limits.ts';

/** As in the chart's schema. */
const MOST = 999_999_999;
const MOST_BYTES = 1_500_000;

/** Greatest value of a flag, and the end of the sentence that says it. */
interface Range {
  readonly most: number;
  readonly why: string;
}

/** A flag for each limit. */
export const limitFlags = {
  identitiesPerNamespace: limit(
    'identitiesPerNamespace',
    'identities-per-namespace',
    `identities of one namespace, of ${IDENTITIES} in the cluster`,
  ),
  mirrorIdentitiesPerNodeAndNamespace: limit(
    'mirrorIdentitiesPerNodeAndNamespace',
    'mirror-identities-per-node-and-namespace',
    'identities that only mirror pods of one node have in one namespace',
  ),
  mirrorIdentitiesPerNode: limit(
    'mirrorIdentitiesPerNode',
    'mirror-identities-per-node',
    'identities that only mirror pods of one node have, in all namespaces',
  ),
  selectorsPerPolicy: limit(
    'selectorsPerPolicy',
    'selectors-per-policy',
    'distinct selectors of one policy (one counts once for each 10 requirements and values, and that once for each namespace that it looks into: 16 times if in all, unless it asks for a label by its value)',
  ),
  rulesPerPolicy: limit(
    'rulesPerPolicy',
    'rules-per-policy',
    'rules of one policy: elements of ingress, egress and denies',
  ),
  entriesPerPolicy: limit(
    'entriesPerPolicy',
    'entries-per-policy',
    'entries of all lists of one policy, those that repeat others too: peers, ports, values, CIDRs, rules',
  ),
  bytesPerPolicy: limit(
    'bytesPerPolicy',
    'bytes-per-policy',
    'bytes of the rules of one policy once it is resolved, and of each of its selectors',
    { most: MOST_BYTES, why: ', as an object of the API server holds no more' },
  ),
  policiesPerNamespace: limit(
    'policiesPerNamespace',
    'policies-per-namespace',
    'policies of one namespace, refused ones too',
  ),
  selectorsPerNamespace: limit(
    'selectorsPerNamespace',
    'selectors-per-namespace',
    'selectors of the policies of one namespace, counted as those of one policy',
  ),
  bytesPerNamespace: limit(
    'bytesPerNamespace',
    'bytes-per-namespace',
    'bytes of the resolved rules and of the selectors of the policies of one namespace',
  ),
  cidrsPerNamespace: limit(
    'cidrsPerNamespace',
    'cidrs-per-namespace',
    'CIDRs that the policies of one namespace name, exceptions too',
  ),
  matchesPerPolicy: limit(
    'matchesPerPolicy',
    'matches-per-policy',
    'identities that the selectors of one policy match, summed',
  ),
  matchesPerNamespace: limit(
    'matchesPerNamespace',
    'matches-per-namespace',
    'identities that the selectors of the policies of one namespace match, summed',
  ),
} satisfies Record<keyof Limits, Flag<number>>;

function limit(
  name: keyof Limits,
  option: string,
  what: string,
  { most, why }: Range = { most: MOST, why: '' },
): Flag<number> {
  return flag<number>(`--${option} <count>`, `most ${what}; 0: no limit`)
    .default(DEFAULT_LIMITS[name])
    .argParser((text) => {
      if (/^[0-9]+$/.test(text) && Number(text) <= most) return Number(text);
      throw new InvalidArgumentError(`Write a whole number from 0 to ${most}${why}; 0: no limit.`);
    });
}
