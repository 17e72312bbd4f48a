/** `node --expose-gc services-own.ts CASE`: Services from input tables into maps of the kernel, in a process of its own. */
import { createStateDB } from '@weir/statedb';
import { createMap } from 'libbpf-ts';
import { createTables } from '../../node-agent/create-tables.ts';
import { silent } from '../../node-agent/datapath/testing/lab.ts';
import { SERVICE_MAPS } from '../../node-agent/services/maps.ts';
import { Services } from '../../node-agent/services/services.ts';
import { quantile } from './report.ts';
import { backendsOf, fill, sliceOf } from './services-loads.ts';
import { collect, type Measured, printCase } from './statedb-measure.ts';

const BACKENDS = 10;
const CHANGES = 2000;
const WARM_UPS = 200;

async function* measure(count: number): AsyncGenerator<Measured> {
  const maps = new Map<string, ReturnType<typeof createMap>>(SERVICE_MAPS.map((spec) => [spec.name, createMap(spec)]));
  const map = (name: string): ReturnType<typeof createMap> => {
    const found = maps.get(name);
    if (found === undefined) throw new Error(`no map ${name}`);
    return found;
  };
  const db = createStateDB();
  const services = new Services({ db, map, nodes: createTables(db).nodes, nodeName: 'n1', log: silent });
  services.start();
  await collect();
  const begin = performance.now();
  const cpu = process.cpuUsage();
  fill(db, services.tables, count, (service) => backendsOf(service, BACKENDS));
  await services.settled();
  const whole = performance.now() - begin;
  const { user, system } = process.cpuUsage(cpu);
  const there = [...map('svc_backends').keys()].length;
  if (there !== count * BACKENDS) throw new Error(`${there} backends instead of ${count * BACKENDS}`);
  const { slices } = services.tables;
  const times: number[] = [];
  for (let change = 0; change < WARM_UPS + CHANGES; change += 1) {
    const service = (change * 7919) % count;
    const start = performance.now();
    db.write([slices], (txn) => {
      txn.upsert(slices, sliceOf(service, backendsOf(service, BACKENDS, 100 + (change % 28))));
    });
    await services.settled();
    if (change >= WARM_UPS) times.push(performance.now() - start);
  }
  await services.stop();
  yield { case: 'into empty maps', value: whole, unit: 'ms' };
  // Beside neighbours this says more.
  yield { case: 'CPU time of that', value: (user + system) / 1000, unit: 'ms' };
  yield { case: 'one endpoint changed, p50', value: quantile(times, 0.5), unit: 'ms' };
  yield { case: 'one endpoint changed, p99', value: quantile(times, 0.99), unit: 'ms' };
}

await printCase({ '100': () => measure(100), '1000': () => measure(1000), '10000': () => measure(10_000) });
