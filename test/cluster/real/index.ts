/**
 * A real Kubernetes on this machine: upstream etcd, API server, controller manager, scheduler, kubelets with containerd and runc, several
 * nodes. No registry and no way out of the machine. It is for installing the chart and seeing what real pods get.
 *
 * Guarantees:
 * - Several clusters run side by side. Everything that one makes is named `wr<id>` or lies in the folder `wr<id>` under the temporary
 *   folder.
 * - `stop()` removes all of it, and throws when something remained. SIGINT and SIGTERM do the same before this process ends. When this
 *   process is killed, the kernel ends the cluster's processes, and the next `RealCluster.start()` removes the rest.
 * - It is a `TestCluster`: stories and matrices that run on the embedded cluster run on it.
 *
 * Limits: root, Linux with cgroup v1 hierarchies, IPv4, no cluster DNS, no storage classes. All nodes share one kernel, and each reports
 * the whole machine's CPUs and memory. Programs are built from Go modules the first time (assets.ts).
 */
export { AssetError, assets, assetsFolder, findGo } from './assets.ts';
export { RealCluster, type RealClusterOptions } from './cluster.ts';
export type { ControlPlaneProgram } from './control-plane.ts';
export { type ChartValues, HelmError, type HelmOptions } from './helm.ts';
export { type ImageSpec, writeImages } from './images.ts';
export { remains, sweep } from './leftovers.ts';
export type { EnterOptions, NodeProgram, RealNode } from './node.ts';
export { STATIC_PODS } from './node-files.ts';
export { askableContainer, askableVolume, POD_IMAGE } from './pods.ts';
export { weirImages } from './weir-images.ts';
