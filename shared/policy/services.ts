/**
 * `toServices` (spec 3.4): the peers behind Services. One that selects pods stands for what it selects in its namespace, any other for the
 * addresses of its EndpointSlices, as CIDRs: so it names no pod and no node, whoever wrote the slices. One that is unknown stands for nobody.
 */
import {
  canonicalSelector,
  isIdentityLabel,
  type LabelSelector,
  matches,
  NAMESPACE_LABEL,
  readSelector as readLabels,
} from '@weir/labels';
import { type ElementContext, readSelector } from './context.ts';
import { checkFields, isObject, type Json, member, type Problems, show, textOf } from './problems.ts';
import type { RulePeer, ServicePeers, ServiceRef, ServiceView } from './types.ts';

/** Peers that the Services of one policy may come to, and Services that it may look through: both are done in one piece. */
const MOST_PEERS = 50_000;
const MOST_LOOKS = 200_000;

export const NO_SERVICES: ServiceView = serviceView([]);

/** Of a few Services. */
export function serviceView(services: readonly ServicePeers[]): ServiceView {
  return {
    get: (namespace, name) => services.find((each) => each.namespace === namespace && each.name === name),
    named: (name) => services.filter((each) => each.name === name),
    all: (namespace) => services.filter((each) => namespace === undefined || each.namespace === namespace),
  };
}

/** What a reference says, apart from where it stands. */
type Wanted = Pick<ServiceRef, 'name' | 'namespace' | 'selector'>;

/** Reads the Services that one policy names. */
export class ServiceReader {
  /** In the order of the text; of one that is repeated all. */
  readonly refs: ServiceRef[] = [];
  readonly #view: ServiceView;
  /** By the text of a reference; with their names, which all that repeat it share. */
  readonly #found = new Map<string, readonly [services: readonly ServicePeers[], names: readonly string[]]>();
  #peers = 0;
  #looks = 0;

  constructor(view: ServiceView) {
    this.#view = view;
  }

  /** An item of toServices. */
  read(item: unknown, context: ElementContext, path: string, problems: Problems): readonly RulePeer[] {
    const wanted = wantedOf(item, path, problems);
    if (wanted === undefined) return [];
    const { name, namespace, selector } = wanted;
    const text = JSON.stringify([name, namespace, selector]);
    const known = this.#found.get(text) ?? this.#named(wanted);
    this.#found.set(text, known);
    const [found, names] = known;
    // One that is repeated is looked through again.
    this.#looks += found.length;
    if (this.#looks > MOST_LOOKS) {
      problems.excess(
        path,
        `the selectors of toServices look through more than ${MOST_LOOKS} Services: name Services, or give the selectors a namespace`,
      );
      return [];
    }
    this.refs.push({ ...wanted, path, found: names });
    const peers: RulePeer[] = [];
    for (const service of found) {
      for (const peer of peersOf(service, context, path, problems)) peers.push(peer);
      if (this.#peers + peers.length <= MOST_PEERS) continue;
      // What follows is not looked at.
      this.#peers = MOST_PEERS;
      problems.excess(
        path,
        `the Services that the policy names come to more than ${MOST_PEERS} peers: name fewer, or split it`,
      );
      return [];
    }
    this.#peers += peers.length;
    return peers;
  }

  #named(wanted: Wanted): readonly [readonly ServicePeers[], readonly string[]] {
    const found = this.#find(wanted);
    return [found, found.map(({ namespace, name }) => `${namespace}/${name}`)];
  }

