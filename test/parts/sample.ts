/** A part that brings one of nearly everything, as somebody would write who has read only `node-agent/parts/contract.ts`. */
import { join } from 'node:path';
import type { MapSpec } from '@weir/bpf';
import { flag } from '@weir/process/flags';
import { worker } from '@weir/process/supervised';
import type { Command } from 'commander';
import { mapFlags } from 'libbpf-ts';
import { Gauge } from 'prom-client';
import type { AddCommands } from '../../node-agent/cli/commands.ts';
import { datapathPart } from '../../node-agent/core/datapath-part.ts';
import type { AddressRow } from '../../node-agent/core.ts';
import type { EventNames, FlowEvent } from '../../node-agent/flows/types.ts';
import { definePart } from '../../node-agent/parts/contract.ts';

/** Index of the loopback interface. */
const LOOPBACK = 1;

/** Key: `name`. */
interface Sample {
  readonly name: string;
  readonly size: number;
}

const counts: MapSpec = {
  name: 'sample_counts',
  type: 'hash',
  keySize: 4,
  valueSize: 4,
  maxEntries: 16,
  flags: mapFlags.NO_PREALLOC,
  version: 1,
  describe: (key, value) => ({ key: { sample: u32(key) }, value: { size: u32(value) } }),
};

const addresses: MapSpec = {
  ...counts,
  name: 'sample_addrs',
  describe: (key, value) => ({ key: { address: [...key].join('.') }, value: { address: [...value].join('.') } }),
};

export const samplePart = definePart({
  name: 'sample',
  needs: { datapath: datapathPart },
  flags: {
    sampleLimit: flag<number>('--sample-limit <number>', 'how many samples there may be').default(2).argParser(Number),
  },
  maps: [counts, addresses],
  objects: [{ name: 'sample', source: join(import.meta.dirname, 'sample.c') }],
  build: ({ datapath }, { config, db }) => {
    const samples = db.table<Sample>({ name: 'samples', key: ({ name }) => name });
    const sites = db.table<AddressRow>({ name: 'sample-sites', key: ({ prefix }) => prefix });
    db.write([sites], (txn) => txn.insert(sites, { prefix: '203.0.113.0/24' }));
    let plans = 0;
    const count = (): number => {
      using snapshot = db.read();
      return snapshot.count(samples);
    };
    return {
      conditions: [
        {
          name: 'sample',
          title: 'Samples',
          read: () => ({ ok: count() < config.sampleLimit, message: `${count()} of ${config.sampleLimit}` }),
          reason: 'TooManySamples',
        },
      ],
      metrics: (registry) => {
        new Gauge({
          name: 'weir_agent_samples',
          help: 'Samples that there are.',
          registers: [registry],
          collect() {
            this.set(count());
          },
        });
        new Gauge({
          name: 'weir_agent_sample_plans',
          help: 'Plans that had the sample step.',
          registers: [registry],
          collect() {
            this.set(plans);
          },
        });
      },
      routes: (app) => {
        app.put<{ Params: { name: string } }>(
          '/sample/:name',
          { config: { audit: ({ params }) => ({ params }) } },
          async (request, reply) => {
            const row = { name: request.params.name, size: Number(request.body) };
            db.write([samples], (txn) => txn.upsert(samples, row));
            datapath.map(counts.name).update(bytes(count()), bytes(row.size));
            return reply.code(204).send();
          },
        );
      },
      running: [
        {
          name: 'sample-worker',
          title: 'Sample worker',
          start: worker({ module: new URL('sample-worker.ts', import.meta.url) }),
        },
      ],
      addresses: [{ name: 'sample', after: 'apiserver', table: sites }],
      steps: [
        {
          name: 'samples',
          after: 'rules in force',
          run() {
            plans += 1;
            return false;
          },
        },
      ],
      events: [{ kind: 16, verdict: 'readdressed', decode: readdressed }],
      hooks: {
        sample: [
          { at: 'from-pod', program: 'sample_from_pod' },
          { at: 'to-pod', program: 'sample_to_pod' },
          { at: 'cgroup', program: 'sample_connect', attach: 'connect4' },
          { at: 'interfaces', program: 'sample_uplink', direction: 'ingress', interfaces: () => [LOOPBACK] },
        ],
      },
      settings: { 'sample-limit': String(config.sampleLimit) },
      removal: { runtime: async () => ['the samples'] },
    };
  },
});

/** A packet that was sent to the other address of a pod. */
function readdressed(record: Uint8Array, names: EventNames): FlowEvent {
  const view = Buffer.from(record);
  const nobody = { address: '', identity: 0 };
  return {
    time: names.time(view.readBigUInt64LE(0)),
    verdict: 'readdressed',
    direction: 'egress',
    endpoint: 0,
    source: nobody,
    destination: names.peer(record.subarray(12, 16), 0),
    protocol: 'UDP',
    reason: 'sample',
    message: 'The packet was sent to another address of a pod.',
    policies: [],
    revision: 0,
  };
}

export const addSampleCommand: AddCommands = (program, context) => {
  program
    .command('sample')
    .description('Makes a sample')
    .argument('<name>')
    .argument('<size>')
    .action(async (name: string, size: string, _options, command: Command) => {
      await context.client(command).send('PUT', `/sample/${name}`, Number(size));
      context.out.write(`sample ${name} is there\n`);
    });
};

function u32(from: Uint8Array): number {
  return Buffer.from(from).readUInt32LE(0);
}

function bytes(value: number): Uint8Array {
  const out = Buffer.alloc(4);
  out.writeUInt32LE(value);
  return out;
}
