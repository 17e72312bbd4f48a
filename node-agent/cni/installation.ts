import { type FSWatcher, readdirSync, watch } from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '@weir/process/errors';
import type { Logger } from '../core.ts';
import { type CniInstallOptions, CONFLIST, hasPortmap, installCni, PORTMAP, removeCni } from './install.ts';

/** How soon a file that somebody took away is back. */
const CHECK_MS = 30_000;

/** What runtimes take for a configuration. */
const CONFIGURATION = /\.(conf|conflist|json)$/;

/**
 * Keeps plugin and configuration in place while the agent runs. Stopping leaves them: a pod that starts while the agent is away is told to
 * try later, and is not given another network.
 */
export class CniInstallation {
  readonly #options: CniInstallOptions & { readonly log: Logger; readonly checkMs?: number };
  #timer: NodeJS.Timeout | undefined;
  #watcher: FSWatcher | undefined;
  #portmap = false;
  #running: Promise<void> = Promise.resolve();
  #problem: string | undefined = 'not installed yet';
  /** The configuration that precedes ours, as reported last. */
  #reported: string | undefined;

  constructor(options: CniInstallOptions & { readonly log: Logger; readonly checkMs?: number }) {
    this.#options = options;
  }

  /** Installs. Throws `CniInstallError`. */
  async start(): Promise<void> {
    const { log, binDir, confDir, checkMs = CHECK_MS } = this.#options;
    await installCni(this.#options);
    this.#portmap = await hasPortmap(binDir);
    this.#problem = undefined;
    log.info({ binDir, confDir }, 'cni plugin installed');
    this.#reportEarlier();
    const again = (): void => {
      this.#running = this.#running.then(() => this.#again());
    };
    this.#timer = setInterval(again, checkMs).unref();
    // At once: a list that names a plugin which is gone lets no pod start. Where the folder cannot be watched, the timer does.
    try {
      this.#watcher = watch(binDir, { persistent: false }, (_, file) => {
        if (file === PORTMAP) again();
      }).on('error', () => undefined);
    } catch (error) {
      // A node may have no inotify instance left.
      log.info({ binDir, error: messageOf(error) }, 'cannot watch the plugin folder; checking it now and then');
    }
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#watcher?.close();
    await this.#running;
  }

  /** Stops, and takes the configuration and then the plugin away. Returns what is gone. */
  async remove(): Promise<readonly string[]> {
    await this.stop();
    this.#problem = 'removed';
    return await removeCni(this.#options);
  }

  /** Whether the runtime of this node uses Weir. */
  status(): { readonly ok: boolean; readonly message: string } {
    const { confDir } = this.#options;
    if (this.#problem !== undefined) return { ok: false, message: this.#problem };
    const [first] = this.#earlier();
    if (first === undefined) return { ok: true, message: `installed (${join(confDir, CONFLIST)})` };
    return {
      ok: false,
      message: `the container runtime reads ${first} before ${CONFLIST} and so ignores Weir: remove or rename ${join(confDir, first)}`,
    };
  }

  /** Configurations that a runtime, which takes the first by name, prefers to ours. */
  #earlier(): readonly string[] {
    try {
      return readdirSync(this.#options.confDir)
        .filter((file) => CONFIGURATION.test(file) && file < CONFLIST)
        .sort();
    } catch {
      return []; // the next check says that the folder cannot be read
    }
  }

  /** Says once that a configuration comes before ours, and once that none does any more. */
  #reportEarlier(): void {
    const { confDir, log } = this.#options;
    const [first] = this.#earlier();
    if (first === this.#reported) return;
    this.#reported = first;
    if (first === undefined) log.info({ confDir }, `the container runtime reads ${CONFLIST} first again`);
    else log.warn({ confDir, file: first }, this.status().message);
  }

  async #again(): Promise<void> {
    const { log } = this.#options;
    try {
      const portmap = await hasPortmap(this.#options.binDir);
      const written = await installCni(this.#options);
      if (portmap !== this.#portmap) {
        this.#portmap = portmap;
        log.info(
          {},
          portmap
            ? 'host ports: the node has portmap now; new pods get them'
            : 'host ports: portmap is gone from the node; new pods get none',
        );
      } else if (written.length > 0)
        log.warn({ files: written }, 'restored cni files that somebody had changed or removed');
      this.#problem = undefined;
      this.#reportEarlier();
    } catch (error) {
      const message = messageOf(error);
      if (message !== this.#problem) log.error({ error: message }, 'cannot restore the cni plugin');
      this.#problem = message;
    }
  }
}
