/**
 * Keeps back what watches tell, and tells all of it at once when it is let through: whoever reads finds the crowd and the edits of others
 * waiting, as after a moment in which it was busy. What waits was read from the API server already, so that nothing of it comes later.
 */
import type { KubeClient, WatchEvent } from '@weir/kube';

export class Valve {
  #open = Promise.resolve();
  #let: () => void = () => undefined;
  /** The last version that each watch has read, by its resource. */
  readonly #read = new Map<string, number>();

  close(): void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#open = promise;
    this.#let = resolve;
  }

  open(): void {
    this.#let();
  }

  /** Whether the version, and so what came before it, waits here or has passed. */
  hasRead(plural: string, version: number): boolean {
    return (this.#read.get(plural) ?? 0) >= version;
  }

  readonly through = (client: KubeClient): KubeClient['watch'] => {
    const opened = (): Promise<void> => this.#open;
    const note = (plural: string, version: string | undefined): void => void this.#read.set(plural, Number(version));
    return async function* (resource, options) {
      const read: WatchEvent<never>[] = [];
      let over = false;
      let failure: unknown;
      let more = Promise.withResolvers<void>();
      const reading = (async () => {
        for await (const event of client.watch(resource, options)) {
          read.push(event as never);
          note(resource.plural, event.object.metadata.resourceVersion);
          more.resolve();
        }
      })()
        .catch((error: unknown) => {
          failure = error;
        })
        .finally(() => {
          over = true;
          more.resolve();
        });
      for (;;) {
        await opened();
        const event = read.shift();
        if (event !== undefined) yield event;
        else if (over) break;
        else {
          await more.promise;
          more = Promise.withResolvers();
        }
      }
      await reading;
      if (failure !== undefined) throw failure;
    };
  };
}
