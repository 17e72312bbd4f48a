import { line } from '@weir/process/printable';
import type { Command } from 'commander';
import type { PolicyStatusModel } from '../api/models.ts';
import { type CliContext, printJson } from './context.ts';
import { formatTable } from './table.ts';

/** `weir policy status`: what of each policy is in this node's kernel. */
export function addPolicyStatusCommand(policy: Command, context: CliContext): void {
  policy
    .command('status')
    .description("Policies as this node's kernel has them; exit code 1 when one is not in it or fails")
    .argument('[policy]', 'only KIND/NAMESPACE/NAME, or KIND/NAME of a cluster-wide one (cnp, ccnp, netpol or knp)')
    .option('--json', 'the same as -o json')
    .action(async (wanted: string | undefined, options: { json?: boolean }, command: Command) => {
      const query = wanted === undefined ? '' : `?policy=${encodeURIComponent(wanted)}`;
      const list = await context.client(command).get<readonly PolicyStatusModel[]>(`/policy/status${query}`);
      if (options.json === true || context.json(command)) printJson(context, list);
      else context.out.write(statusText(list));
      if (list.some(({ state }) => state === 'Pending' || state === 'Failing')) context.setExitCode(1);
    });
}

function statusText(list: readonly PolicyStatusModel[]): string {
  const table = formatTable(
    ['KIND', 'NAMESPACE', 'NAME', 'WANTED', 'KERNEL', 'ENDPOINTS', 'STATE'],
    list.map(({ kind, namespace, name, wanted, kernel, endpoints, state }) => [
      kind,
      namespace ?? '-',
      name,
      String(wanted),
      // No endpoint that would need it.
      state === 'NoEndpoints' ? '-' : String(kernel),
      String(endpoints),
      state,
    ]),
  );
  return [table, ...list.map(details)].join('');
}

/** What fails here, and what the operator says where the object itself cannot say it. */
function details(policy: PolicyStatusModel): string {
  const { kind, namespace, name, failures, cluster } = policy;
  const title = `\n${line(`${[kind, namespace, name].filter((part) => part !== undefined).join('/')}:`)}`;
  const failing = failures.map(({ generation, reason, message }) =>
    line(`  ${reason} (generation ${generation}): ${message}`),
  );
  const conditions = (cluster?.conditions ?? []).map(({ type, status, reason, message }) =>
    line(`  cluster: ${type}=${status} (${reason}) ${message}`.trimEnd()),
  );
  return failing.length + conditions.length === 0 ? '' : [title, ...failing, ...conditions].join('');
}
