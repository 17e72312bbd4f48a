/** What `weir status` and the Node say of the DNS proxy. */
import type { Core } from '../core.ts';
import type { PartCondition } from '../parts/contract.ts';
import { PROXY_FAILING } from './proxy-fault.ts';

interface ConditionOptions {
  readonly socket: string;
  readonly core: Pick<Core, 'numbers'>;
  /** Why questions are not answered. */
  readonly problem: () => string | undefined;
}

export function proxyCondition({ socket, core, problem }: ConditionOptions): PartCondition {
  return {
    name: 'dns-proxy',
    title: 'DNS proxy',
    reason: PROXY_FAILING,
    read: () => {
      const why = problem();
      if (why === undefined) return { ok: true, message: `answers what policies let pods ask (${socket})` };
      if (!isNeeded(core))
        return {
          ok: true,
          off: true,
          message: `no pod of this node can ask it, or has rules by names; ${why} (${socket})`,
        };
      return {
        ok: false,
        message: `what DNS rules and toFQDNs allow may not pass: ${why} (${socket}); look at the DNS proxy's log`,
      };
    },
  };
}

function isNeeded({ numbers }: Pick<Core, 'numbers'>): boolean {
  return [numbers.eachListener(), Iterator.from(numbers.eachNames())].some((each) => each.next().done !== true);
}
