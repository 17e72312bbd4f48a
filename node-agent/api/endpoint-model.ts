import { formatLabels } from '@weir/labels';
import { addressPair } from '@weir/net';
import type { Direction, Verdict } from '@weir/policy';
import type { EndpointStatus, EndpointWord } from '../core/endpoint-status.ts';
import { ADDRESSES, rangesOf } from '../derive/contract.ts';
import type { ContainerPort, EndpointRow, EndpointStateRow, SlotContent } from '../tables.ts';
import { identityModel } from './labels.ts';
import type { EndpointHealth, EndpointModel, EndpointPolicy, HealthWord, L4Rule, PolicyEnabled } from './models.ts';

const PROTOCOLS: Readonly<Record<number, string>> = {
  0: 'ANY',
  1: 'ICMP',
  6: 'TCP',
  17: 'UDP',
  58: 'ICMPV6',
  132: 'SCTP',
};

/** One side of an endpoint's policy: as it is wanted, or as the kernel acknowledged it. */
export interface PolicySide {
  readonly state: Pick<EndpointStateRow, 'identity' | 'revision' | 'enforced' | 'policies'> | undefined;
  readonly slot: SlotSummary | undefined;
  /** Policy revision of the agent. */
  readonly policyRevision: number;
}

/** Labels of a rule, by its cookie; undefined: it is known no more. */
export type LabelsOf = (cookie: number) => readonly string[] | undefined;

/** What a slot lets through and refuses, without saying of whom each port is. Endpoints with the same rules share one. */
export class SlotSummary {
  readonly #content: SlotContent;
  readonly #labelsOf: LabelsOf;
  readonly #directions = new Map<Direction, DirectionSummary>();

  constructor(content: SlotContent, labelsOf: LabelsOf) {
    this.#content = content;
    this.#labelsOf = labelsOf;
  }

