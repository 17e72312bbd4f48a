/** The real helm with the chart of this checkout, as a user runs it. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Kubectl } from '../kubectl.ts';
import { attempt, CommandError, type Output, ROOT } from '../run.ts';
import { explain } from './explain.ts';

const CHART = join(ROOT, 'charts/weir');
const RELEASE = 'weir';
const NAMESPACE = 'kube-system';

export type ChartValues = Readonly<Record<string, unknown>>;

export interface HelmOptions {
  /** More flags of the helm command. */
  readonly extraArgs?: readonly string[];
  /** Default 180. */
  readonly timeoutSeconds?: number;
  /** Another chart than this checkout's. */
  readonly chart?: string;
}

/** helm did not do it; the message carries what the cluster says of the pods concerned. */
export class HelmError extends Error {
  readonly output: Output;
  constructor(command: string, output: Output, explanation: string) {
    super(`${new CommandError(command, output).message}\n\n${explanation}`);
    this.name = 'HelmError';
    this.output = output;
  }
}

export class Helm {
  readonly #kubectl: Kubectl;
  readonly #kubeconfig: string;
  readonly #folder: string;
  readonly #defaults: ChartValues;
  #files = 0;

  /** @param defaults values that the cluster needs, whatever a test sets. */
  constructor(kubectl: Kubectl, kubeconfig: string, folder: string, defaults: ChartValues) {
    this.#kubectl = kubectl;
    this.#kubeconfig = kubeconfig;
    this.#folder = folder;
    this.#defaults = defaults;
  }

  /** Installs and waits until everything is ready. Returns what helm printed (the NOTES). */
  install(values: ChartValues = {}, options: HelmOptions = {}): Promise<string> {
    return this.#run(['install', RELEASE, options.chart ?? CHART, ...this.#values(values), '--wait'], options);
  }

  upgrade(values: ChartValues = {}, options: HelmOptions = {}): Promise<string> {
    return this.#run(['upgrade', RELEASE, options.chart ?? CHART, ...this.#values(values), '--wait'], options);
  }

  /** @param revision default: the one before. */
  rollback(revision?: number, options: HelmOptions = {}): Promise<string> {
    return this.#run(['rollback', RELEASE, ...(revision === undefined ? [] : [String(revision)]), '--wait'], options);
  }

  uninstall(options: HelmOptions = {}): Promise<string> {
    return this.#run(['uninstall', RELEASE, '--wait'], options);
  }

  test(options: HelmOptions = {}): Promise<string> {
    return this.#run(['test', RELEASE, '--logs'], options);
  }

  /** Any helm command, whatever its exit code. */
  attempt(args: readonly string[], timeoutSeconds = 60): Promise<Output> {
    const home = {
      HOME: this.#folder,
      HELM_CACHE_HOME: join(this.#folder, 'helm/cache'),
      HELM_CONFIG_HOME: join(this.#folder, 'helm/config'),
      HELM_DATA_HOME: join(this.#folder, 'helm/data'),
    };
    return attempt('helm', args, {
      env: { KUBECONFIG: this.#kubeconfig, ...home },
      timeoutMs: (timeoutSeconds + 30) * 1000,
    });
  }

  #values(values: ChartValues): string[] {
    this.#files += 1;
    const file = join(this.#folder, `values-${this.#files}.json`);
    writeFileSync(file, JSON.stringify({ ...this.#defaults, ...values }, undefined, 1));
    return ['-f', file];
  }

  async #run(command: readonly string[], { extraArgs = [], timeoutSeconds = 180 }: HelmOptions): Promise<string> {
    const args = [...command, '-n', NAMESPACE, '--timeout', `${timeoutSeconds}s`, ...extraArgs];
    const output = await this.attempt(args, timeoutSeconds);
    if (output.code !== 0)
      throw new HelmError(['helm', ...args].join(' '), output, await explain(this.#kubectl, NAMESPACE));
    return output.stdout;
  }
}
