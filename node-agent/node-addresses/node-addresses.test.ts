import { expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { eventually } from '../../test/eventually.ts';
import { CommandError } from '../host/command.ts';
import { recordingLogger } from '../testing/fake-core.ts';
import { NodeAddresses } from './node-addresses.ts';

const routes = (...addresses: readonly string[]): string =>
  JSON.stringify(addresses.map((dst) => ({ type: 'local', dst, dev: 'eth0' })));

it('is complete once both families have been read, and follows what changes', async () => {
  const db = createStateDB({ freeze: true });
  const log = recordingLogger();
  let answer = (_family: string): Promise<string> => Promise.reject(new CommandError('ip', '', 'no such file'));
  const addresses = new NodeAddresses({
    ...{ db, log, inNode: (body) => body(), lookMs: 5 },
    run: (_command, [family = '']) => answer(family),
  });
  const known = (): string[] => {
    using snapshot = db.read();
    return Array.from(snapshot.all(addresses.table), ({ prefix }) => prefix).sort();
  };
  const become = (...expected: readonly string[]): Promise<unknown> =>
    eventually(
      async () => known(),
      (found) => found.join() === expected.join(),
    );
  await addresses.start();
  expect(addresses.problem()).toMatch(/no such file/);
  expect(db.pendingInitialisers(addresses.table)).toEqual(['kernel']);
  expect(log.lines.map(({ level }) => level)).toEqual(['error']);

  answer = (family) => Promise.resolve(family === '-4' ? routes('192.0.2.1') : routes('2001:db8::1'));
  await become('192.0.2.1/32', '2001:db8::1/128');
  expect([addresses.problem(), ...db.pendingInitialisers(addresses.table)]).toEqual([undefined]);

  // A kernel without IPv6, or a namespace without an address of it.
  const none = new CommandError('ip', '', 'Error: ipv6: FIB table does not exist.\nDump terminated');
  answer = (family) => (family === '-4' ? Promise.resolve(routes('192.0.2.2')) : Promise.reject(none));
  await become('192.0.2.2/32');

  // What cannot be read stands.
  answer = () => Promise.reject(new CommandError('ip', '', 'no memory'));
  await eventually(
    async () => addresses.problem(),
    (problem) => problem !== undefined,
  );
  expect(known()).toEqual(['192.0.2.2/32']);
  await addresses.stop();
});