  /** Worked out once: its time grows with the rows. */
  of(direction: Direction): DirectionSummary {
    const known = this.#directions.get(direction);
    if (known !== undefined) return known;
    const made = {
      allowed: identities(this.#content, direction, 'allow'),
      denied: identities(this.#content, direction, 'deny'),
      l4: l4(this.#content, direction, this.#labelsOf),
    };
    this.#directions.set(direction, made);
    return made;
  }
}

interface DirectionSummary {
  readonly allowed: readonly number[];
  readonly denied: readonly number[];
  readonly l4: readonly L4Rule[];
}

const NOTHING: DirectionSummary = { allowed: [], denied: [], l4: [] };
const NOWHERE = { ingress: false, egress: false } as const;

/** The API's view of an endpoint: what is wanted as `spec`, and what the kernel acknowledged as all else. */
export function endpointModel(
  status: EndpointStatus,
  sides: { readonly wanted: PolicySide; readonly acknowledged: PolicySide },
  namedPorts: readonly ContainerPort[] = [],
): EndpointModel {
  const { row, acknowledged, state } = status;
  const labels = endpointLabels(status);
  const configuration = labels.spec;
  return {
    id: row.id,
    spec: { options: {}, 'label-configuration': configuration },
    status: {
      'external-identifiers': externalIdentifiers(row),
      identity: identityModel(acknowledged?.identity ?? 0, acknowledged?.labels ?? {}),
      labels: labels.status,
      realized: { options: {}, 'label-configuration': configuration },
      networking: {
        addressing: [addressPair(row.addresses)],
        ...(row.hostMac === undefined ? {} : { 'host-mac': row.hostMac }),
        ...(row.mac === undefined ? {} : { mac: row.mac }),
        'interface-name': row.interfaceName,
        'interface-index': row.ifindex,
        ...(row.containerInterface === undefined ? {} : { 'container-interface-name': row.containerInterface }),
      },
      policy: {
        spec: endpointPolicy(sides.wanted),
        realized: endpointPolicy(sides.acknowledged),
        'proxy-policy-revision': 0,
      },
      log: endpointLog(status),
      controllers: [],
      state,
      health: endpointHealth(status),
      namedPorts: namedPorts.map(({ name, port, protocol }) => ({ name, port, protocol })),
    },
  };
}

/** Which it was given, and which count. */
export function endpointLabels({ row, acknowledged, wanted }: EndpointStatus) {
  const user = row.labels === undefined ? [] : formatLabels(row.labels);
  const texts = formatLabels(acknowledged?.labels ?? wanted?.labels ?? row.labels ?? {});
  return {
    spec: { user },
    status: { realized: { user }, 'security-relevant': texts, derived: [], disabled: [] },
  };
}

export function endpointLog({ row, state, reason }: EndpointStatus): EndpointModel['status']['log'] {
  const message = reason ?? `endpoint is ${state}`;
  return [{ code: state === 'not-ready' ? 'Failure' : 'OK', message, state, timestamp: row.createdAt }];
}

function policyEnabled(enforced: Readonly<Record<Direction, boolean>>): PolicyEnabled {
  if (enforced.ingress) return enforced.egress ? 'both' : 'ingress';
  return enforced.egress ? 'egress' : 'none';
}

const HEALTH: Readonly<Record<EndpointWord, HealthWord>> = {
  ready: 'OK',
  'waiting-to-regenerate': 'Warning',
  regenerating: 'Pending',
  restoring: 'Pending',
  'waiting-for-identity': 'Pending',
  'not-ready': 'Failure',
  'interface-gone': 'Disabled',
};

/** `bpf`: whether the kernel has what is wanted. `policy`: whether it judges by the endpoint's policies. */
export function endpointHealth({ state, current, problem, acknowledged }: EndpointStatus): EndpointHealth {
  const health = HEALTH[state];
  const bpf = current && problem === undefined ? 'OK' : health;
  return { overallHealth: health, bpf, policy: health, connected: acknowledged !== undefined };
}

function endpointPolicy({ state, slot, policyRevision }: PolicySide): EndpointPolicy {
  const enforced = state?.enforced ?? NOWHERE;
  const of = (direction: Direction) => (enforced[direction] && slot?.of(direction)) || NOTHING;
  const [ingress, egress] = [of('ingress'), of('egress')];
  return {
    id: state?.identity ?? 0,
    build: state?.revision ?? 0,
    'policy-revision': policyRevision,
    'policy-enabled': policyEnabled(enforced),
    'allowed-ingress-identities': ingress.allowed,
    'allowed-egress-identities': egress.allowed,
    'denied-ingress-identities': ingress.denied,
    'denied-egress-identities': egress.denied,
    l4: { ingress: ingress.l4, egress: egress.l4 },
    policies: state?.policies ?? {},
  };
}

/** Listed identities with at least one row of the verdict. */
function identities(slot: SlotContent, direction: Direction, verdict: Verdict): readonly number[] {
  const rows = slot.rows[direction];
  const classes = new Set<number>();
  for (const [number, blocks] of rows) if (blocks.some((block) => block.verdict === verdict)) classes.add(number);
  const found: number[] = [];
  for (const [identity, number] of slot.elements[direction]) if (classes.has(number)) found.push(identity);
  return found.sort((a, b) => a - b);
}

/** Each with the rules that decide it. */
function l4(slot: SlotContent, direction: Direction, labelsOf: LabelsOf): readonly L4Rule[] {
  const rules = new Map<string, Set<number>>();
  for (const [number, blocks] of slot.rows[direction])
    for (const { from, to, protocol, cookie, ...decision } of number === ADDRESSES ? [] : rangesOf(blocks)) {
      const ports = from === to ? { port: from } : { port: from, 'end-port': to };
      const rule = JSON.stringify({
        ...(protocol === 0 ? numbersOf(from, to) : ports),
        protocol: PROTOCOLS[protocol],
        ...decision,
      });
      rules.set(rule, (rules.get(rule) ?? new Set()).add(cookie));
    }
  return [...rules.keys()].sort().map((rule) => {
    const cookies = [...(rules.get(rule) ?? [])].sort((a, b) => a - b);
    return { rule, 'derived-from-rules': cookies.flatMap((cookie) => [labelsOf(cookie) ?? []]).filter(isFilled) };
  });
}

function isFilled({ length }: readonly unknown[]): boolean {
  return length > 0;
}

/** Of protocols without ports. */
function numbersOf(from: number, to: number): object {
  if (from === 0 && to >= 0xff) return { port: 0 };
  return from === to ? { 'ip-protocol': from } : { 'ip-protocol': from, 'end-ip-protocol': to };
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
