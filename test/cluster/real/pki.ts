/** Certificates and kubeconfigs of one cluster: files `<name>.crt`, `<name>.key`, `<name>.conf` in a folder of its own. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../run.ts';
import { API_ADDRESS, API_PORT, API_SERVICE } from './names.ts';

/** The API server as the cluster's own programs reach it. */
const INSIDE = `https://${API_ADDRESS}:${API_PORT}`;

export class Pki {
  readonly #folder: string;
  readonly #config: string;

  constructor(folder: string) {
    this.#folder = folder;
    this.#config = join(folder, 'openssl.cnf');
  }

  file(name: string): string {
    return join(this.#folder, name);
  }

  read(name: string): string {
    return readFileSync(this.file(name), 'utf8');
  }

  /** Everything that the control plane needs. @param machine URL of the API server on this machine. */
  async create(machine: string): Promise<void> {
    mkdirSync(this.#folder, { mode: 0o700 });
    writeFileSync(this.#config, '[req]\ndistinguished_name = name\n[name]\n');
    await Promise.all([this.#authority('ca'), this.#authority('front-ca'), this.#serviceAccountKey()]);
    const local = 'DNS:localhost,IP:127.0.0.1';
    const service = ['kubernetes', 'kubernetes.default', 'kubernetes.default.svc'];
    const api = [...service, 'kubernetes.default.svc.cluster.local'].map((name) => `DNS:${name}`).join(',');
    await Promise.all([
      this.certificate('front-proxy-client', '/CN=front-proxy-client', undefined, 'front-ca'),
      this.certificate('apiserver', '/CN=kube-apiserver', `${api},${local},IP:${API_ADDRESS},IP:${API_SERVICE}`),
      this.certificate('kubelet-client', '/O=system:masters/CN=kube-apiserver-kubelet-client'),
      this.certificate('admin', '/O=system:masters/CN=admin'),
      this.certificate('controller-manager', '/CN=system:kube-controller-manager', local),
      this.certificate('scheduler', '/CN=system:kube-scheduler', local),
      this.certificate('kube-proxy', '/CN=system:kube-proxy'),
    ]);
    this.kubeconfig('admin', machine);
    for (const name of ['controller-manager', 'scheduler', 'kube-proxy']) this.kubeconfig(name, INSIDE);
  }

  /** Certificate and kubeconfig of a kubelet. */
  async node(name: string, address: string): Promise<void> {
    await this.certificate(name, `/O=system:nodes/CN=system:node:${name}`, `DNS:${name},IP:${address}`);
    this.kubeconfig(name, INSIDE);
  }

  /** A key, and its certificate signed by an authority. @param names subject alternative names, as openssl writes them. */
  async certificate(name: string, subject: string, names?: string, authority = 'ca'): Promise<void> {
    const extensions = ['basicConstraints=critical,CA:false', 'extendedKeyUsage=clientAuth,serverAuth'];
    if (names !== undefined) extensions.push(`subjectAltName=${names}`);
    await this.#request(name, subject, extensions, [
      ...['-CA', this.file(`${authority}.crt`), '-CAkey', this.file(`${authority}.key`)],
    ]);
  }

  async #authority(name: string): Promise<void> {
    await this.#request(name, `/CN=${name}`, [
      'basicConstraints=critical,CA:true',
      'keyUsage=critical,keyCertSign,digitalSignature',
    ]);
  }

  async #request(name: string, subject: string, extensions: readonly string[], signer: readonly string[] = []) {
    await run('openssl', [
      ...['req', '-x509', '-config', this.#config, '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'],
      ...['-days', '3650', '-subj', subject, '-keyout', this.file(`${name}.key`), '-out', this.file(`${name}.crt`)],
      ...extensions.flatMap((extension) => ['-addext', extension]),
      ...signer,
    ]);
  }

  async #serviceAccountKey(): Promise<void> {
    const [key, pub] = [this.file('sa.key'), this.file('sa.pub')];
    await run('openssl', ['genpkey', '-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:P-256', '-out', key]);
    await run('openssl', ['pkey', '-in', key, '-pubout', '-out', pub]);
  }

  /** One file with everything in it. */
  kubeconfig(name: string, server: string): string {
    const data = (file: string) => readFileSync(this.file(file)).toString('base64');
    const path = this.file(`${name}.conf`);
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'real', cluster: { server, 'certificate-authority-data': data('ca.crt') } }],
      users: [
        {
          name,
          user: {
            'client-certificate-data': data(`${name}.crt`),
            'client-key-data': data(`${name}.key`),
          },
        },
      ],
      contexts: [{ name: 'real', context: { cluster: 'real', user: name } }],
      'current-context': 'real',
    };
    writeFileSync(path, JSON.stringify(config, undefined, 1), { mode: 0o600 });
    return path;
  }
}
