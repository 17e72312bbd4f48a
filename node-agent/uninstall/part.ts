import { flag } from '@weir/process/flags';
import { InvalidArgumentError } from 'commander';
import { NAME } from '../config/config.ts';
import { ConfigError } from '../config/errors.ts';
import { kubernetesPart } from '../kubernetes/part.ts';
import { definePart } from '../parts/contract.ts';
import { UninstallMark } from './mark.ts';
import { Uninstall } from './uninstall.ts';

/** Weir off this node, when the agent's DaemonSet is marked. Last in the list: what is taken away must have been put there. */
export const uninstallPart = definePart({
  name: 'uninstall',
  needs: { kubernetes: kubernetesPart },
  flags: {
    daemonset: flag<{ readonly namespace: string; readonly name: string } | undefined>(
      '--daemonset <namespace/name>',
      'the DaemonSet it runs in: its uninstall mark is obeyed',
    ).argParser(daemonSet),
  },
  checkFlags: (config) => {
    if (config.daemonset !== undefined && !config.kubernetes)
      throw new ConfigError('--daemonset and --no-kubernetes exclude each other: leave one of them out');
  },
  build: ({ kubernetes }, { config, db, agent, log }) => {
    if (kubernetes === undefined || config.daemonset === undefined) return undefined;
    const mark = new UninstallMark(db, config.daemonset);
    const uninstall = new Uninstall({
      log,
      shares: () => agent.removal(),
      markRemoved: (value) => kubernetes.markRemoved(value),
    });
    return {
      sources: [mark.source],
      start: () => {
        mark.values.subscribe((value) => uninstall.wanted(value));
      },
      stop: async () => {
        mark.stop();
        await uninstall.stop();
      },
      idle: () => uninstall.message,
    };
  },
});

function daemonSet(text: string): { readonly namespace: string; readonly name: string } {
  const [namespace = '', name = '', ...more] = text.split('/');
  if (!NAME.test(namespace) || !NAME.test(name) || more.length > 0)
    throw new InvalidArgumentError('It must be NAMESPACE/NAME, such as kube-system/weir-agent.');
  return { namespace, name };
}
