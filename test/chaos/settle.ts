/**
 * When all is calm: nothing is broken, and the system itself says, of everything that was asked for, that it is done. From then on
 * only what is wanted counts, and each packet has one right fate.
 */

import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { endpointValue, ipcacheKey, ipcacheValue } from '@weir/bpf';
import { parseAddress } from '@weir/net';
import { openPinnedMap } from 'libbpf-ts';
import { now } from './clock.ts';
import type { Stage } from './stage.ts';
import { keyOf, NAMESPACE_LABELS } from './world/policy.ts';
import type { PodModel } from './world/world.ts';

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly observedGeneration?: number;
  readonly message?: string;
}
interface Item {
  readonly metadata: { readonly name: string; readonly uid: string; readonly generation?: number };
  readonly status?: {
    readonly conditions?: readonly Condition[];
    readonly counts?: { readonly policies: number };
    readonly phase?: string;
  };
  readonly spec?: { readonly source?: { readonly uid?: string } };
  readonly 'security-labels'?: Readonly<Record<string, string>>;
}
interface EndpointAnswer {
  readonly status: {
    readonly state: string;
    readonly 'external-identifiers': { readonly 'pod-name'?: string; readonly 'k8s-pod-name'?: string };
    readonly identity: { readonly labels: readonly string[] };
  };
}

const KINDS = {
  ciliumnetworkpolicies: ['cilium.io', 'v2'],
  ciliumclusterwidenetworkpolicies: ['cilium.io', 'v2'],
  ciliumidentities: ['cilium.io', 'v2'],
  resolvedpolicies: ['weir.dev', 'v1alpha1'],
  nodepolicystatuses: ['weir.dev', 'v1alpha1'],
  pods: ['', 'v1'],
} as const;

const IMPORTED_APP = 'nobody';
/** Of no pod: what is kept of it is what counts. */
const IMPORTED = [{ endpointSelector: { matchLabels: { app: IMPORTED_APP } }, ingress: [{}] }];

async function list(stage: Stage, plural: keyof typeof KINDS): Promise<readonly Item[]> {
  const [group, version] = KINDS[plural];
  const { items } = await stage.cluster.api.client.list({ group, version, plural });
  return items as unknown as readonly Item[];
}

/** Waits until nothing is left to do, at most `seconds`. Returns what is left. */
export async function settle(stage: Stage, seconds: number): Promise<readonly string[]> {
  const end = now() + seconds * 1000;
  for (;;) {
    stage.check();
    const left = await unsettled(stage).catch((error: unknown) => [String(error)]);
    if (left.length === 0 && now() >= stage.faults.hidden) {
      stage.calm(now());
      return [];
    }
    if (now() > end) return left;
    await sleep(100);
  }
}

async function unsettled(stage: Stage): Promise<readonly string[]> {
  const ended = stage.faults.ended();
  if (ended.length > 0) return ended;
  const left = [...(await imported(stage))];
  if (left.length > 0) return left;
  left.push(...(await policies(stage)));
  if (left.length > 0) return left;
  left.push(...(await pods(stage)));
  if (left.length > 0) return left;
  const identities = new Map((await list(stage, 'ciliumidentities')).map((item) => [item.metadata.name, item]));
  for (const node of stage.cluster.nodes) {
    if (!(await node.healthy())) left.push(`the agent of ${node.name} is not healthy`);
    else left.push(...(await endpoints(stage, node)), ...addresses(stage, node, identities), ...quarantines(node));
  }
  return left;
}

/** Every node has a rule that was imported there. One that does not know any more which it had is told again, as a person would. */
async function imported(stage: Stage): Promise<readonly string[]> {
  const left: string[] = [];
  for (const node of stage.cluster.nodes) {
    const known = await node.call('GET', '/v1/policy');
    if (known.status === 200 && JSON.stringify(known.body).includes(IMPORTED_APP)) continue;
    const { status } = await node.call('PUT', '/v1/policy', IMPORTED);
    left.push(`${node.name} did not know the imported rules, and answered ${status}`);
  }
  return left;
}

