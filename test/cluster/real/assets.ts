/**
 * The programs of a Kubernetes cluster: built from Go modules whose versions and hashes gomod/ holds, and Debian's container tools.
 * Built once a machine, outside the checkout: WEIR_ASSETS, or ~/.cache/weir-assets. A program appears there complete or not at all, so
 * any number of runs may start at once.
 */
import {
  accessSync,
  constants,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { attempt, ROOT, run, TOOL_PATH } from '../run.ts';

const MODULES = join(ROOT, 'test/cluster/real/gomod');
/** What go.mod of coredns asks for. */
const GO = { major: 1, minor: 25 };
const BUILD_LIMIT_MS = 45 * 60_000;

const ROOTS = {
  etcd: 'go.etcd.io/etcd/server/v3',
  kube: 'k8s.io/kubernetes',
  coredns: 'github.com/coredns/coredns',
} as const;
type Module = keyof typeof ROOTS;

interface Built {
  readonly name: string;
  /** Folder of gomod/. */
  readonly module: Module;
  readonly package: string;
}

const kubernetes = (name: string): Built => ({ name, module: 'kube', package: `${ROOTS.kube}/cmd/${name}` });
const PROGRAMS: readonly Built[] = [
  { name: 'etcd', module: 'etcd', package: ROOTS.etcd },
  kubernetes('kube-apiserver'),
  kubernetes('kube-controller-manager'),
  kubernetes('kube-scheduler'),
  kubernetes('kubelet'),
  kubernetes('kube-proxy'),
  { name: 'coredns', module: 'coredns', package: '.' },
];

/** Debian packages, each with a file that shows it is there. */
const PACKAGES: readonly (readonly [name: string, file: string])[] = [
  ['containerd', '/usr/bin/containerd'],
  ['runc', '/usr/sbin/runc'],
  ['containernetworking-plugins', '/usr/lib/cni/host-local'],
  ['busybox-static', '/usr/share/doc/busybox-static'],
  ['socat', '/usr/bin/socat'],
  ['iproute2', '/usr/sbin/ip'],
  ['iptables', '/usr/sbin/iptables'],
  ['conntrack', '/usr/sbin/conntrack'],
  ['openssl', '/usr/bin/openssl'],
  ['procps', '/usr/bin/pgrep'],
  ['musl-tools', '/usr/bin/musl-gcc'],
  ['gcc', '/usr/bin/gcc'],
  ['libc6-dev', '/usr/include/netdb.h'],
];

/** Something that a real cluster needs is not on this machine. */
export class AssetError extends Error {
  constructor(problem: string, fix: string) {
    super(`a real cluster cannot start: ${problem}\n  fix: ${fix}`);
    this.name = 'AssetError';
  }
}

export const assetsFolder = (): string => process.env.WEIR_ASSETS ?? join(homedir(), '.cache/weir-assets');

/** The version that a module is pinned to: `v1.34.4`. */
function pinned(module: Module): string {
  const path = ROOTS[module];
  const file = join(MODULES, module, 'go.mod');
  const version = new RegExp(`^(?:require)?\\s*${path.replaceAll('.', '\\.')} (v\\S+)`, 'm').exec(
    readFileSync(file, 'utf8'),
  )?.[1];
  if (version === undefined) throw new AssetError(`${file} does not require ${path}`, `restore the file`);
  return version;
}

/**
 * Makes sure that everything is there and returns the folder of the programs. The first time on a machine takes about ten minutes
 * and says so.
 */
export async function assets(say: (line: string) => void): Promise<string> {
  await installPackages(say);
  const bin = join(assetsFolder(), 'bin');
  const missing: Built[] = [];
  for (const program of PROGRAMS) if (!(await current(bin, program))) missing.push(program);
  if (missing.length > 0) await build(bin, missing, say);
  return bin;
}

/** Whether a program is there in the pinned version. */
async function current(bin: string, program: Built): Promise<boolean> {
  const path = join(bin, program.name);
  try {
    accessSync(path, constants.X_OK);
  } catch {
    return false;
  }
  const { stdout } = await attempt(path, ['--version']);
  return stdout.includes(pinned(program.module).replace(/^v/, ''));
}

async function installPackages(say: (line: string) => void): Promise<void> {
  const missing = () => PACKAGES.filter(([, file]) => !existsSync(file)).map(([name]) => name);
  const names = missing();
  if (names.length === 0) return;
  const fix = `apt-get update && apt-get install ${names.join(' ')}`;
  if (!existsSync('/usr/bin/apt-get'))
    throw new AssetError(
      `these Debian packages are missing: ${names.join(', ')}`,
      'run on Debian, or install the like',
    );
  say(`installing Debian packages: ${names.join(', ')}`);
  const options = { env: { DEBIAN_FRONTEND: 'noninteractive' }, timeoutMs: 10 * 60_000 };
  await run('apt-get', ['-q', 'update'], options);
  await run('apt-get', ['-qy', '--no-install-recommends', 'install', ...names], options);
  const still = missing();
  if (still.length > 0) throw new AssetError(`still missing after installation: ${still.join(', ')}`, fix);
}

/** The go command, of a version that can build. */
export async function findGo(): Promise<string> {
  const fix = `install Go ${GO.major}.${GO.minor} or newer (https://go.dev/dl) and put it on the PATH`;
  const found = [...TOOL_PATH.split(delimiter), '/usr/local/go/bin']
    .map((folder) => join(folder, 'go'))
    .find((path) => existsSync(path));
  if (found === undefined) throw new AssetError('Go is not on the PATH; it builds Kubernetes', fix);
  const { stdout } = await run(found, ['version'], { env: { GOTOOLCHAIN: 'local' } });
  const [, major = '0', minor = '0'] = /go(\d+)\.(\d+)/.exec(stdout) ?? [];
  if (Number(major) < GO.major || (Number(major) === GO.major && Number(minor) < GO.minor))
    throw new AssetError(`${found} is ${stdout.trim()}, which is too old`, fix);
  return found;
}

/** What the programs say of themselves: without it they are v0.0.0, and charts that name a Kubernetes version refuse the cluster. */
function stamp(): string {
  const version = pinned('kube');
  const [major = '', minor = ''] = version.slice(1).split('.');
  const values = {
    gitVersion: version,
    gitMajor: major,
    gitMinor: minor,
    gitTreeState: 'clean',
    gitCommit: version,
    buildDate: '1970-01-01T00:00:00Z',
  };
  const set = Object.entries(values).map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`);
  return ['-s', '-w', ...set].join(' ');
}

async function build(bin: string, programs: readonly Built[], say: (line: string) => void): Promise<void> {
  const go = await findGo();
  mkdirSync(bin, { recursive: true });
  // Beside the target: a rename within one file system is at once.
  const work = mkdtempSync(join(assetsFolder(), '.build-'));
  try {
    const modules = join(work, 'modules');
    cpSync(MODULES, modules, { recursive: true });
    for (const [index, { name, module, package: path }] of programs.entries()) {
      say(`building ${name} (${index + 1} of ${programs.length}; all of them take about 10 minutes the first time)`);
      const out = join(work, name);
      const began = performance.now();
      // -mod=mod: go.mod names the roots only; what follows from them is held by go.sum's hashes.
      await run(go, ['build', '-C', join(modules, module), '-ldflags', stamp(), '-o', out, path], {
        env: { GOFLAGS: '-mod=mod -buildvcs=false', CGO_ENABLED: '0' },
        timeoutMs: BUILD_LIMIT_MS,
      });
      renameSync(out, join(bin, name));
      say(`built ${name} in ${((performance.now() - began) / 1000).toFixed(0)} s`);
    }
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
