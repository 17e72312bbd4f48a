import { hash } from 'node:crypto';
import { type NamedPort, portNamesOf, type ResolvedRule, type SelectorHash } from '@weir/policy';
import type { PolicyRow } from '../tables.ts';
import { portNameKey } from './peer-port-names.ts';

/** Which other identities than those of peer sets rules tell apart: those of CIDRs, or of these only API servers'. Undefined: none. */
export type Tells = 'CIDRs' | 'entities' | undefined;

/**
 * The rules of a policy with one subject: whom one of them selects, all of them do. What slots want to know of them is found once, however many
 * endpoints they select.
 */
export interface RuleGroup {
  /** Hash of their content. */
  readonly key: string;
  readonly subject: SelectorHash;
  /** It is of a policy of the cluster, which tenants cannot write. */
  readonly clusterwide: boolean;
  readonly rules: readonly ResolvedRule[];
  /** Peer sets that they name. */
  readonly peerSets: ReadonlySet<SelectorHash>;
  readonly tells: Tells;
  /** Port names that mean what the endpoint itself says. */
  readonly ownNames: readonly NamedPort[];
  /** Port names that mean what each peer says. */
  readonly peerNames: ReadonlySet<string>;
}

/** Nearly always one. */
export function groupsOf({ rules, kind }: Pick<PolicyRow, 'rules' | 'kind'>): readonly RuleGroup[] {
  return Array.from(
    Map.groupBy(rules, ({ subject }) => subject),
    ([subject, own]) => {
      const names = portNamesOf(own);
      return {
        key: hash('sha256', JSON.stringify(own), 'base64'),
        subject,
        clusterwide: kind === 'CiliumClusterwideNetworkPolicy',
        rules: own,
        ...namedBy(own),
        ownNames: names.ingress,
        peerNames: new Set(names.egress.map(({ protocol, name }) => portNameKey(protocol, name))),
      };
    },
  );
}

/** Entities that tell addresses outside by their family, as CIDRs do. All others tell of those only who is an API server. */
const FAMILIES: ReadonlySet<string> = new Set(['world-ipv4', 'world-ipv6']);

function namedBy(rules: readonly ResolvedRule[]): Pick<RuleGroup, 'peerSets' | 'tells'> {
  const peerSets = new Set<SelectorHash>();
  let tells: Tells;
  for (const { peers } of rules)
    for (const peer of peers ?? []) {
      if ('peerSet' in peer) peerSets.add(peer.peerSet);
      else if ('cidr' in peer || FAMILIES.has(peer.entity)) tells = 'CIDRs';
      else tells ??= 'entities';
    }
  return { peerSets, tells };
}
