/** A part of the operator that brings one of nearly everything, as somebody would write who has read only `operator/parts/contract.ts`. */
import { isDeepStrictEqual } from 'node:util';
import type { KubeObject, Resource } from '@weir/kube';
import { flag } from '@weir/process/flags';
import { derive } from '@weir/statedb';
import { Gauge } from 'prom-client';
import { tableSink } from '../../operator/kubernetes/reflect.ts';
import { objectKey } from '../../operator/kubernetes/target.ts';
import { targetsPart } from '../../operator/kubernetes/targets-part.ts';
import { type DesiredKind, definePart } from '../../operator/parts/contract.ts';
import type { Desired } from '../../operator/tables.ts';
import { tablesPart } from '../../operator/tables-part.ts';
import { tenantLogPart } from '../../operator/tenant-log-part.ts';

/** Key: `name`. */
interface Sample {
  readonly name: string;
  /** Of the ConfigMap that asks for it. */
  readonly namespace?: string;
}

const core = { group: '', version: 'v1', namespaced: true };
/** Ask for a sample. */
export const configMaps: Resource<KubeObject> = { ...core, kind: 'ConfigMap', plural: 'configmaps' };
/** What is written for each that is asked for. */
export const secrets: Resource<Secret> = { ...core, kind: 'Secret', plural: 'secrets' };
const ours = { labelSelector: 'weir.dev/sample' };

interface Secret extends KubeObject {
  readonly data?: Readonly<Record<string, string>>;
}

export function secretOf({ namespace, name }: Sample): Secret {
  const labels = { 'weir.dev/sample': '' };
  const metadata = { name, labels, ...(namespace === undefined ? {} : { namespace }) };
  return { apiVersion: 'v1', kind: 'Secret', metadata, data: { name: btoa(name) } };
}

export const operatorSamplePart = definePart({
  name: 'sample',
  needs: { tables: tablesPart, targets: targetsPart, tenantLog: tenantLogPart },
  flags: {
    sampleLimit: flag<number>('--sample-limit <number>', 'how many samples there may be').default(2).argParser(Number),
  },
  settings: { firstSample: 'one' },
  build: ({ tables, targets, tenantLog }, { config, db }) => {
    const samples = db.table<Sample>({ name: 'samples', key: ({ name }) => name });
    const count = (): number => {
      using snapshot = db.read();
      return snapshot.count(samples) + snapshot.count(tables.policies);
    };
    const desired = db.table<Desired<Sample>>({
      name: 'desiredSamples',
      key: ({ row }) => objectKey(secretOf(row)),
      equals: isDeepStrictEqual,
    });
    // Complete, and so pruned, when all ConfigMaps have been read.
    const derivation = derive(db, {
      name: 'desiredSamples',
      into: desired,
      inputs: [samples],
      fn: (row) => (row.namespace === undefined ? [] : [{ row, touch: 0 }]),
      equals: isDeepStrictEqual,
    });
    const asked = tableSink<KubeObject, Sample>({
      db,
      table: samples,
      name: 'samples',
      key: ({ metadata }) => metadata.name,
      row: ({ metadata: { name, namespace = '' } }) => ({ name, namespace }),
      mine: ({ namespace }) => namespace !== undefined,
      onBad: (object, error) => tenantLog.objectUnreadable('samples', object, error),
    });
    const target = targets.targetOf(desired, { resource: secrets, content: ({ data }: Secret) => data });
    const written: DesiredKind<Sample> = {
      name: 'samples',
      table: desired,
      ownerOf: ({ namespace = '' }) => namespace,
      update: async (row) => void (await target.apply(secretOf(row))),
      delete: (row) => target.remove(objectKey(secretOf(row))),
      prune: async (keys) => {
        for (const key of target.keys()) if (!keys.has(key)) await target.remove(key);
      },
    };
    return {
      sources: [
        { resource: configMaps, list: ours, sink: asked },
        { resource: secrets, list: ours, sink: target },
      ],
      desired: [written],
      webhooks: [
        {
          path: '/samples',
          review: ({ name = '' }) =>
            name === config.firstSample
              ? { allowed: false, message: `${name} is there already` }
              : { allowed: true, warnings: [`${config.sampleLimit} samples at most`] },
        },
      ],
      stop: () => derivation[Symbol.dispose](),
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
