import type { KubeObject, ReflectorSink } from '@weir/kube';

/** On the DaemonSet: this installation is being taken away. The value names the request. */
export const UNINSTALL_ANNOTATION = 'weir.dev/uninstall';
/** On a NodePolicyStatus: this node has done what the request of this value asked for. */
export const REMOVED_ANNOTATION = 'weir.dev/removed';

/**
 * Looks for the mark on one DaemonSet. Only a mark that can be read counts: a DaemonSet that is gone, or an API server that does not
 * answer, is no request to remove anything.
 */
export class UninstallMark implements ReflectorSink<KubeObject> {
  readonly #at: { readonly namespace: string; readonly name: string };
  readonly #listeners = new Set<(value: string) => void>();
  #value: string | undefined;

  constructor(at: { readonly namespace: string; readonly name: string }) {
    this.#at = at;
  }

  /** Calls back with each new value, and at once with one that is there. Returns what takes it back. */
  on(listener: (value: string) => void): () => void {
    this.#listeners.add(listener);
    if (this.#value !== undefined) listener(this.#value);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  replace(items: readonly KubeObject[]): void {
    for (const item of items) this.upsert(item);
  }

  upsert({ metadata }: KubeObject): void {
    if (metadata.name !== this.#at.name || metadata.namespace !== this.#at.namespace) return;
    const value = metadata.annotations?.[UNINSTALL_ANNOTATION];
    const before = this.#value;
    this.#value = value === '' ? undefined : value;
    if (this.#value === undefined || this.#value === before) return;
    for (const listener of [...this.#listeners]) listener(this.#value);
  }

  delete(): void {}
}
