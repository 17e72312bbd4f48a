/** Every verdict that some combination of versions gives. */

import type { Direction, Protocol } from '../world/policy.ts';
import type { PodState, World } from '../world/world.ts';
import { evaluate, type Outcome, SILENT, type Who } from './evaluate.ts';

export interface Window {
  readonly from: number;
  readonly to: number;
}

/** Which of the two verdicts some combination gives. */
export interface Possible {
  readonly allow: boolean;
  readonly deny: boolean;
}

export const ALLOWED: Possible = { allow: true, deny: false };

export interface Judgement {
  readonly direction: Direction;
  readonly subject: readonly (Who | PodState)[];
  readonly peer: readonly (Who | PodState)[];
  readonly protocol: Protocol;
  readonly port: number;
}

const same = (a: Outcome, b: Outcome): boolean =>
  a.enforced === b.enforced && a.defaultDeny === b.defaultDeny && a.allow === b.allow && a.deny === b.deny;

const union = (a: Outcome, b: Outcome): Outcome => ({
  enforced: a.enforced || b.enforced,
  defaultDeny: a.defaultDeny || b.defaultDeny,
  allow: a.allow || b.allow,
  deny: a.deny || b.deny,
});

/** Section 5.2: deny before allow before default deny. */
const allows = ({ enforced, defaultDeny, allow, deny }: Outcome): boolean =>
  !enforced || (!deny && (allow || !defaultDeny));

const distinct = (outcomes: readonly Outcome[]): readonly Outcome[] =>
  outcomes.filter((outcome, index) => outcomes.findIndex((other) => same(outcome, other)) === index);

/** Of one node, for every policy's every version with every state of both ends. */
export function possible(
  world: World,
  { direction, subject, peer, protocol, port }: Judgement,
  window: Window,
): Possible {
  let allow = false;
  let deny = false;
  for (const from of subject) {
    if (from.kind === 'open' || from.kind === 'outside') allow = true;
    else if (from.kind === 'unknown') deny = true;
    else
      for (const to of peer) {
        // A peer without enforcement is who it is; its other states say so.
        if (to.kind === 'open') continue;
        const question = { direction, subject: from, peer: to, protocol, port };
        let sums: readonly Outcome[] = [SILENT];
        for (const { namespace, versions } of world.policies) {
          const said = distinct(
            versions
              .possible(window.from, window.to)
              .map(({ rule }) => (rule === undefined ? SILENT : evaluate(rule, namespace, question))),
          );
          sums = distinct(sums.flatMap((sum) => said.map((outcome) => union(sum, outcome))));
        }
        for (const sum of sums) {
          if (allows(sum)) allow = true;
          else deny = true;
        }
      }
    if (allow && deny) break;
  }
  return { allow, deny };
}
