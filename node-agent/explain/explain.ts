import { nameKey, nameValue } from '@weir/bpf';
import { RESERVED_ID } from '@weir/identity';
import { matches } from '@weir/labels';
import { type Family, formatAddress } from '@weir/net';
import {
  type CompileInput,
  type Direction,
  explain,
  type PeerIdentity,
  type PortNames,
  PROTOCOL_NUMBERS,
  type ResolvedRule,
  type RuleProtocol,
} from '@weir/policy';
import type { Reader } from '@weir/statedb';
import { BadRequestError } from '../api/errors.ts';
import type { EndExplanation, FlowExplanation, RuleRef } from '../api/models.ts';
import type { Core, Naming, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { PolicyRow } from '../tables.ts';
import { addressPair, type End, type EndSources, endOf, type LocalEnd, peerIdentity } from './ends.ts';
import { PROBE_PROTOCOLS, type ProbeProtocol } from './frame.ts';
import { askKernel, type ProbedKernel } from './kernel-probe.ts';

/** The kernel assigns no socket to a packet of a test run, and would drop it. */
const NOT_PROXIED = { reason: 'the DNS proxy gets no test packets' } as const;

export interface LiveExplainer {
  readonly core: Pick<Core, 'db' | 'tables' | 'naming'>;
  readonly nodeName: string;
  readonly mode: CompileInput['mode'];
  readonly allowLocalhost: boolean;
  readonly kernel: ProbedKernel;
}

export interface LiveQuestion {
  /** As `endOf` reads them. */
  readonly source: string;
  readonly destination: string;
  readonly protocol: RuleProtocol;
  /** Or the name that the destination gives it. */
  readonly port: string;
}

/**
 * What the rules that the kernel judges this node's endpoints by make of a new flow, and what the kernel itself does with a packet of it.
 * @throws BadRequestError, NotFoundError, BpfError
 */
export function explainLive(question: LiveQuestion, explainer: LiveExplainer): FlowExplanation {
  const { core, nodeName } = explainer;
  const { tables, naming } = core;
  using reader = core.db.read();
  const sources: EndSources = { reader, tables, naming, nodeName };
  const source = endOf(question.source, sources);
  const destination = endOf(question.destination, sources);
  if (source.local === undefined && destination.local === undefined)
    throw new BadRequestError(
      'neither end is a pod of this node, and a node judges its own pods only: ask the node of one of them',
    );
  const { protocol } = question;
  const port = portOf(question, destination, reader, tables);
  const at = (direction: Direction, subject: End, peer: End): EndExplanation | undefined => {
    const { local } = subject;
    if (local === undefined) return undefined;
    const pair = addressPair(subject, peer, familyOf(protocol));
    const address = pair === undefined ? {} : { address: formatAddress(pair[1]) };
    const identity = { ...peerIdentity(peer, sources), ...address };
    const answer = judged(
      direction,
      local,
      identity,
      {
        protocol: PROTOCOL_NUMBERS[protocol],
        port,
        names: pair === undefined ? [] : hostNamesOf(pair[1], explainer, reader),
      },
      explainer,
      reader,
    );
    const kernel =
      answer.reason === 'asks-names'
        ? NOT_PROXIED
        : asked(direction, local, [source, destination], protocol, port, explainer);
    return { ...answer, kernel };
  };
  const ends = [at('egress', source, destination), at('ingress', destination, source)].filter(
    (end) => end !== undefined,
  );
  return {
    verdict: ends.some(({ verdict }) => verdict === 'denied') ? 'denied' : 'allowed',
    source: source.name,
    destination: destination.name,
    protocol,
    port,
    ends,
  };
}

function judged(
  direction: Direction,
  local: LocalEnd,
  peer: PeerIdentity,
  traffic: { readonly protocol: number; readonly port: number; readonly names: readonly string[] },
  { core: { tables, naming }, mode: usual, allowLocalhost }: LiveExplainer,
  reader: Reader,
): EndExplanation {
  // Of a pod that nobody knows yet both directions are enforced.
  const { identity } = local.state;
  const isInit = identity === RESERVED_ID.init || 'reserved:init' in (naming.labelsOf(identity) ?? {});
  const mode = usual !== 'never' && isInit ? 'always' : usual;
  const found = [...naming.rulesOf(local.state.id)];
  const policies = new Map(found.map(([policy, { cookie }]) => [cookie, policy]));
  const rules = found.map(([, rule]) => rule);
  const { verdict, reason, deciding, outranked } = explain(
    {
      rules,
      mode,
      allowLocalhost,
      peerSets: { identities: (hash) => membersAmong(hash, peer, reader, tables, naming) },
      portNames: { own: ownPorts(local, reader, tables), ...naming.portNames },
    },
    { direction, peer, ...traffic },
  );
  const ref = (rule: ResolvedRule): RuleRef => {
    const policy = policies.get(rule.cookie);
    return { policy: policy === undefined ? 'a policy' : titleOf(policy), path: rule.path, says: rule.verdict };
  };
  return {
    direction,
    at: local.name,
    // Of what may be asked the DNS proxy decides name by name.
    verdict: verdict === 'allow' || reason === 'asks-names' ? 'allowed' : 'denied',
    reason,
    deciding: deciding.map(ref),
    others: outranked.map(ref),
    selecting: rules.filter((rule) => rule.direction === direction).map(ref),
  };
}

/** Patterns of `toFQDNs` that names are of which the address has in the kernel. */
function hostNamesOf(
  address: Uint8Array,
  { core: { tables }, kernel }: LiveExplainer,
  reader: Reader,
): readonly string[] {
  const found = kernel.map('names').lookup(nameKey.encode(address));
  if (found === undefined) return [];
  return reader.get(tables.nameIdentities, tableKey.identity(nameValue.decode(found)))?.patterns ?? [];
}

/** The peer, if it is in the set: by its labels where they are known, as the node decides it. */
function membersAmong(
  hash: string,
  { id }: PeerIdentity,
  reader: Reader,
  tables: Tables,
  naming: Pick<Naming, 'labelsOf'>,
): readonly number[] | undefined {
  const set = reader.get(tables.peerSets, hash);
  if (set === undefined) return undefined;
  const labels = naming.labelsOf(id);
  const member = labels === undefined ? set.identities.includes(id) : matches(set.selector, labels);
  return member ? [id] : [];
}

function ownPorts({ pod }: LocalEnd, reader: Reader, tables: Tables): PortNames['own'] {
  if (pod === undefined) return () => undefined;
  const ports = reader.get(tables.localPods, tableKey.pod(pod.namespace, pod.name))?.namedPorts ?? [];
  return (name, protocol) => ports.find((port) => port.name === name && port.protocol === protocol)?.port;
}

function asked(
  direction: Direction,
  { state }: LocalEnd,
  [source, destination]: readonly [End, End],
  protocol: RuleProtocol,
  port: number,
  { kernel }: LiveExplainer,
): NonNullable<EndExplanation['kernel']> {
  const known = PROBE_PROTOCOLS.find((each): each is ProbeProtocol => each === protocol);
  if (known === undefined) return { reason: `no packet of ${protocol} is made` };
  const pair = addressPair(source, destination, familyOf(known));
  if (pair === undefined) return { reason: 'no address of one family stands for both ends' };
  const [from, to] = pair;
  const verdict = askKernel(kernel, {
    endpoint: state,
    direction,
    flow: { source: from, destination: to, protocol: known, port },
    fromNode: source.identity === 1,
  });
  return { verdict, reason: `by a test packet at interface ${state.ifindex}` };
}

function portOf({ port, protocol }: LiveQuestion, destination: End, reader: Reader, tables: Tables): number {
  if (/^\d{1,5}$/.test(port) && Number(port) <= 0xffff) return Number(port);
  const [namespace = '', name = ''] = destination.name.split('/');
  const key = tableKey.pod(namespace, name);
  const ports =
    (destination.local === undefined ? undefined : reader.get(tables.localPods, key)?.namedPorts) ??
    reader.get(tables.remoteEndpoints, key)?.namedPorts ??
    [];
  const found = ports.find((each) => each.name === port && each.protocol === protocol);
  if (found === undefined)
    throw new BadRequestError(`${destination.name} has no ${protocol} port ${JSON.stringify(port)}`);
  return found.port;
}

function titleOf({ kind, namespace, name }: PolicyRow): string {
  return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
}

function familyOf(protocol: string): Family | undefined {
  return protocol === 'ICMP' ? 4 : protocol === 'ICMPv6' ? 6 : undefined;
}
