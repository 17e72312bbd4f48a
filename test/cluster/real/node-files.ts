/** The folders that become a node's disk (/etc, /var, /opt, /tmp, /pki), and what is in them before its first boot. */
import { randomBytes } from 'node:crypto';
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { nodeAddress, nodeAddress6, nodeName, OUTSIDE_GATEWAY, POD_CIDRS } from './names.ts';
import type { Pki } from './pki.ts';

/** Where pods' programs have their control sockets, as the node sees it (pods.ts). */
export const POD_SOCKETS = '/var/weir-pods';
/** A node's folder of static pods: kubelet runs what is in it, without the API server. */
export const STATIC_PODS = '/etc/kubernetes/manifests';
export type ProxyMode = 'iptables' | 'nftables';

/** Written on a node's /etc from the machine's, where it has them: names of users, the dynamic linker's cache. */
const MACHINE_FILES = [
  ...['passwd', 'group', 'nsswitch.conf', 'ld.so.cache', 'ld.so.conf', 'ld.so.conf.d'],
  ...['alternatives', 'services', 'protocols'],
];

export interface NodeFilesOptions {
  readonly folder: string;
  readonly number: number;
  readonly pki: Pki;
  readonly proxy: ProxyMode | undefined;
}

export function writeNodeFiles({ folder, number, pki, proxy }: NodeFilesOptions): void {
  const name = nodeName(number);
  const address = nodeAddress(number);
  const at = (path: string) => join(folder, path);
  const folders = [
    ...['etc/cni/net.d', 'opt/cni/bin', 'tmp', 'pki', 'var/log', 'var/tmp', 'var/cache'],
    ...['var/lib/kubelet', 'var/lib/containerd', 'var/lib/cni', POD_SOCKETS.slice(1), STATIC_PODS.slice(1)],
  ];
  for (const path of folders) mkdirSync(at(path), { recursive: true });
  for (const path of ['tmp', 'var/tmp', POD_SOCKETS.slice(1)]) chmodSync(at(path), 0o1777);
  symlinkSync('/run', at('var/run'));
  for (const file of MACHINE_FILES) {
    const from = join('/etc', file);
    if (existsSync(from)) cpSync(from, at(`etc/${file}`), { recursive: true, verbatimSymlinks: true });
  }
  // Every distribution's container runtime brings it: a sandbox's loopback is not the network plugin's.
  copyFileSync('/usr/lib/cni/loopback', at('opt/cni/bin/loopback'));
  chmodSync(at('opt/cni/bin/loopback'), 0o755);
  for (const [file, as] of [
    ['ca.crt', 'ca.crt'],
    [`${name}.crt`, 'kubelet.crt'],
    [`${name}.key`, 'kubelet.key'],
    [`${name}.conf`, 'kubelet.conf'],
    ['kube-proxy.conf', 'kube-proxy.conf'],
  ] as const)
    copyFileSync(pki.file(file), at(`pki/${as}`));
  const text: Readonly<Record<string, string>> = {
    hostname: name,
    'machine-id': randomBytes(16).toString('hex'),
    'node-ip': `${address},${nodeAddress6(number)}`,
    hosts: `127.0.0.1 localhost\n${address} ${name}`,
    // Answers nothing: the machine's own resolver is out of a node's reach.
    'resolv.conf': `nameserver ${OUTSIDE_GATEWAY}`,
    'containerd.toml': containerd,
    'kubelet.json': JSON.stringify(kubelet(address), undefined, 1),
    'kube-proxy.json': JSON.stringify(kubeProxy(proxy ?? 'iptables'), undefined, 1),
  };
  for (const [file, content] of Object.entries(text)) writeFileSync(at(`etc/${file}`), `${content}\n`);
}

const containerd = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
# A root that lacks CAP_SYS_RESOURCE cannot give a container a lower OOM score than containerd has.
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"
`;

const kubelet = (address: string) => ({
  apiVersion: 'kubelet.config.k8s.io/v1beta1',
  kind: 'KubeletConfiguration',
  address,
  containerRuntimeEndpoint: 'unix:///run/containerd/containerd.sock',
  tlsCertFile: '/pki/kubelet.crt',
  tlsPrivateKeyFile: '/pki/kubelet.key',
  authentication: {
    anonymous: { enabled: false },
    webhook: { enabled: true },
    x509: { clientCAFile: '/pki/ca.crt' },
  },
  authorization: { mode: 'Webhook' },
  clusterDomain: 'cluster.local',
  clusterDNS: ['10.96.0.10'],
  resolvConf: '/etc/resolv.conf',
  volumePluginDir: '/var/lib/kubelet/volume-plugins',
  staticPodPath: STATIC_PODS,
  cgroupDriver: 'cgroupfs',
  failCgroupV1: false,
  failSwapOn: false,
  // A node says soon that its network plugin is there.
  nodeStatusUpdateFrequency: '2s',
  // The nodes share the machine's disk and memory, and an image that is thrown away cannot be fetched again.
  evictionHard: {
    'memory.available': '50Mi',
    'nodefs.available': '1%',
    'nodefs.inodesFree': '1%',
    'imagefs.available': '1%',
  },
  imageGCHighThresholdPercent: 100,
  imageGCLowThresholdPercent: 99,
});

const kubeProxy = (mode: ProxyMode) => ({
  apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
  kind: 'KubeProxyConfiguration',
  mode,
  clusterCIDR: POD_CIDRS.join(),
  clientConnection: { kubeconfig: '/pki/kube-proxy.conf' },
  // These are the whole machine's settings, and cannot be written from a node's network namespace.
  conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
});
