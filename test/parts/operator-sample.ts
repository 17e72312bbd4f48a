/** A part of the operator that brings one of nearly everything, as somebody would write who has read only `operator/parts/contract.ts`. */
import type { KubeObject, Resource } from '@weir/kube';
import { flag } from '@weir/process/flags';
import { Gauge } from 'prom-client';
import { tableSink } from '../../operator/kubernetes/reflect.ts';
import { definePart, type Source } from '../../operator/parts/contract.ts';
import { tablesPart } from '../../operator/tables-part.ts';
import { tenantLogPart } from '../../operator/tenant-log-part.ts';

/** Key: `name`. */
interface Sample {
  readonly name: string;
}

export const configMaps: Resource<KubeObject> = {
  group: '',
  version: 'v1',
  kind: 'ConfigMap',
  plural: 'configmaps',
  namespaced: true,
};

export const operatorSamplePart = definePart({
  name: 'sample',
  needs: { tables: tablesPart, tenantLog: tenantLogPart },
  flags: {
    sampleLimit: flag<number>('--sample-limit <number>', 'how many samples there may be').default(2).argParser(Number),
  },
  settings: { firstSample: 'one' },
  build: ({ tables, tenantLog }, { config, db }) => {
    const samples = db.table<Sample>({ name: 'samples', key: ({ name }) => name });
    const count = (): number => {
      using snapshot = db.read();
      return snapshot.count(samples) + snapshot.count(tables.policies);
    };
    const asked: Source = {
      resource: configMaps,
      list: { labelSelector: 'weir.dev/sample' },
      sink: tableSink({
        db,
        table: samples,
        name: 'samples',
        key: ({ metadata }) => metadata.name,
        row: ({ metadata }) => ({ name: metadata.name }),
        mine: ({ name }) => name !== config.firstSample,
        onBad: (object, error) => tenantLog.objectUnreadable('samples', object, error),
      }),
    };
    return {
      sources: [asked],
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
