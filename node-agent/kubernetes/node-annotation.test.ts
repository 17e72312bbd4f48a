import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { ApiError, NODE_ADDRESSES_ANNOTATION } from '@weir/kube';
import { createStateDB, type InitDone, type StateDB, type Table } from '@weir/statedb';
import { eventually } from '../../test/eventually.ts';
import type { LocalAddressRow } from '../node-addresses/part.ts';
import type { NodeRow } from '../tables.ts';
import { quiet } from '../testing/fake-core.ts';
import { Connection } from './connection.ts';
import { NodeAnnotationWriter } from './node-annotation.ts';
import { FakeClient } from './testing/fake-client.ts';

let db: StateDB;
let nodes: Table<NodeRow>;
let local: Table<LocalAddressRow>;
let known: InitDone;
let client: FakeClient;
let connection: Connection;
let writer: NodeAnnotationWriter;
/** By the kubelet. */
let reported: string;

beforeEach(() => {
  db = createStateDB({ freeze: true });
  nodes = db.table<NodeRow>({ name: 'nodes', key: ({ name }) => name });
  local = db.table<LocalAddressRow>({ name: 'localAddresses', key: ({ prefix }) => prefix });
  known = db.initialiser(local, 'kernel');
  client = new FakeClient();
  connection = new Connection(db, quiet);
  // As the reflector of Nodes would.
  client.onWrite = () => reports(reported, annotation());
  writer = new NodeAnnotationWriter({
    ...{ db, client, nodeName: 'n1', nodes, local, connection, log: quiet, intervalMs: 1, againMs: 20 },
  });
  reports('192.0.2.1');
  writer.start();
});
afterEach(async () => {
  await writer.stop();
  connection.stop();
});

function reports(address: string, annotated = ''): void {
  reported = address;
  const further = annotated === '' ? {} : { furtherAddresses: annotated.split(',') };
  db.write([nodes], (txn) => {
    txn.upsert(nodes, { name: 'n1', addresses: [address, 'n1'], podCidrs: [], kubeApiserver: false, ...further });
    txn.upsert(nodes, { name: 'n2', addresses: [], podCidrs: [], kubeApiserver: false });
  });
}
function has(...addresses: readonly string[]): void {
  db.write([local], (txn) => {
    txn.deleteAll(local);
    for (const address of addresses) {
      const prefix = `${address}/${address.includes(':') ? 128 : 32}`;
      txn.upsert(local, { prefix, identity: 1, kind: 'local', device: 'eth0' });
    }
    known(txn);
    known = () => undefined;
  });
}
const annotation = (): string | undefined =>
  client.held.get('nodes/n1')?.metadata.annotations?.[NODE_ADDRESSES_ANNOTATION];
const says = (text: string | undefined): Promise<unknown> =>
  eventually(
    async () => annotation(),
    (found) => found === text,
  );

it('says what the Node does not report, by one write for each change', async () => {
  has('192.0.2.1', '198.51.100.9', '2001:db8::1');
  await says('198.51.100.9,2001:db8::1');
  has('192.0.2.1', '2001:db8::1');
  await says('2001:db8::1');
  // The Node reports it itself by now.
  reports('2001:db8::1', annotation());
  await says('192.0.2.1');
  reports('192.0.2.1', annotation());
  has('192.0.2.1');
  await says(undefined);
  const { applied } = client;
  expect(applied).toBeLessThan(8);
  await sleep(100);
  expect(client.applied).toBe(applied);
  expect(writer.problem()).toBeUndefined();
});

it('leaves what was published until the kernel has been asked, and repairs what others write', async () => {
  reports('192.0.2.1', '198.51.100.9');
  await sleep(60);
  expect(client.applied).toBe(0);
  has('192.0.2.1', '198.51.100.9');
  await sleep(60);
  expect(client.applied).toBe(0);
  reports('192.0.2.1', '203.0.113.1');
  await says('198.51.100.9');
});

it('says that it may not, and tries again', async () => {
  client.failure = new ApiError('may not', { status: 403, reason: 'Forbidden' });
  has('198.51.100.9');
  await eventually(
    async () => writer.problem(),
    (problem) => problem?.includes('take 1 addresses beside those of the Node for world') === true,
  );
  client.failure = undefined;
  await says('198.51.100.9');
  await eventually(
    async () => writer.problem(),
    (problem) => problem === undefined,
  );
});

it('says at most 64, and that there are more', async () => {
  has(...Array.from({ length: 70 }, (_, at) => `198.51.100.${at}`));
  await eventually(
    async () => annotation()?.split(',').length,
    (count) => count === 64,
  );
  expect(writer.problem()).toMatch(/know 64 of 70/);
});

it('is taken off when Weir is', async () => {
  has('198.51.100.9');
  await says('198.51.100.9');
  await writer.remove();
  expect(annotation()).toBeUndefined();
});
