/** Pods of a real cluster whose program can be asked: made by kubelet from the pod image, reached through a unix socket on their node. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Kubectl } from '../kubectl.ts';
import { PodSocket } from '../pod/socket.ts';
import { containerPorts, type Host, hostOf, type PodSpec } from '../types.ts';
import { nodeName } from './names.ts';
import { POD_SOCKETS } from './node-files.ts';

/** The image of `test/cluster/pod/main.ts`. */
export const POD_IMAGE = 'localhost/weir-pod:1';

/** A container whose program `host()` can ask, for pods that are not made by `createPods` (Deployments and the like). */
export const askableContainer = (ports: { readonly tcp?: readonly number[]; readonly udp?: readonly number[] }) => ({
  name: 'main',
  image: POD_IMAGE,
  imagePullPolicy: 'IfNotPresent',
  env: [
    { name: 'POD_UID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } },
    { name: 'WEIR_POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
    { name: 'WEIR_POD_SOCKET', value: '/control/$(POD_UID).sock' },
    { name: 'WEIR_POD_TCP', value: (ports.tcp ?? []).join(',') },
    { name: 'WEIR_POD_UDP', value: (ports.udp ?? []).join(',') },
  ],
  volumeMounts: [{ name: 'control', mountPath: '/control' }],
});

/** The volume that such a container mounts. */
export const askableVolume = { name: 'control', hostPath: { path: POD_SOCKETS, type: 'DirectoryOrCreate' } };

const podObject = (spec: PodSpec): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: spec.name, namespace: spec.namespace ?? 'default', labels: spec.labels ?? {} },
  spec: {
    nodeSelector: { 'kubernetes.io/hostname': nodeName(spec.node) },
    terminationGracePeriodSeconds: 1,
    containers: [{ ...askableContainer(spec), ports: containerPorts(spec) }],
    volumes: [askableVolume],
  },
});

interface PodObject {
  readonly metadata: { readonly uid: string };
  readonly spec: { readonly nodeName?: string };
  readonly status: {
    readonly podIP?: string;
    readonly podIPs?: readonly { readonly ip: string }[];
    readonly phase?: string;
  };
}

interface Running {
  readonly host: Host;
  readonly socket: PodSocket;
}

export class Pods {
  readonly #kubectl: Kubectl;
  readonly #folder: string;
  readonly #running = new Map<string, Running>();
  readonly #opening = new Map<string, Promise<Host>>();

  /** @param folder the cluster's: nodes' disks are in it. */
  constructor(kubectl: Kubectl, folder: string) {
    this.#kubectl = kubectl;
    this.#folder = folder;
  }

  /** Creates pods and waits until they are Ready and their programs answer. */
  async create(specs: readonly PodSpec[], seconds = 90): Promise<void> {
    // The API server refuses pods of a namespace that has no service account yet.
    for (const namespace of new Set(specs.map((spec) => spec.namespace ?? 'default')))
      await this.#kubectl.run(['wait', '--for=create', 'serviceaccount/default', '-n', namespace, '--timeout=30s']);
    await this.#kubectl.applyObjects(specs.map(podObject));
    await this.#kubectl.podsReady(specs, seconds);
    await Promise.all(specs.map((spec) => this.host(`${spec.namespace ?? 'default'}/${spec.name}`)));
  }

  async delete(name: string, namespace = 'default'): Promise<void> {
    await this.#kubectl.deletePod(name, namespace);
    await this.#forget(`${namespace}/${name}`);
  }

  async #forget(key: string): Promise<void> {
    await this.#running.get(key)?.socket.stop();
    this.#running.delete(key);
  }

  /** @param name `pod` of namespace default, or `namespace/pod`. */
  async host(name: string): Promise<Host> {
    const key = name.includes('/') ? name : `default/${name}`;
    const found = this.#running.get(key);
    if (found?.socket.open === true) return found.host;
    const opening = this.#opening.get(key) ?? this.#open(name, key).finally(() => this.#opening.delete(key));
    this.#opening.set(key, opening);
    return opening;
  }

  async #open(name: string, key: string): Promise<Host> {
    const [namespace = '', pod = ''] = key.split('/');
    const end = Date.now() + 60_000;
    for (;;) {
      const text = await this.#kubectl.run(['get', 'pod', pod, '-n', namespace, '-o', 'json']);
      const { metadata, spec, status } = JSON.parse(text) as PodObject;
      if (spec.nodeName === undefined || status.podIP === undefined)
        throw new Error(`pod ${key} does not run (${status.phase ?? 'no phase'}): nothing can be asked of it`);
      const path = join(this.#folder, spec.nodeName, POD_SOCKETS, `${metadata.uid}.sock`);
      // A container that Kubernetes calls Ready has started; its program listens a moment later. And after a node's reboot Kubernetes
      // tells the pod's old address for a moment.
      const found = await this.#ask(key, path, status.podIP);
      if (typeof found !== 'string') {
        const addresses = (status.podIPs ?? []).map(({ ip }) => ip);
        const host = hostOf(name, addresses, found);
        this.#running.set(key, { host, socket: found });
        return host;
      }
      if (Date.now() > end) throw new Error(found);
      await sleep(50);
    }
  }

  /** A connection to the program that has this address, or why there is none. */
  async #ask(key: string, path: string, address: string): Promise<PodSocket | string> {
    if (!existsSync(path))
      return `pod ${key} has no socket (${path}): it must run ${POD_IMAGE} with the environment of askableContainer`;
    try {
      const socket = await PodSocket.open(key, path);
      const own = await socket.addresses();
      if (own.includes(address)) return socket;
      await socket.stop();
      return `pod ${key} has the address ${own.join(', ') || 'none'}, and Kubernetes says ${address}`;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#running.values()].map(({ socket }) => socket.stop()));
    this.#running.clear();
  }
}