  #find({ name, namespace, selector }: Wanted): readonly ServicePeers[] {
    if (name !== undefined) {
      if (namespace === undefined) return [...this.#view.named(name)];
      const service = this.#view.get(namespace, name);
      return service === undefined ? [] : [service];
    }
    const found: ServicePeers[] = [];
    for (const service of this.#view.all(namespace)) {
      this.#looks += 1;
      if (this.#looks > MOST_LOOKS) return [];
      if (selector !== undefined && selectsService(selector, service)) found.push(service);
    }
    return found;
  }
}

/** Whether a selector of Services selects this one. */
export function selectsService(selector: LabelSelector, { labels }: Pick<ServicePeers, 'labels'>): boolean {
  return matches(selector, Object.fromEntries(Object.entries(labels).map(([key, value]) => [`k8s:${key}`, value])));
}

function wantedOf(item: unknown, path: string, problems: Problems): Wanted | undefined {
  if (!isObject(item)) {
    problems.invalid(path, `${show(item)} is no Service: write k8sService or k8sServiceSelector`);
    return undefined;
  }
  checkFields(item, ['k8sService', 'k8sServiceSelector'], path, problems);
  const given = (field: string): unknown => member(item, field) ?? undefined;
  const [byName, bySelector] = [given('k8sService'), given('k8sServiceSelector')];
  if ((byName === undefined) === (bySelector === undefined)) {
    const found = byName === undefined ? 'neither' : 'both';
    problems.invalid(path, `the element has ${found} of k8sService and k8sServiceSelector: write one of them`);
    return undefined;
  }
  return byName === undefined
    ? selectorIn(bySelector, `${path}.k8sServiceSelector`, problems)
    : nameIn(byName, `${path}.k8sService`, problems);
}

function nameIn(json: unknown, path: string, problems: Problems): Wanted | undefined {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} names no Service: write {serviceName, namespace}`);
    return undefined;
  }
  checkFields(json, ['serviceName', 'namespace'], path, problems);
  const name = textOf(json, 'serviceName', path, problems);
  if (!name) problems.invalid(`${path}.serviceName`, 'the Service has no name: write serviceName');
  const namespace = namespaceIn(json, path, problems);
  return name ? { name, ...namespace } : undefined;
}

function selectorIn(json: unknown, path: string, problems: Problems): Wanted | undefined {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} selects no Services: write {selector, namespace}`);
    return undefined;
  }
  checkFields(json, ['selector', 'namespace'], path, problems);
  const written = member(json, 'selector');
  const namespace = namespaceIn(json, path, problems);
  if (written === undefined || written === null) {
    problems.invalid(`${path}.selector`, 'without a selector every Service would be meant: write {} if that is so');
    return undefined;
  }
  const selector = readSelector(written, `${path}.selector`, problems);
  return selector === undefined ? undefined : { selector, ...namespace };
}

/** Absent and empty are any namespace. */
function namespaceIn(json: Json, path: string, problems: Problems): { readonly namespace?: string } {
  const namespace = textOf(json, 'namespace', path, problems);
  return namespace ? { namespace } : {};
}

function peersOf(
  service: ServicePeers,
  { verdict }: ElementContext,
  path: string,
  problems: Problems,
): readonly RulePeer[] {
  if (service.selector === undefined)
    return service.addresses.map((address) => ({
      kind: 'cidr',
      cidr: { cidr: `${address}/${address.includes(':') ? 128 : 32}`, except: [] },
    }));
  const unseen = Object.keys(service.selector).filter((key) => !isIdentityLabel(key));
  if (unseen.length > 0)
    problems.warn(
      path,
      `Service ${service.namespace}/${service.name} selects pods by ${show(unseen[0])}, which is part of no identity: ${verdict === 'allow' ? 'none of them is allowed' : 'all are denied that its other labels select'}`,
    );
  const seen = Object.entries(service.selector).filter(([key]) => verdict === 'allow' || !unseen.includes(key));
  const { selector } = readLabels({ matchLabels: Object.fromEntries(seen) }, path);
  if (selector === undefined) return [];
  const own = { key: NAMESPACE_LABEL, operator: 'In' as const, values: [service.namespace] };
  return [{ kind: 'endpoints', selector: canonicalSelector({ requirements: [...selector.requirements, own] }) }];
}
