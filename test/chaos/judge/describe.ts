/** A finding, for whoever has to find its cause. */
import { keyOf, specOf } from '../world/policy.ts';
import type { HostModel, PodModel, World } from '../world/world.ts';
import type { Finding } from './judge.ts';

const seconds = (ms: number): string => `${ms >= 0 ? '+' : ''}${(ms / 1000).toFixed(3)} s`;

function host(model: HostModel | PodModel): string {
  if (!('node' in model)) return model.name;
  return `${model.namespace}/${model.name} (${model.address ?? 'no address'} on node-${model.node})`;
}

const verdict = ({ allow, deny }: Finding['egress']): string =>
  allow && deny ? 'allow or deny' : allow ? 'allow' : 'deny';

export function describe(
  world: World,
  { wrong, what, packet, window, from, to, egress, ingress }: Finding,
  deeds: readonly { readonly text: string; readonly at: number }[],
): string {
  const { flow, number, sent, received, echoed } = packet;
  const since = (at: number): string => seconds(at - sent);
  const states = (model: HostModel): string =>
    model.states
      .possible(window.from, window.to)
      .map((state) => JSON.stringify(state))
      .join(' | ');
  const policies = world.policies.flatMap(({ versions, ...policy }) =>
    versions
      .possible(window.from, window.to)
      .filter(({ rule }) => rule !== undefined || versions.possible(window.from, window.to).length > 1)
      .map(({ generation, rule }) => {
        const spec = rule === undefined ? 'not there' : JSON.stringify(specOf(rule));
        return `    ${keyOf(policy)} generation ${generation}: ${spec}`;
      }),
  );
  return [
    `wrong ${wrong}: ${what} ${number} (${flow.kind}, port ${flow.port}) ${host(from)} -> ${host(to)}`,
    `  sent at 0, ${received === undefined ? 'not received' : `received at ${since(received.at)}`}${
      echoed === undefined ? '' : `, echo at ${since(echoed)}`
    }; judged from ${since(window.from)} to ${since(window.to)}`,
    `  egress: ${verdict(egress)}; ingress: ${verdict(ingress)}`,
    `  sender may be judged as   ${states(from)}`,
    `  receiver may be judged as ${states(to)}`,
    '  policies that may be in force:',
    ...policies,
    '  done before:',
    ...deeds.map(({ text, at }) => `    ${since(at)} ${text}`),
  ].join('\n');
}
