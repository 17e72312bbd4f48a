import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { makeCertificate } from '../../shared/process/testing/certificates.ts';
import { createWorld, eventually, type World } from './world.ts';

let folder: string;
let world: World;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-operator-metrics-'));
  world = await createWorld();
});
afterEach(async () => {
  await world.stop();
  await rm(folder, { recursive: true });
});

async function scrape(port: number | undefined, ca: string, headers = {}): Promise<string> {
  const target = { host: '127.0.0.1', port, servername: 'localhost', path: '/metrics', ca, headers, agent: false };
  return new Promise((resolve, reject) => {
    const sent = request(target, (response) => {
      text(response).then((body) => resolve(`${response.statusCode} ${body}`), reject);
    });
    sent.on('error', reject);
    sent.end();
  });
}

it('metrics by TLS are for who may get them, probes for anybody', async () => {
  const operator = await world.operator({
    healthAddress: '127.0.0.1:0',
    metricsAddress: '127.0.0.1:0',
    metricsCertPath: folder,
  });
  const probe = async (path: string): Promise<number> =>
    (await fetch(`http://127.0.0.1:${operator.healthPort}/${path}`)).status;
  // Without a certificate there is no port, and an operator all the same.
  expect(operator.metricsPort).toBeUndefined();
  expect(await probe('metrics')).toBe(404);
  await eventually(async () => expect(await probe('healthz')).toBe(200));
  await operator.stop();

  const ca = await makeCertificate(folder);
  const secured = await world.operator({ metricsAddress: '127.0.0.1:0', metricsCertPath: folder });
  expect(await scrape(secured.metricsPort, ca)).toMatch(/^401 send the token/);
  // The embedded API server reviews no tokens: nobody gets anything.
  expect(await scrape(secured.metricsPort, ca, { authorization: 'Bearer x' })).toMatch(
    /^503 the API server cannot be asked .*tokenreviews/,
  );
});
