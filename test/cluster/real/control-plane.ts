/**
 * etcd, API server, controller manager and scheduler in the control plane's network namespace, and the way in from this machine.
 * They are children of this process: the kernel ends them when it ends.
 */
import { mkdirSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { netnsPath } from '../fabric.ts';
import { Kept } from './kept.ts';
import { API_ADDRESS, API_PORT, POD_CIDRS, SERVICE_CIDRS } from './names.ts';
import type { Pki } from './pki.ts';

export type ControlPlaneProgram = 'etcd' | 'kube-apiserver' | 'kube-controller-manager' | 'kube-scheduler';

export interface ControlPlaneOptions {
  /** Folder of the programs. */
  readonly bin: string;
  readonly folder: string;
  readonly logDir: string;
  /** Name of the network namespace. */
  readonly netns: string;
  readonly pki: Pki;
  /** On 127.0.0.1 of this machine. */
  readonly port: number;
}

const flags = (values: Readonly<Record<string, string>>): string[] =>
  Object.entries(values).map(([name, value]) => `--${name}=${value}`);

export class ControlPlane {
  readonly #options: ControlPlaneOptions;
  readonly #kept = new Map<string, Kept>();

  constructor(options: ControlPlaneOptions) {
    this.#options = options;
    mkdirSync(options.folder, { recursive: true });
  }

  /** Starts everything and waits until the API server says that it is ready. */
  async start(): Promise<void> {
    const { pki, folder, port } = this.#options;
    const etcd = 'http://127.0.0.1:2379';
    this.#run('etcd', [
      ...flags({
        'data-dir': join(folder, 'etcd'),
        'log-level': 'warn',
        'listen-client-urls': etcd,
        'advertise-client-urls': etcd,
        'listen-peer-urls': 'http://127.0.0.1:2380',
      }),
      // The cluster does not outlive this process, so its data need not outlive a power cut.
      '--unsafe-no-fsync',
    ]);
    this.#run('kube-apiserver', this.#apiServerFlags(etcd));
    // A unix socket crosses network namespaces: one relay listens on it in there, one on the machine's loopback asks through it.
    const socket = join(folder, 'api.sock');
    this.#relay('relay-inside', `UNIX-LISTEN:${socket},fork,mode=600,unlink-early`, `TCP:${API_ADDRESS}:${API_PORT}`);
    this.#relay('relay', `TCP-LISTEN:${port},bind=127.0.0.1,reuseaddr,fork`, `UNIX-CONNECT:${socket}`, false);
    await this.#ready(180_000);
    const identity = (name: string) => ({
      'bind-address': '127.0.0.1',
      'leader-elect': 'false',
      kubeconfig: pki.file(`${name}.conf`),
      'authentication-kubeconfig': pki.file(`${name}.conf`),
      'authorization-kubeconfig': pki.file(`${name}.conf`),
    });
    this.#run(
      'kube-controller-manager',
      flags({
        ...identity('controller-manager'),
        'cluster-signing-cert-file': pki.file('ca.crt'),
        'cluster-signing-key-file': pki.file('ca.key'),
        'root-ca-file': pki.file('ca.crt'),
        'service-account-private-key-file': pki.file('sa.key'),
        'use-service-account-credentials': 'true',
        'allocate-node-cidrs': 'true',
        'cluster-cidr': POD_CIDRS.join(),
        'service-cluster-ip-range': SERVICE_CIDRS.join(),
      }),
    );
    this.#run('kube-scheduler', flags(identity('scheduler')));
  }

  #apiServerFlags(etcd: string): string[] {
    const file = (name: string) => this.#options.pki.file(name);
    return flags({
      'etcd-servers': etcd,
      'bind-address': '0.0.0.0',
      'secure-port': String(API_PORT),
      'advertise-address': API_ADDRESS,
      'tls-cert-file': file('apiserver.crt'),
      'tls-private-key-file': file('apiserver.key'),
      'client-ca-file': file('ca.crt'),
      'authorization-mode': 'Node,RBAC',
      'enable-admission-plugins': 'NodeRestriction',
      'allow-privileged': 'true',
      'service-cluster-ip-range': SERVICE_CIDRS.join(),
      'service-account-issuer': 'https://kubernetes.default.svc.cluster.local',
      'service-account-key-file': file('sa.pub'),
      'service-account-signing-key-file': file('sa.key'),
      'kubelet-client-certificate': file('kubelet-client.crt'),
      'kubelet-client-key': file('kubelet-client.key'),
      'kubelet-certificate-authority': file('ca.crt'),
      'kubelet-preferred-address-types': 'InternalIP',
      'requestheader-client-ca-file': file('front-ca.crt'),
      'requestheader-allowed-names': 'front-proxy-client',
      'requestheader-username-headers': 'X-Remote-User',
      'requestheader-group-headers': 'X-Remote-Group',
      'requestheader-extra-headers-prefix': 'X-Remote-Extra-',
      'proxy-client-cert-file': file('front-proxy-client.crt'),
      'proxy-client-key-file': file('front-proxy-client.key'),
      // Webhooks and aggregated APIs are called at their pods' addresses: nothing translates Services in this namespace.
      'enable-aggregator-routing': 'true',
      profiling: 'false',
    });
  }

  #run(name: ControlPlaneProgram, args: readonly string[]): void {
    const { bin, logDir, netns } = this.#options;
    const logFile = join(logDir, `${name}.log`);
    this.#kept.set(name, new Kept({ name, netns: netnsPath(netns), command: join(bin, name), args, logFile }));
  }

  #relay(name: string, from: string, to: string, inside = true): void {
    const { logDir, netns } = this.#options;
    this.#kept.set(
      name,
      new Kept({
        name,
        ...(inside ? { netns: netnsPath(netns) } : {}),
        command: 'socat',
        args: [from, to],
        logFile: join(logDir, `${name}.log`),
      }),
    );
  }

  async #ready(timeoutMs: number): Promise<void> {
    const end = Date.now() + timeoutMs;
    let answer = '';
    while (Date.now() < end) {
      for (const [name, kept] of this.#kept)
        if (kept.restarts > 2) throw new Error(`${name} does not stay up: ${kept.program.tail}`);
      answer = await this.#get('/readyz').catch((error: unknown) => String(error));
      if (answer === 'ok') return;
      await sleep(100);
    }
    const tail = this.#kept.get('kube-apiserver')?.program.tail;
    throw new Error(`the API server was not ready within ${timeoutMs} ms (${answer}): ${tail}`);
  }

  #get(path: string): Promise<string> {
    const { pki, port } = this.#options;
    const [ca, cert, key] = [pki.read('ca.crt'), pki.read('admin.crt'), pki.read('admin.key')];
    return new Promise((resolve, reject) => {
      const req = request({ host: '127.0.0.1', port, path, ca, cert, key, agent: false, timeout: 5000 }, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () => resolve(text)).on('error', reject);
      });
      req.on('timeout', () => req.destroy(new Error(`${path}: no answer within 5 s`)));
      req.on('error', reject);
      req.end();
    });
  }

  /** Ends one program by SIGKILL; it is started again after a second. */
  async kill(name: ControlPlaneProgram): Promise<void> {
    await this.#kept.get(name)?.program.kill9();
  }

  get pids(): readonly number[] {
    return [...this.#kept.values()].flatMap(({ program }) => (program.pid === undefined ? [] : [program.pid]));
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#kept.values()].map((kept) => kept.stop()));
  }
}
