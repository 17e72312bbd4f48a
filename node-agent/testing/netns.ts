import { inNetns } from 'libbpf-ts';
import { runCommand } from '../host/command.ts';
import { type Settings, settings } from '../host/setting.ts';

/** Settings of a network namespace that this process is not in. */
export function settingsOf(netns: string): Settings {
  return {
    get: (path) => inNetns(netns, () => settings.get(path)),
    set: (path, value) => inNetns(netns, () => settings.set(path, value)),
  };
}

/** Network namespaces of one test file, named after it and this process; `dispose` removes them. */
export class TestNamespaces {
  readonly #prefix: string;
  readonly #made: string[] = [];

  constructor(prefix: string) {
    this.#prefix = `wt${process.pid}-${prefix}`;
  }

  /** Makes one with its loopback up; returns its path. */
  async add(name: string): Promise<string> {
    const full = `${this.#prefix}-${name}`;
    await runCommand('ip', ['netns', 'add', full]);
    this.#made.push(full);
    await runCommand('ip', ['-n', full, 'link', 'set', 'lo', 'up']);
    return `/var/run/netns/${full}`;
  }

  async dispose(): Promise<void> {
    for (const name of this.#made.splice(0)) await runCommand('ip', ['netns', 'delete', name]);
  }
}
