import { hash } from 'node:crypto';
import { type NamedPort, portNamesOf, type ResolvedRule, type SelectorHash } from '@weir/policy';
import type { PolicyRow } from '../tables.ts';
import { portNameKey } from './peer-port-names.ts';

/**
 * The rules of a policy with one subject: whom one of them selects, all of them do. What slots want to know of them is found once, however many
 * endpoints they select.
 */
export interface RuleGroup {
  /** Hash of their content. */
  readonly key: string;
  readonly subject: SelectorHash;
  readonly rules: readonly ResolvedRule[];
  /** Peer sets that they name. */
  readonly peerSets: ReadonlySet<SelectorHash>;
  /** Patterns of names that they name. */
  readonly hostNames: ReadonlySet<string>;
  /** They may tell the host and API servers from others: by entities, or by CIDRs. */
  readonly tellServers: boolean;
  /** Port names that mean what the endpoint itself says. */
  readonly ownNames: readonly NamedPort[];
  /** Port names that mean what each peer says. */
  readonly peerNames: ReadonlySet<string>;
}

/** Nearly always one. */
export function groupsOf({ rules }: Pick<PolicyRow, 'rules'>): readonly RuleGroup[] {
  return Array.from(
    Map.groupBy(rules, ({ subject }) => subject),
    ([subject, own]) => {
      const names = portNamesOf(own);
      return {
        key: hash('sha256', JSON.stringify(own), 'base64'),
        subject,
        rules: own,
        ...namedBy(own),
        ownNames: names.ingress,
        peerNames: new Set(names.egress.map(({ protocol, name }) => portNameKey(protocol, name))),
      };
    },
  );
}

function namedBy(rules: readonly ResolvedRule[]): Pick<RuleGroup, 'peerSets' | 'hostNames' | 'tellServers'> {
  const peerSets = new Set<SelectorHash>();
  const hostNames = new Set<string>();
  let tellServers = false;
  for (const { peers } of rules)
    for (const peer of peers ?? []) {
      if ('peerSet' in peer) peerSets.add(peer.peerSet);
      else if ('fqdn' in peer) hostNames.add(peer.fqdn);
      else tellServers = true;
    }
  return { peerSets, hostNames, tellServers };
}
