import { formatLabels, type LabelMap } from '@weir/labels';
import type { ClassRows, CompiledRow, Direction } from '@weir/policy';
import type { ContainerPort, EndpointRow, SlotRow } from '../tables.ts';
import type { ShownState } from './found-state.ts';
import { identityModel } from './labels.ts';
import type { EndpointHealth, EndpointModel, EndpointPolicy, HealthWord, L4Rule, PolicyEnabled } from './models.ts';

const PROTOCOLS: Readonly<Record<CompiledRow['protocol'], string>> = {
  0: 'ANY',
  1: 'ICMP',
  6: 'TCP',
  17: 'UDP',
  58: 'ICMPV6',
  132: 'SCTP',
};

/** The API's view of an endpoint: what was asked for, and what is derived for the kernel. */
export function endpointModel(
  row: EndpointRow,
  state: ShownState | undefined,
  slot: SlotRow | undefined,
  policyRevision: number,
  namedPorts: readonly ContainerPort[] = [],
): EndpointModel {
  const labels: LabelMap = state?.labels ?? row.labels ?? {};
  const texts = formatLabels(labels);
  const user = row.labels === undefined ? [] : formatLabels(row.labels);
  const policy = endpointPolicy(state, slot, policyRevision);
  const word = row.gone === undefined ? stateWord(state) : 'interface-gone';
  return {
    id: row.id,
    spec: { options: {}, 'label-configuration': { user } },
    status: {
      'external-identifiers': externalIdentifiers(row),
      identity: identityModel(state?.identity ?? 0, labels),
      labels: { realized: { user }, 'security-relevant': texts, derived: [], disabled: [] },
      realized: { options: {}, 'label-configuration': { user } },
      networking: {
        addressing: [{ ipv4: row.ipv4 }],
        ...(row.hostMac === undefined ? {} : { 'host-mac': row.hostMac }),
        ...(row.mac === undefined ? {} : { mac: row.mac }),
        'interface-name': row.interfaceName,
        'interface-index': row.ifindex,
        ...(row.containerInterface === undefined ? {} : { 'container-interface-name': row.containerInterface }),
      },
      policy: { spec: policy, realized: policy, 'proxy-policy-revision': 0 },
      log: [
        {
          code: word === 'not-ready' ? 'Failure' : 'OK',
          message: messageOf(row, state) ?? `endpoint is ${word}`,
          state: word,
          timestamp: row.createdAt,
        },
      ],
      controllers: [],
      state: word,
      health: endpointHealth(state),
      namedPorts: namedPorts.map(({ name, port, protocol }) => ({ name, port, protocol })),
    },
  };
}

/** What is ready and waits is judged by what it was before. */
function stateWord(state: ShownState | undefined): string {
  if (state?.state === 'ready' && state.reason !== undefined) return 'waiting-to-regenerate';
  return state?.state ?? 'waiting-for-identity';
}

function messageOf({ gone, found, interfaceName }: EndpointRow, state: ShownState | undefined): string | undefined {
  if (gone !== undefined)
    return `its interface ${interfaceName} has been gone since ${gone}: it is in the kernel no more, and is forgotten with its pod; delete the pod, so that it is made anew`;
  const taken = found === undefined ? [] : ['no file knew it, it was taken from the kernel'];
  const reasons = [...taken, ...(state?.reason === undefined ? [] : [state.reason])];
  return reasons.length === 0 ? undefined : reasons.join('; ');
}

export function policyEnabled(enforced: Readonly<Record<Direction, boolean>> | undefined): PolicyEnabled {
  if (enforced?.ingress === true) return enforced.egress ? 'both' : 'ingress';
  return enforced?.egress === true ? 'egress' : 'none';
}

export function endpointHealth(state: ShownState | undefined): EndpointHealth {
  const word: HealthWord =
    state === undefined || state.state === 'waiting-for-identity' || state.state === 'restoring'
      ? 'Pending'
      : state.state === 'ready'
        ? 'OK'
        : 'Failure';
  return { overallHealth: word, bpf: word, policy: word, connected: state !== undefined };
}

function endpointPolicy(
  state: ShownState | undefined,
  slot: SlotRow | undefined,
  policyRevision: number,
): EndpointPolicy {
  return {
    id: state?.identity ?? 0,
    build: slot?.epoch ?? 0,
    'policy-revision': policyRevision,
    'policy-enabled': policyEnabled(state?.enforced),
    'allowed-ingress-identities': identities(slot, 'ingress', 'allow'),
    'allowed-egress-identities': identities(slot, 'egress', 'allow'),
    'denied-ingress-identities': identities(slot, 'ingress', 'deny'),
    'denied-egress-identities': identities(slot, 'egress', 'deny'),
    l4: { ingress: l4(slot, 'ingress'), egress: l4(slot, 'egress') },
    policies: state?.policies ?? {},
  };
}

/** Listed identities with at least one row of the verdict. */
function identities(slot: SlotRow | undefined, direction: Direction, verdict: 'allow' | 'deny'): readonly number[] {
  const compiled = slot?.compiled[direction];
  if (compiled === undefined || !compiled.enforced) return [];
  const found = compiled.classes
    .filter((entry) => entry.rows.some((row) => row.verdict === verdict))
    .flatMap((entry) => entry.members);
  return [...new Set(found)].sort((a, b) => a - b);
}

function l4(slot: SlotRow | undefined, direction: Direction): readonly L4Rule[] {
  const compiled = slot?.compiled[direction];
  if (compiled === undefined || !compiled.enforced) return [];
  const lists: readonly ClassRows[] = [
    ...compiled.classes.map((entry) => entry.rows),
    ...Object.values(compiled.scope),
  ];
  const rules = new Map<string, L4Rule>();
  for (const row of lists.flat()) {
    const ports = row.from === row.to ? { port: row.from } : { port: row.from, 'end-port': row.to };
    const rule = JSON.stringify({ ...ports, protocol: PROTOCOLS[row.protocol], verdict: row.verdict });
    rules.set(rule, { rule, 'derived-from-rules': [] });
  }
  return [...rules.keys()].sort().flatMap((key) => rules.get(key) ?? []);
}

function externalIdentifiers(row: EndpointRow): Readonly<Record<string, string>> {
  const pod = row.pod === undefined ? undefined : `${row.pod.namespace}/${row.pod.name}`;
  return {
    ...(row.containerId === undefined ? {} : { 'container-id': row.containerId }),
    ...(row.containerId === undefined || row.containerInterface === undefined
      ? {}
      : { 'cni-attachment-id': `${row.containerId}:${row.containerInterface}` }),
    ...(pod === undefined ? {} : { 'pod-name': pod, 'cep-name': pod }),
    ...(row.pod === undefined ? {} : { 'k8s-namespace': row.pod.namespace, 'k8s-pod-name': row.pod.name }),
  };
}
