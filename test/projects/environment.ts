/** Jest's environment for Node, which sees what the tests of a file use: it keeps each file in its project (`list.ts`). */
import childProcess from 'node:child_process';
import dgram from 'node:dgram';
import { Module } from 'node:module';
import net from 'node:net';
import { relative } from 'node:path';
import type { EnvironmentContext, JestEnvironmentConfig } from '@jest/environment';
import type { Circus } from '@jest/types';
import { TestEnvironment } from 'jest-environment-node';

type Call = (...args: unknown[]) => unknown;

const PROCESS = 'starts a process';
const SOCKET = 'opens a socket';
const LIBBPF = 'calls libbpf';

/** What is watched: where the functions are, their names, what a call does, and which calls do so. */
const WATCHED: readonly (readonly [
  holder: object,
  names: readonly string[],
  does: string,
  when?: (first: unknown) => boolean,
])[] = [
  // The first is of all that goes on beside: exec, execFile and fork come to it, promisified or not.
  [childProcess.ChildProcess.prototype, ['spawn'], PROCESS],
  [childProcess, ['spawnSync', 'execSync', 'execFileSync'], PROCESS],
  [net.Server.prototype, ['listen'], SOCKET],
  [net.Socket.prototype, ['connect'], SOCKET],
  [dgram.Socket.prototype, ['bind', 'connect', 'send'], SOCKET],
  [Module, ['_load'], LIBBPF, (first) => /koffi[^/]*\.node$/.test(String(first))],
];

export default class ProjectEnvironment extends TestEnvironment {
  readonly #file: string;
  readonly #unit: boolean;
  /** What is in `release` is there for what it is about. */
  readonly #needs: boolean;
  readonly #used = new Set<string>();
  readonly #restore: (() => void)[] = [];

  constructor(config: JestEnvironmentConfig, context: EnvironmentContext) {
    super(config, context);
    this.#file = relative(config.projectConfig.rootDir, context.testPath);
    const project = config.projectConfig.displayName?.name;
    this.#unit = project === 'unit';
    this.#needs = project === 'kernel' || project === 'cluster';
  }

  override async setup(): Promise<void> {
    await super.setup();
    for (const [holder, names, does, when] of WATCHED) for (const name of names) this.#watch(holder, name, does, when);
  }

  #watch(holder: object, name: string, does: string, when: (first: unknown) => boolean = () => true): void {
    const original = Reflect.get(holder, name) as Call;
    const apply = (target: Call, self: unknown, args: unknown[]): unknown => {
      if (when(args[0])) {
        this.#used.add(does);
        if (this.#unit)
          throw new Error(`a unit test ${does}: give ${this.#file} another project in test/projects/list.ts`);
      }
      return Reflect.apply(target, self, args);
    };
    Reflect.set(holder, name, new Proxy(original, { apply }));
    this.#restore.push(() => Reflect.set(holder, name, original));
  }

  /** After all tests of a file: one that needs nothing is a unit test. */
  handleTestEvent(event: Circus.Event, state: Circus.State): void {
    if (event.name !== 'run_finish' || !this.#needs || this.#used.size > 0 || state.testNamePattern) return;
    throw new Error(
      `${this.#file} starts no process, opens no socket and calls no libbpf: it is a unit test (test/projects/list.ts)`,
    );
  }

  override async teardown(): Promise<void> {
    for (const restore of this.#restore) restore();
    await super.teardown();
  }
}
