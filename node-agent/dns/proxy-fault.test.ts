import { describe, expect, it } from '@jest/globals';
import { rule } from '../derive/testing/model-world.ts';
import { addressed, node } from '../realised/testing/reported-node.ts';
import { ProxyFault } from './proxy-fault.ts';

describe('a node whose DNS proxy does not answer', () => {
  async function asking() {
    const made = node();
    const { world } = made;
    let now = 0;
    const fault = new ProxyFault(world, () => now);
    addressed(world, 'a1', '10.0.0.9');
    world.pod('a1', 'a');
    world.endpoint(1, { pod: { namespace: 'ns', name: 'a1', uid: 'u-a1' } });
    world.policy('asks', 1, [{ ...rule('a', 'b', 8), verdict: 'redirect', dns: ['*'] }]);
    world.policy('named', 2, [{ ...rule('a', undefined, 9), peers: [{ fqdn: 'api.example.com' }] }]);
    world.policy('elsewhere', 3, [{ ...rule('c', 'b', 10), verdict: 'redirect', dns: ['*'] }]);
    world.peerSet('c', []);
    await world.plan();
    const look = (atMs: number, problem?: string): void => {
      now = atMs;
      fault.look(problem);
    };
    return { ...made, look, fault };
  }
  const failing = (message: string) =>
    ['asks', 'named'].map((uid, index) => ({ uid, generation: index + 1, reason: 'DnsProxyFailing', message }));

  it('fails the policies of its pods that need it, once that lasts, and until it answers', async () => {
    const { failures, look } = await asking();
    look(1000, 'it has gone');
    look(5999, 'it has gone');
    expect(await failures(0)).toEqual([]);
    look(6000, 'it has gone');
    const why = 'DNS rules let nothing pass, and no address of a name is learned, as the DNS proxy fails';
    expect(await failures(1)).toEqual(failing(`${why}: it has gone`));
    look(7000);
    expect(await failures(2)).toEqual([]);
    look(8000, 'connection refused');
    expect(await failures(3)).toEqual([]);
  });

  it('says at once that there is none', async () => {
    const { failures, fault } = await asking();
    fault.say('there is none');
    expect(await failures(0)).toEqual(failing('there is none'));
  });
});
