/** A part of the operator that brings one of nearly everything, as somebody would write who has read only `operator/parts/contract.ts`. */
import { flag } from '@weir/process/flags';
import { Gauge } from 'prom-client';
import { definePart } from '../../operator/parts/contract.ts';
import { tablesPart } from '../../operator/tables-part.ts';

/** Key: `name`. */
interface Sample {
  readonly name: string;
}

export const operatorSamplePart = definePart({
  name: 'sample',
  needs: { tables: tablesPart },
  flags: {
    sampleLimit: flag<number>('--sample-limit <number>', 'how many samples there may be').default(2).argParser(Number),
  },
  settings: { firstSample: 'one' },
  build: ({ tables }, { config, db }) => {
    const samples = db.table<Sample>({ name: 'samples', key: ({ name }) => name });
    const count = (): number => {
      using snapshot = db.read();
      return snapshot.count(samples) + snapshot.count(tables.policies);
    };
    return {
      start: () => db.write([samples], (txn) => void txn.upsert(samples, { name: config.firstSample })),
      unready: () => (count() < config.sampleLimit ? undefined : `${count()} samples of ${config.sampleLimit}`),
      metrics: (registry) => {
        new Gauge({
          name: 'weir_operator_samples',
          help: 'Samples that there are.',
          registers: [registry],
          collect() {
            this.set(count());
          },
        });
      },
    };
  },
});
