import { EventEmitter } from 'node:events';
import { expect, it } from '@jest/globals';
import { ConnectionPlaces, sourceOf } from './connection-places.ts';

class FakeSocket extends EventEmitter {
  readonly localAddress = '192.0.2.1';
  readonly remoteAddress: string | undefined;
  readonly remotePort: number;
  destroyed = false;

  constructor(remoteAddress: string | undefined, remotePort: number) {
    super();
    this.remoteAddress = remoteAddress;
    this.remotePort = remotePort;
  }

  destroy(): void {
    this.destroyed = true;
    queueMicrotask(() => this.emit('close'));
  }
}

function world(most: number) {
  const closed: string[] = [];
  const places = new ConnectionPlaces({ most, onClosed: (source) => closed.push(source) });
  let port = 0;
  const take = (address: string | undefined, from?: number): FakeSocket => {
    port += 1;
    const socket = new FakeSocket(address, from ?? port);
    places.take(socket);
    return socket;
  };
  /** By the TLS connection above: another object. */
  const judge = ({ remoteAddress, remotePort }: FakeSocket, allowed: boolean): void =>
    places.judge(new FakeSocket(remoteAddress, remotePort), allowed);
  return { take, judge, closed };
}
const open = (sockets: readonly FakeSocket[]) => sockets.map(({ destroyed }) => !destroyed);

it('closes the oldest of the source that has the most, and tells whose', () => {
  const { take, closed } = world(4);
  const sockets = ['c', 'a', 'b', 'a', 'b', 'a'].map((name) => take(`10.0.0.${name.charCodeAt(0)}`));
  // The fifth came when a and b had two each; the sixth made a the first again.
  expect(open(sockets)).toEqual([true, false, false, true, true, true]);
  expect(closed).toEqual(['10.0.0.97', '10.0.0.98']);
});

it('closes nobody who was let in; whoever comes when all were is not served', () => {
  const { take, judge } = world(3);
  const sockets = [1, 2, 3].map(() => take('10.0.0.1'));
  for (const socket of sockets) judge(socket, true);
  const late = take('10.0.0.2');
  expect(open([...sockets, late])).toEqual([true, true, true, false]);
  // A refusal makes a stranger of them again.
  judge(sockets[1] as FakeSocket, false);
  expect(open([take('10.0.0.2'), take('10.0.0.2')])).toEqual([false, true]);
  expect(open(sockets)).toEqual([true, false, true]);
});

it('knows which have gone', async () => {
  const { take, judge } = world(2);
  const sockets = [take('10.0.0.1', 5), take('10.0.0.1', 6)];
  judge(sockets[0] as FakeSocket, true);
  for (const socket of sockets) socket.destroy();
  // From the same port as one whose end has not been told yet.
  const next = take('10.0.0.1', 5);
  await Promise.resolve();
  expect(open([next, take('10.0.0.2')])).toEqual([true, true]);
  expect(open([take('10.0.0.3'), next])).toEqual([true, false]);
  expect(take(undefined).destroyed).toBe(true);
});

it.each([
  ['10.0.0.1', '10.0.0.1'],
  ['::ffff:10.0.0.1', '10.0.0.1'],
  ['fd00::1', 'fd00:0:0:0::/64'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:0:2::6', '2001:db8:0:2::/64'],
  ['1::2:3:4:5:6:7', '1:0:2:3::/64'],
  ['::1', '0:0:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
])('takes %s for one of %s', (address, source) => {
  expect(sourceOf(address)).toBe(source);
});
