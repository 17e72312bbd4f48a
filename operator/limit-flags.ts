import { type Flag, flag } from '@weir/process/flags';
import { InvalidArgumentError } from 'commander';
import { DEFAULT_LIMITS, IDENTITIES, type Limits } from './limits.ts';

/** As in the chart's schema. */
const MOST = 999_999_999;

/** A flag for each limit. */
export const limitFlags = {
  rulesPerPolicy: limit(
    'rulesPerPolicy',
    'rules-per-policy',
    'rules of one policy: elements of ingress, egress and denies',
  ),
  selectorsPerPolicy: limit('selectorsPerPolicy', 'selectors-per-policy', 'distinct selectors of one policy'),
  policiesPerNamespace: limit(
    'policiesPerNamespace',
    'policies-per-namespace',
    'policies of one namespace, refused ones too (one counts once for each 50 CIDRs and each 10 selectors begun)',
  ),
  identitiesPerNamespace: limit(
    'identitiesPerNamespace',
    'identities-per-namespace',
    `identities of one namespace, of ${IDENTITIES} in the cluster`,
  ),
} satisfies Record<keyof Limits, Flag<number>>;

function limit(name: keyof Limits, option: string, what: string): Flag<number> {
  return flag<number>(`--${option} <count>`, `most ${what}; 0: no limit`)
    .default(DEFAULT_LIMITS[name])
    .argParser((text) => {
      if (/^[0-9]+$/.test(text) && Number(text) <= MOST) return Number(text);
      throw new InvalidArgumentError(`Write a whole number from 0 to ${MOST}; 0: no limit.`);
    });
}
