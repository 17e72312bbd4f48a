/**
 * What a story or a matrix may ask of a cluster, whichever it is: the embedded one (`Cluster`: an API server in this process, nodes as
 * network namespaces) or a real Kubernetes (`RealCluster`). Scenarios written against these types run on both.
 */
import { isIP } from 'node:net';
import { type Family, familyOf } from '@weir/net';
import type { PodControl } from './pod/conversation.ts';
import type { ProbeProtocol, ProbeResult } from './pod/protocol.ts';
import type { Output } from './run.ts';

/** A port of a pod: `80/tcp`. */
export type PortText = `${number}/${'tcp' | 'udp'}`;

export interface PodSpec {
  readonly name: string;
  readonly namespace?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** Node number, from 1. */
  readonly node: number;
  readonly tcp?: readonly number[];
  readonly udp?: readonly number[];
  /** Names of ports, each of which is among `tcp` or `udp`: `{ web: '80/tcp' }`. */
  readonly portNames?: Readonly<Record<string, PortText>>;
}

export interface ProbeOptions {
  readonly port?: number;
  readonly protocol?: ProbeProtocol;
  /** Silence this long is a drop. Default 400 ms. */
  readonly timeoutMs?: number;
  readonly sourcePort?: number;
  /** Of the address of `to`, where that is a host's name. Default: of its first. */
  readonly family?: Family;
}

/** Somebody that can probe: a running pod, the outside host, or a node itself. */
export interface Host {
  readonly name: string;
  /** The first of `addresses`. */
  readonly address: string;
  readonly addresses: readonly string[];
  readonly process: PodControl;
}

export function hostOf(name: string, addresses: readonly string[], process: PodControl): Host {
  return { name, address: addresses[0] ?? '', addresses, process };
}

export interface TestNode {
  readonly name: string;
  /** Its InternalIP, the first of several. */
  readonly address: string;
  /** The agent's unix socket, as this machine sees it. */
  readonly socket: string;
  /** Runs `weir` against this node's agent, whatever its exit code. */
  weir(args: readonly string[], stdin?: string): Promise<Output>;
  /** One request over the agent's socket. */
  call(method: string, path: string, body?: unknown): Promise<{ readonly status: number; readonly body: unknown }>;
}

export interface TestCluster {
  /** The cluster's name in identity labels. */
  readonly name: string;
  /** For kubectl on this machine. */
  readonly kubeconfig: string;
  /** Files of this cluster; gone after `stop()`. */
  readonly folder: string;
  readonly logDir: string;
  readonly nodes: readonly TestNode[];
  /** By number, from 1. */
  node(number: number): TestNode;
  /** The real kubectl, whatever its exit code. */
  tryKubectl(args: readonly string[], stdin?: string): Promise<Output>;
  /** The real kubectl; another exit code than 0 throws. Returns its standard output. */
  kubectl(args: readonly string[], stdin?: string): Promise<string>;
  /** `kubectl apply -f -` of YAML or JSON text. */
  apply(text: string): Promise<string>;
  applyObjects(objects: readonly object[]): Promise<string>;
  /** `kubectl wait --for=condition=Programmed`. */
  programmed(...policies: readonly string[]): Promise<void>;
  /** Creates pods and waits until they run and serve. */
  createPods(specs: readonly PodSpec[]): Promise<void>;
  deletePod(name: string, namespace?: string): Promise<void>;
  /** A probing host by name: `app1`, `ns/app1`, `outside`, `node-1`. */
  host(name: string): Promise<Host>;
  /** Whether `from` gets an answer of `to` (a host's name or an address). Default TCP 80. */
  probe(from: string, to: string, options?: ProbeOptions): Promise<ProbeResult>;
  /** Ends everything. Throws when something remained. */
  stop(): Promise<void>;
}

/** Addresses beyond the cluster, unless told otherwise (spec section 11), and the ports that they answer on. */
export const OUTSIDE = ['203.0.113.9', '10.1.2.3', '10.2.0.1'] as const;
/** The same of IPv6. */
export const OUTSIDE6 = ['2001:db8::9'] as const;
export const OUTSIDE_PORTS = [80] as const;

/** `probe` of a cluster, in terms of its hosts. */
export async function probeBetween(
  cluster: Pick<TestCluster, 'host'>,
  from: string,
  to: string,
  options: ProbeOptions = {},
): Promise<ProbeResult> {
  const source = await cluster.host(from);
  const address = isIP(to) !== 0 ? to : addressOf(await cluster.host(to), options.family);
  return source.process.probe({
    protocol: options.protocol ?? 'tcp',
    address,
    port: options.port ?? 80,
    timeoutMs: options.timeoutMs ?? 400,
    // The outside host has several addresses, and asks as the first.
    ...(from === 'outside' ? { sourceAddress: addressOf(source, familyOf(address)) } : {}),
    ...(options.sourcePort === undefined ? {} : { sourcePort: options.sourcePort }),
  });
}

function addressOf({ name, address, addresses }: Host, family: Family | undefined): string {
  if (family === undefined) return address;
  const found = addresses.find((each) => familyOf(each) === family);
  if (found === undefined) throw new Error(`${name} has no IPv${family} address but ${addresses.join(', ')}`);
  return found;
}

/** The container ports of a pod, in the words of the Kubernetes API. */
export function containerPorts(spec: PodSpec): readonly object[] {
  const named = new Map(Object.entries(spec.portNames ?? {}).map(([name, port]) => [port as string, name]));
  const all = [
    ...(spec.tcp ?? []).map((port) => ({ port, protocol: 'TCP' })),
    ...(spec.udp ?? []).map((port) => ({ port, protocol: 'UDP' })),
  ];
  const known = all.map(({ port, protocol }) => `${port}/${protocol.toLowerCase()}`);
  for (const port of named.keys())
    if (!known.includes(port))
      throw new Error(`pod ${spec.name}: portNames names ${port}, which is not among ${known.join(', ')}`);
  return all.map(({ port, protocol }) => {
    const name = named.get(`${port}/${protocol.toLowerCase()}`);
    return { containerPort: port, protocol, ...(name === undefined ? {} : { name }) };
  });
}
