/** The real kubectl against one cluster. */
import { attempt, CommandError, type Output } from './run.ts';

export class Kubectl {
  readonly #env: Readonly<Record<string, string>>;

  /** @param home where kubectl keeps its caches. */
  constructor(kubeconfig: string, home: string) {
    this.#env = { KUBECONFIG: kubeconfig, HOME: home };
  }

  /** Whatever its exit code. */
  attempt(args: readonly string[], stdin?: string): Promise<Output> {
    return attempt('kubectl', args, {
      env: this.#env,
      timeoutMs: 180_000,
      ...(stdin === undefined ? {} : { stdin }),
    });
  }

  /** Another exit code than 0 throws. Returns standard output. */
  async run(args: readonly string[], stdin?: string): Promise<string> {
    const output = await this.attempt(args, stdin);
    if (output.code !== 0) throw new CommandError(['kubectl', ...args].join(' '), output);
    return output.stdout;
  }

  apply(text: string): Promise<string> {
    return this.run(['apply', '-f', '-'], text);
  }

  applyObjects(objects: readonly object[]): Promise<string> {
    return this.apply(objects.map((object) => JSON.stringify(object)).join('\n'));
  }

  async programmed(policies: readonly string[]): Promise<void> {
    await this.run(['wait', '--for=condition=Programmed', '--timeout=120s', ...policies]);
  }

  /** Waits until the pods are Ready; the error says what each pod of their namespaces waits for. */
  async podsReady(pods: readonly { readonly name: string; readonly namespace?: string }[], seconds: number) {
    const namespaces = new Map<string, string[]>();
    for (const { name, namespace = 'default' } of pods)
      namespaces.set(namespace, [...(namespaces.get(namespace) ?? []), `pod/${name}`]);
    for (const [namespace, names] of namespaces) {
      const waited = await this.attempt([
        ...['wait', '-n', namespace, '--for=condition=Ready', `--timeout=${seconds}s`],
        ...names,
      ]);
      if (waited.code === 0) continue;
      const seen = await this.attempt([
        ...['get', 'pods', '-n', namespace, '-o'],
        'jsonpath={range .items[*]}{.metadata.name}: {range .status.conditions[*]}{.type}={.status} {.message} {end}{"\\n"}{end}',
      ]);
      const events = await this.attempt(['get', 'events', '-n', namespace, '--field-selector=type=Warning']);
      throw new Error(
        `pods did not become ready within ${seconds} s: ${waited.stderr.trim()}\n${seen.stdout}${events.stdout}`,
      );
    }
  }

  async deletePod(name: string, namespace = 'default'): Promise<void> {
    await this.run(['delete', 'pod', name, '-n', namespace, '--wait=true', '--timeout=120s']);
  }
}
