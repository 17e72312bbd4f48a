import { canonicalPrefix, familyOf } from '@weir/net';
import { CommandError, type RunCommand } from '../host/command.ts';
import { batchLines, ipBatch } from '../host/ip.ts';
import { type KernelRoute, ROUTE_METRIC, ROUTE_PROTOCOL, RouteError, type RouteRow } from './types.ts';

const OWN = `proto ${ROUTE_PROTOCOL} metric ${ROUTE_METRIC}`;
const ABSENT = /No such process/;
const FAILED_LINE = /^Command failed -:(\d+)$/;

/** Weir's routes in the main table of the agent's network namespace. */
export class KernelRoutes {
  readonly #run: RunCommand;

  constructor(run: RunCommand) {
    this.#run = run;
  }

  async list(): Promise<readonly KernelRoute[]> {
    // Of one table alone `ip` shows IPv4 alone.
    const show = `route show table all proto ${ROUTE_PROTOCOL}`;
    const [routes] = await ipBatch<[{ dst: string; gateway?: string; table?: string }[]]>(this.#run, [show], 1);
    const main = routes.filter(({ table }) => table === undefined);
    return main.map(({ dst, gateway }) => ({
      prefix: canonicalPrefix(dst),
      ...(gateway === undefined ? {} : { gateway }),
    }));
  }

  /** Makes or moves the routes; the answer holds what went wrong, by prefix. */
  async replace(rows: readonly RouteRow[]): Promise<ReadonlyMap<string, RouteError>> {
    const failed = new Map<string, RouteError>();
    const possible = rows.filter((row) => {
      if (row.gateway === undefined) {
        const family = `IPv${familyOf(row.prefix)}`;
        failed.set(
          row.prefix,
          new RouteError(row, `the node has no ${family} address; give it one: kubelet --node-ip`),
        );
      }
      return row.gateway !== undefined;
    });
    const lines = possible.map(({ prefix, gateway }) => `route replace ${prefix} via ${gateway} ${OWN}`);
    for (const [at, why] of await this.#batch(lines)) {
      const row = possible[at];
      if (row !== undefined) failed.set(row.prefix, unreachable(row, why));
    }
    return failed;
  }

  /** Takes routes away; succeeding where there is none. The answer holds what went wrong, by prefix. */
  async delete(rows: readonly { readonly prefix: string }[]): Promise<ReadonlyMap<string, Error>> {
    const lines = rows.map(({ prefix }) => `route delete ${prefix} ${OWN}`);
    const failed = new Map<string, Error>();
    for (const [at, why] of await this.#batch(lines)) {
      const row = rows[at];
      if (row !== undefined && !ABSENT.test(why)) failed.set(row.prefix, new Error(`route ${row.prefix}: ${why}`));
    }
    return failed;
  }

  /** Runs every line, whatever becomes of those before it; the kernel's messages for those that failed, by their place. */
  async #batch(lines: readonly string[]): Promise<ReadonlyMap<number, string>> {
    if (lines.length === 0) return new Map();
    try {
      await this.#run('ip', ['-force', '-batch', '-'], batchLines(lines));
      return new Map();
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      const failed = new Map<number, string>();
      let lines: string[] = [];
      for (const line of error.stderr.split('\n')) {
        const at = FAILED_LINE.exec(line.trim())?.[1];
        if (at === undefined) lines.push(line.trim());
        else {
          failed.set(Number(at) - 1, lines.join(' ').trim());
          lines = [];
        }
      }
      // Not a line that failed, but ip itself.
      if (failed.size === 0) throw error;
      return failed;
    }
  }
}

function unreachable(row: RouteRow, why: string): RouteError {
  return new RouteError(
    row,
    `its address ${row.gateway} is not on a network that this node is connected to (ip route: ${why}); join the nodes by one ` +
      'network, or set --routing none (chart value routing: none) and have the network route the pod CIDRs',
  );
}

/** Takes all of Weir's routes to other nodes away; returns them, in words. */
export async function removeRoutes(run: RunCommand): Promise<readonly string[]> {
  const kernel = new KernelRoutes(run);
  const routes = await kernel.list();
  for (const error of (await kernel.delete(routes)).values()) throw error;
  return routes.map(({ prefix, gateway }) => `route ${prefix} via ${gateway ?? '?'}`);
}
