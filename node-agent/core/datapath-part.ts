import { MAPS } from '@weir/bpf';
import { flag, path } from '@weir/process/flags';
import { InvalidArgumentError } from 'commander';
import { Datapath } from '../datapath/index.ts';
import { definePart } from '../parts/contract.ts';

const CT_ENTRIES = { min: 1024, max: 16_777_216 };

/** Maps and programs of the node, its own and those of parts. */
export const datapathPart = definePart({
  name: 'datapath',
  flags: {
    ctEntries: flag<number | undefined>(
      '--ct-entries <number>',
      `size of each conntrack map, of IPv4 and of IPv6; ${MAPS.ct4.maxEntries} when absent`,
    ).argParser(ctEntries),
    datapathObject: flag<string | undefined>(
      '--datapath-object <file>',
      'compiled datapath, with the objects of parts beside it; built from source when absent',
    ).argParser(path),
    cgroupRoot: flag<string | undefined>(
      '--cgroup-root <dir>',
      "the node's root cgroup of version 2, or the folder of all hierarchies, for programs at sockets; where one is mounted when absent",
    ).argParser(path),
  },
  build: (_given, { config, agent, log }) => {
    const { bpfRoot, stateDir, ctEntries, datapathObject, cgroupRoot } = config;
    const datapath = new Datapath({
      bpfRoot,
      stateDir,
      kernel: {
        ...(datapathObject === undefined ? {} : { datapathObject }),
        ...(ctEntries === undefined ? {} : { ctEntries }),
        ...(cgroupRoot === undefined ? {} : { cgroupRoot }),
      },
      maps: () => agent.maps(),
      objects: () => agent.objects(),
      log,
    });
    return {
      provides: datapath,
      start: () => datapath.start(),
      stop: () => datapath.stop(),
      settings: { 'bpf-root': bpfRoot },
    };
  },
});

function ctEntries(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < CT_ENTRIES.min || value > CT_ENTRIES.max) {
    throw new InvalidArgumentError(`It must be a whole number from ${CT_ENTRIES.min} to ${CT_ENTRIES.max}.`);
  }
  return value;
}
