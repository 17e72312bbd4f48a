import { type LabelSelector, selectorHash } from '@weir/labels';
import type { PeerRef, Resolution, ResolvedRule, Rule, RuleElement, RulePeer, SelectorHash } from './types.ts';

export interface ResolveOptions {
  /** The cookie of an element: unique in the cluster and stable while the element is the same. 1..0xffffffff. */
  readonly cookieOf: (rule: Rule, element: RuleElement) => number;
  /** Whom an ipBlock of a NetworkPolicy selects: every address in it, or those of no pod and no node. Default `all`. */
  readonly networkPolicyCidrs?: 'all' | 'external' | undefined;
}

/**
 * Replaces selectors by the hashes that name their peer sets: one ResolvedRule for each element, in order. Pure and
 * deterministic; peers are in canonical order without doubles.
 */
export function resolve(rules: readonly Rule[], options: ResolveOptions): Resolution {
  const selectors = new Map<SelectorHash, LabelSelector>();
  // A policy may repeat a selector very often: most are the same object then, all have the same text.
  const hashes = new Map<LabelSelector | string, SelectorHash>();
  const name = (selector: LabelSelector): SelectorHash => {
    const known = hashes.get(selector);
    if (known !== undefined) return known;
    const text = JSON.stringify(selector);
    const hash = hashes.get(text) ?? selectorHash(selector);
    hashes.set(selector, hash).set(text, hash);
    selectors.set(hash, selector);
    return hash;
  };
  const resolved: ResolvedRule[] = [];
  for (const rule of rules) {
    const subject = name(rule.subject);
    for (const element of rule.elements) {
      resolved.push({
        subject,
        direction: element.direction,
        verdict: element.verdict,
        ...(element.peers === 'any' ? {} : { peers: peerRefs(element.peers, name, options) }),
        ...(element.ports === 'any' ? {} : { ports: element.ports }),
        ...(element.dns === undefined ? {} : { dns: element.dns }),
        defaultDeny: rule.defaultDeny[element.direction],
        cookie: options.cookieOf(rule, element),
        path: element.path,
        ...(rule.log === undefined ? {} : { log: rule.log }),
        ...(rule.labels.length === 0 ? {} : { labels: rule.labels }),
      });
    }
  }
  return { rules: resolved, selectors };
}

function peerRefs(
  peers: readonly RulePeer[],
  name: (selector: LabelSelector) => SelectorHash,
  options: ResolveOptions,
): PeerRef[] {
  const byText = new Map<string, PeerRef>();
  for (const peer of peers) {
    const ref = peerRef(peer, name, options);
    byText.set(JSON.stringify(ref), ref);
  }
  return [...byText.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, ref]) => ref);
}

function peerRef(
  peer: RulePeer,
  name: (selector: LabelSelector) => SelectorHash,
  { networkPolicyCidrs }: ResolveOptions,
): PeerRef {
  switch (peer.kind) {
    case 'endpoints':
      return { peerSet: name(peer.selector) };
    case 'cidr':
      return {
        cidr: peer.cidr.cidr,
        ...(peer.cidr.except.length === 0 ? {} : { except: peer.cidr.except }),
        ...(peer.everyone === true && networkPolicyCidrs !== 'external' ? { everyone: true } : {}),
      };
    case 'names':
      return { fqdn: peer.pattern };
    case 'entity':
      return { entity: peer.entity };
  }
}
