import { flag, path } from '@weir/process/flags';
import { datapathPart } from '../core/datapath-part.ts';
import { corePart } from '../core/part.ts';
import { definePart } from '../parts/contract.ts';
import { uplinksPart } from '../uplinks/part.ts';
import { MasqueradeKernelError } from './config.ts';
import { MASQUERADE_MAPS } from './maps.ts';
import { Masquerade } from './masquerade.ts';
import { hooksAt, SOURCE } from './programs.ts';

/** What pods send out of the cluster leaves with the node's address. */
export const masqueradePart = definePart({
  name: 'masquerade',
  needs: { datapath: datapathPart, core: corePart, uplinks: uplinksPart },
  flags: {
    masquerade: flag<'off' | 'on' | 'auto'>(
      '--masquerade <mode>',
      "on: what pods send to addresses outside of the cluster leaves with the node's address; auto: the same where the kernel can (Linux 6.6); off: with their own",
    )
      .choices(['off', 'on', 'auto'])
      .default('off'),
    masqueradeConfig: flag<string | undefined>(
      '--masquerade-config <file>',
      "addresses that pods reach with their own, in ip-masq-agent's format; private networks (RFC 1918) when the file is not there. Pods and nodes of the cluster always are",
    ).argParser(path),
  },
  maps: MASQUERADE_MAPS,
  objects: [SOURCE],
  build: ({ datapath, core, uplinks }, { config, db, log }) => {
    const { masquerade: mode, masqueradeConfig: configFile } = config;
    if (mode === 'off') return undefined;
    if (uplinks === undefined) {
      if (mode === 'auto') return undefined;
      throw new MasqueradeKernelError();
    }
    const masquerade = new Masquerade({
      ...{ db, log, uplinks, nodes: core.tables.nodes },
      map: (name) => datapath.map(name),
      ...(configFile === undefined ? {} : { configFile }),
    });
    return {
      settings: { masquerade: mode },
      hooks: { masquerade: hooksAt(() => uplinks.interfaces()) },
      start: () => masquerade.start(),
      stop: () => masquerade.stop(),
      conditions: [
        { name: 'masquerade', title: 'Masquerade', reason: 'MasqueradeFailing', read: () => masquerade.status() },
      ],
    };
  },
});