async function policies(stage: Stage): Promise<readonly string[]> {
  const left: string[] = [];
  const [named, clusterwide, resolved, reports] = await Promise.all([
    list(stage, 'ciliumnetworkpolicies'),
    list(stage, 'ciliumclusterwidenetworkpolicies'),
    list(stage, 'resolvedpolicies'),
    list(stage, 'nodepolicystatuses'),
  ]);
  const wanted = new Set(stage.world.wanted().map(({ uid }) => uid));
  for (const policy of stage.world.wanted()) {
    const item = [...named, ...clusterwide].find(({ metadata }) => metadata.uid === policy.uid);
    const programmed = item?.status?.conditions?.find(({ type }) => type === 'Programmed');
    if (programmed?.status !== 'True' || programmed.observedGeneration !== item?.metadata.generation)
      left.push(
        `policy ${keyOf(policy)} is not programmed: ${programmed?.message ?? 'it has no status'} (generation ${programmed?.observedGeneration} of ${item?.metadata.generation})`,
      );
  }
  for (const { metadata, spec } of resolved)
    if (!wanted.has(spec?.source?.uid)) left.push(`ResolvedPolicy ${metadata.name} is left of a deleted policy`);
  for (const { metadata, status } of reports)
    if (status?.counts?.policies !== resolved.length + IMPORTED.length)
      left.push(
        `${metadata.name} has read ${status?.counts?.policies} policies, not ${resolved.length + IMPORTED.length}`,
      );
  return left;
}

async function pods(stage: Stage): Promise<readonly string[]> {
  const items = await list(stage, 'pods');
  const wanted = stage.world.pods();
  return [
    ...wanted
      .filter(({ name }) => items.find(({ metadata }) => metadata.name === name)?.status?.phase !== 'Running')
      .map(({ name }) => `pod ${name} does not run`),
    ...items
      .filter(({ metadata }) => !wanted.some(({ name }) => name === metadata.name))
      .map(({ metadata }) => `pod ${metadata.name} is being deleted`),
  ];
}

/** What differs between a pod's labels and those of an identity; undefined: nothing. */
function differs(stage: Stage, pod: PodModel, labels: Readonly<Record<string, string>>): string | undefined {
  const wanted = stage.world.identityLabels(pod);
  const asked = new Set([...Object.keys(wanted), `${NAMESPACE_LABELS}team`]);
  for (const key of asked) {
    const known = labels[key.startsWith('k8s:') ? key : `k8s:${key}`];
    if (known !== wanted[key]) return `${key} is ${known ?? 'absent'}, not ${wanted[key] ?? 'absent'}`;
  }
  return undefined;
}

/** As whom a node's own pods are enforced. */
async function endpoints(stage: Stage, node: Stage['cluster']['nodes'][number]): Promise<readonly string[]> {
  const { status, body } = await node.call('GET', '/v1/endpoint');
  if (status !== 200) return [`${node.name} answers ${status} to GET /v1/endpoint`];
  const answers = body as readonly EndpointAnswer[];
  return stage.world.pods().flatMap((pod) => {
    if (stage.node(pod.node) !== node) return [];
    const found = answers.find(({ status: { 'external-identifiers': names } }) =>
      [names['pod-name'], names['k8s-pod-name']].some(
        (name) => name === `${pod.namespace}/${pod.name}` || name === pod.name,
      ),
    );
    if (found === undefined) return [`${node.name} has no endpoint of pod ${pod.name}`];
    const labels = Object.fromEntries(
      found.status.identity.labels.map((text) => [text.slice(0, text.indexOf('=')), text.slice(text.indexOf('=') + 1)]),
    );
    const difference = differs(stage, pod, labels);
    if (found.status.state !== 'ready') return [`endpoint of pod ${pod.name} is ${found.status.state}`];
    return difference === undefined ? [] : [`endpoint of pod ${pod.name}: ${difference}`];
  });
}

/** Pods of a node whose UDP answers are dropped for some seconds, as their programs were gone. */
function quarantines({ name, bpfRoot }: Stage['cluster']['nodes'][number]): readonly string[] {
  using endpoints = openPinnedMap(join(bpfRoot, 'endpoint_array'));
  const inQuarantine = Array.from(endpoints.entries(), ([, value]) => endpointValue.decode(value)).filter(
    ({ id, quarantine }) => id !== 0 && quarantine === true,
  );
  return inQuarantine.map(({ id }) => `endpoint ${id} of ${name} is in quarantine`);
}

/** As whom a node's kernel judges each pod's address. */
function addresses(
  stage: Stage,
  node: Stage['cluster']['nodes'][number],
  identities: ReadonlyMap<string, Item>,
): readonly string[] {
  using ipcache = openPinnedMap(join(node.bpfRoot, 'ipcache'));
  return stage.world.pods().flatMap((pod) =>
    [pod.address, pod.address6].flatMap((text) => {
      const address = text === undefined ? undefined : parseAddress(text).bytes;
      if (address === undefined) return [];
      const value = ipcache.lookup(ipcacheKey.encode({ address, bits: address.length * 8 }));
      const identity = value === undefined ? 0 : ipcacheValue.decode(value).identity;
      const labels = identities.get(String(identity))?.['security-labels'];
      const difference = labels === undefined ? `identity ${identity} has no labels` : differs(stage, pod, labels);
      return difference === undefined ? [] : [`${node.name} judges ${pod.name} (${text}) by old labels: ${difference}`];
    }),
  );
}
