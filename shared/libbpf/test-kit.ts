import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What the tests of this folder share: built test programs, and network namespaces of their own. */

/** Builds `testdata/<name>.c` with clang into a temporary folder. */
export function buildProgram(name: string): { path: string } & Disposable {
  const folder = mkdtempSync(join(tmpdir(), 'libbpf-ts-'));
  const path = join(folder, `${name}.o`);
  const source = fileURLToPath(new URL(`./testdata/${name}.c`, import.meta.url));
  const machine = process.arch === 'arm64' ? 'aarch64' : 'x86_64';
  const args = ['-O2', '-g', '-Wall', '-Werror', '-target', 'bpf', `-I/usr/include/${machine}-linux-gnu`];
  execFileSync('clang', [...args, '-c', source, '-o', path]);
  return { path, [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}

export interface TestNamespace extends Disposable {
  readonly path: string;
  /** Interface index of one end of a veth pair whose both ends are inside. */
  readonly ifindex: number;
  /** Sends `count` frames out of the other end, so that they arrive at `ifindex`. */
  ping(count: number): void;
}

/** A network namespace with a veth pair (va: `ifindex`, vb), both up. */
export function makeNamespace(label: string): TestNamespace {
  const name = `wt${process.pid}-lb-${label}`;
  const ip = (...args: string[]): string => execFileSync('ip', args, { encoding: 'utf8' });
  ip('netns', 'add', name);
  const remove = (): string => ip('netns', 'del', name);
  try {
    ip('-n', name, 'link', 'add', 'va', 'type', 'veth', 'peer', 'name', 'vb');
    for (const end of ['va', 'vb']) ip('-n', name, 'link', 'set', end, 'up');
    ip('-n', name, 'neigh', 'add', '192.0.2.9', 'lladdr', '02:00:00:00:00:09', 'dev', 'vb');
    ip('-n', name, 'addr', 'add', '192.0.2.1/24', 'dev', 'vb');
    const ifindex = Number(/^(\d+): /.exec(ip('-n', name, '-o', 'link', 'show', 'va'))?.[1]);
    const send =
      "const s=require('dgram').createSocket('udp4');let n=Number(process.argv[1]);" +
      "const go=()=>n--?s.send('x',9,'192.0.2.9',go):s.close();go()";
    return {
      path: `/run/netns/${name}`,
      ifindex,
      ping: (count) => {
        execFileSync('ip', ['netns', 'exec', name, process.execPath, '-e', send, String(count)]);
      },
      [Symbol.dispose]: remove,
    };
  } catch (error) {
    remove();
    throw error;
  }
}

/** The namespace that the calling thread is in, as the kernel names it. */
export function currentNamespace(): string {
  return readFileSync('/proc/thread-self/net/dev', 'utf8')
    .split('\n')
    .slice(2)
    .map((line) => line.split(':')[0]?.trim() ?? '')
    .filter((name) => name !== '')
    .sort((a, b) => a.localeCompare(b))
    .join(' ');
}

/** Removes a folder of pins. */
export function removePins(path: string): void {
  rmSync(path, { recursive: true, force: true });
}
