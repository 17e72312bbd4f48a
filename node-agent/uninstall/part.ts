import { flag, type NamespacedName, namespacedName } from '@weir/process/flags';
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
    daemonset: flag<NamespacedName | undefined>(
      '--daemonset <namespace/name>',
      'DaemonSet of this agent; the agent obeys its uninstall mark',
    ).argParser(namespacedName('kube-system/weir-agent')),
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
