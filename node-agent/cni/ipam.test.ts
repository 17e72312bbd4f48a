import { mkdirSync, writeFileSync } from 'node:fs';
import { beforeEach, describe, expect, it } from '@jest/globals';
import { REST_MS } from './address-leases.ts';
import { AddressesExhaustedError, AddressesRestingError, PodCidrError } from './errors.ts';
import { Ipam, podRange } from './ipam.ts';
import { ALL, CIDR, Node, withFiles } from './testing/ipam-node.ts';

describe('podRange', () => {
  it('leaves out network, gateway and broadcast', () => {
    expect(podRange('10.1.0.0/24')).toEqual({ family: 4, first: 0x0a010002n, last: 0x0a0100fen });
    expect(podRange('10.1.0.4/30')).toEqual({ family: 4, first: 0x0a010006n, last: 0x0a010006n });
  });
  it("leaves out the routers' anycast address and the gateway in IPv6, which has no broadcast", () => {
    const base = 0xfdn << 120n;
    expect(podRange('fd00::/64')).toEqual({ family: 6, first: base + 2n, last: base + 0xffff_ffff_ffff_ffffn });
    expect(podRange('fd00::4/126')).toEqual({ family: 6, first: base + 6n, last: base + 7n });
  });
  it.each(['10.1.0.0', '10.1.0.0/31', 'fd00::/127', 'fd00::', '10.1.0.00/24', '', 'x/24'])('refuses %j', (cidr) => {
    expect(() => podRange(cidr)).toThrow(PodCidrError);
  });
  it.each(['::ffff:10.0.0.0/112', 'fe80::/64', 'ff05::/64', '::/96', '127.0.0.0/24', '169.254.0.0/24', '224.0.0.0/24'])(
    'refuses %j, where no pod can have an address',
    (cidr) => {
      expect(() => podRange(cidr)).toThrow(`pod CIDR "${cidr}" has addresses that no pod can have`);
    },
  );
  it.each(['10.0.0.0/8', '100.64.0.0/24', 'fc00::/7', '2001:db8::/64', '64:ff9b::/96'])('takes %j', (cidr) => {
    expect(podRange(cidr).last).toBeGreaterThan(0n);
  });
});

describe('Ipam', () => {
  it('waits for a pod CIDR', () => {
    const { db, tables, leases } = new Node();
    const ipam = new Ipam({ db, tables, leases, cidrs: () => [] });
    expect(() => ipam.allocate({ kernel: [] })).toThrow('not known yet');
  });

  it('goes round, over restarts too, and does not begin again at the lowest', () => {
    const node = new Node();
    expect([node.add('a'), node.add('b')]).toEqual([ALL[0], ALL[1]]);
    node.remove(ALL[0] ?? '');
    node.remove(ALL[1] ?? '');
    node.restart();
    node.now += 10 * REST_MS;
    expect(node.add('c')).toBe(ALL[2]);
    for (const address of ALL.slice(3)) expect(node.add('d')).toBe(address);
    expect(node.add('e')).toBe(ALL[0]);
  });

  it('rests an address 30 s, as the documents say', () => {
    const node = new Node('10.9.8.0/30');
    const [address = ''] = ALL;
    expect(node.add('a')).toBe(address);
    node.remove(address);
    node.now += 29_999;
    expect(() => node.add('b')).toThrow(AddressesRestingError);
    node.now += 1;
    expect(node.add('b')).toBe(address);
  });

  it.each(['192.168.77.5', '10.9.8.0', '10.9.8.1', '10.9.8.15'])(
    'gives a container that is asked for again an address of the pod CIDR, not %s that it had',
    (before) => {
      const node = new Node();
      expect(node.add('a', before)).toBe(ALL[0]);
    },
  );

  it('moves on after an ADD that failed, and its address need not rest', () => {
    const node = new Node('10.9.8.0/29');
    for (const address of [2, 3, 4, 5, 6, 2]) {
      const got = node.ipam.allocate({ podUid: 'p', kernel: [] });
      expect(got).toEqual([`10.9.8.${address}`]);
      node.ipam.release(got);
    }
  });

  describe('a pod that other nodes judge as the one before', () => {
    const WEB = '300 http=80/TCP';
    const web = (node: Node, name: string): string =>
      node.ipam.allocate({ podUid: name, kernel: [...node.kernel.values()], knownAs: WEB })[0] ?? '';
    let node: Node;
    let used: string;
    beforeEach(() => {
      node = new Node('10.9.8.0/29');
      used = node.add('old');
      node.slice('old', used, 'old', [{ name: 'http', port: 80, protocol: 'TCP' }]);
      for (let at = 3; at <= 6; at++) node.add(`p${at}`);
    });

    it('gets an address that rests, once no slice names it', () => {
      node.remove(used);
      expect(() => web(node, 'new')).toThrow('1 of other pods by CiliumEndpointSlices');
      node.slice('old', undefined);
      expect(() => node.add('other')).toThrow(AddressesRestingError);
      expect(web(node, 'new')).toBe(used);
    });

    it('gets it after a restart of the agent, too', () => {
      node.remove(used);
      node.slice('old', undefined);
      node.restart();
      expect(web(node, 'new')).toBe(used);
    });

    it('gets one that has rested before one that rests', () => {
      node.remove('10.9.8.6');
      node.now += REST_MS;
      node.remove(used);
      node.slice('old', undefined);
      expect(web(node, 'new')).toBe('10.9.8.6');
    });

    it.each([
      ['another identity', 301, 80],
      ['another port of a name', 300, 81],
    ])('is none that has %s', (_what, identity, port) => {
      node.remove(used);
      node.slice('old', undefined);
      const knownAs = `${identity} http=${port}/TCP`;
      expect(() => node.ipam.allocate({ podUid: 'new', kernel: [], knownAs })).toThrow(AddressesRestingError);
    });

    it('waits where slices said two things of the address, or nothing', () => {
      node.slice('twin', used, 'twin');
      node.remove(used);
      for (const name of ['old', 'twin']) node.slice(name, undefined);
      expect(() => web(node, 'new')).toThrow(AddressesRestingError);
      node.remove('10.9.8.3');
      expect(() => web(node, 'new')).toThrow(AddressesRestingError);
    });
  });

  it('says try later while the last addresses rest, and who has them when they never will be free', () => {
    const node = new Node('10.9.8.0/29');
    for (let at = 2; at <= 6; at++) node.add(`p${at}`);
    expect(() => node.add('p')).toThrow(AddressesExhaustedError);
    expect(() => node.add('p')).toThrow('all 5 are in use (5 in use by endpoints of this node)');
    node.remove('10.9.8.4');
    expect(() => node.add('p')).toThrow(AddressesRestingError);
    expect(() => node.add('p')).toThrow('of its 5, 4 in use by endpoints of this node, 1 released lately and resting');
    expect(node.ipam.hasFree('10.9.8.0/29', [])).toBe(true);
    node.now += REST_MS;
    node.slice('gone', '10.9.8.4', 'gone');
    expect(() => node.add('p')).toThrow('1 of other pods by CiliumEndpointSlices');
    node.slice('gone', undefined);
    expect(node.add('p')).toBe('10.9.8.4');
    expect(node.ipam.hasFree('10.9.8.0/29', [])).toBe(false);
  });

  it('gives the container that asks again its own address, and nobody else', () => {
    const node = new Node('10.9.8.4/30');
    expect(node.add('p')).toBe('10.9.8.6');
    node.remove('10.9.8.6');
    expect(() => node.add('q')).toThrow(AddressesRestingError);
    expect(node.add('p', '10.9.8.6')).toBe('10.9.8.6');
    expect(() => node.add('p', '10.9.8.6')).toThrow(AddressesExhaustedError);
  });

  it('lets all addresses rest when it lost the record of a node that has pods', () => {
    const node = new Node();
    const kept = node.add('kept');
    node.remove(node.add('gone'));
    expect(node.leases.restsFor).toBe(0);
    node.restart(true);
    node.now += 8_001;
    expect(() => node.add('p')).toThrow(
      expect.objectContaining({
        message: expect.stringMatching(
          /of its 13, 12 at rest for 22 s more \(the record of lately released addresses is lost\), 1 in use by endpoints of this node$/,
        ),
        details: 'kubelet tries again by itself',
      }),
    );
    expect(node.leases.restsFor).toBe(REST_MS - 8_001);
    node.remove(kept);
    for (const said of ['12 at rest for 22 s more', '1 released lately and resting'])
      expect(() => node.add('p')).toThrow(said);
    node.attach(kept);
    // The next one has the record of one that knew nothing.
    node.restart();
    expect(() => node.add('p')).toThrow(AddressesRestingError);
    node.now += REST_MS;
    expect(node.leases.restsFor).toBe(0);
    expect([...ALL].filter((address) => address !== kept)).toContain(node.add('p'));
  });

  it('lets all addresses rest when it lost the record of a node whose last pod has just gone', () => {
    const node = new Node();
    node.remove(node.add('gone'));
    node.restart(true);
    expect(() => node.add('p')).toThrow(AddressesRestingError);
    node.now += REST_MS;
    expect(ALL).toContain(node.add('p'));
  });

  it.each([
    ['torn', '{"version":1,"content":[{"addr'],
    [
      'with an order that none can follow',
      `{"version":1,"content":{"restsUntil":0,"rows":[{"address":"10.0.0.2","order":${Number.MAX_SAFE_INTEGER}}]}}`,
    ],
    ['of something else', '{"version":1,"content":{"restsUntil":0,"rows":[{"address":"fd00::01","order":1}]}}'],
  ])('lets all addresses rest when the record is %s', (_what, text) =>
    withFiles(async (files, path) => {
      writeFileSync(path, text);
      const [mine, next] = [files(), files()];
      const node = new Node(CIDR, mine);
      expect(() => node.add('p')).toThrow(AddressesRestingError);
      node.now += REST_MS;
      expect(node.add('p')).toBe(ALL[0]);
      await mine.saved();
      expect(next.load('addresses')).toMatchObject({ content: { rows: [{ address: ALL[0], order: 1, endpoint: 1 }] } });
    }),
  );

  it('keeps on disk that an address of an ADD that failed need not rest', () =>
    withFiles(async (files) => {
      const mine = files();
      const node = new Node(CIDR, mine);
      const failing = ALL[3] ?? '';
      node.leases.give(failing);
      node.add('other');
      // Nothing else is to be written when the ADD ends.
      await mine.saved();
      node.leases.settle(failing);
      await mine.saved();
      expect(files().load('addresses')).toMatchObject({
        content: { rows: expect.arrayContaining([{ address: failing, order: 1, freedAt: 0 }]) },
      });
    }));

  it('lets all addresses rest when the record could not be written, as another one would be older', () =>
    withFiles(async (files, path) => {
      const mine = files();
      const node = new Node(CIDR, mine);
      node.add('first');
      await mine.saved();
      // A folder in the place of the temporary file: the next writing fails, and what is there stays.
      mkdirSync(`${path}.next/x`, { recursive: true });
      node.remove(node.add('second'));
      await mine.saved();
      expect(mine.check()).toMatchObject({ ok: false, message: expect.stringContaining(`${path} cannot be written`) });
      expect(node.leases.state(ALL[1] ?? '')).toBe('rest');
      await mine.stop();
      node.restart(false, files());
      expect(() => node.add('p')).toThrow(AddressesRestingError);
    }));

  describe('on a node of two families', () => {
    const RANGES = ['10.9.8.0/29', 'fd00:9:8::/64'];

    it('gives one address of each, each in a circle of its own, over restarts too', () => {
      const node = new Node(RANGES);
      expect(node.addAll('a')).toEqual(['10.9.8.2', 'fd00:9:8::2']);
      expect(node.addAll('b')).toEqual(['10.9.8.3', 'fd00:9:8::3']);
      node.remove('10.9.8.3');
      node.restart();
      node.now += 10 * REST_MS;
      expect(node.addAll('c')).toEqual(['10.9.8.4', 'fd00:9:8::4']);
      for (const [four, six] of [
        [5, 5],
        [6, 6],
        [3, 7],
      ])
        expect(node.addAll(`p${six}`)).toEqual([`10.9.8.${four}`, `fd00:9:8::${six}`]);
    });

    it('gives none where one family has none, and none of the other is held meanwhile', () => {
      const node = new Node(['10.9.8.0/29', 'fd00:9:8::/126']);
      expect([node.addAll('a'), node.addAll('b')]).toEqual([
        ['10.9.8.2', 'fd00:9:8::2'],
        ['10.9.8.3', 'fd00:9:8::3'],
      ]);
      for (let at = 0; at < 9; at++)
        expect(() => node.addAll('c')).toThrow(/pod CIDR fd00:9:8::\/126: all 2 are in use/);
      node.remove('fd00:9:8::2');
      expect(() => node.addAll('c')).toThrow(AddressesRestingError);
      node.now += REST_MS;
      expect(node.addAll('c')[1]).toBe('fd00:9:8::2');
    });

    it('gives a container that asks again its own, though they rest', () => {
      const node = new Node(RANGES);
      const had = node.addAll('a');
      node.remove(had[1] ?? '');
      expect(node.addAll('b')).toEqual(['10.9.8.3', 'fd00:9:8::3']);
      expect(node.addAll('a', had)).toEqual(had);
      expect(node.addAll('c', ['192.0.2.1', 'fd00:9:9::2'])).toEqual(['10.9.8.4', 'fd00:9:8::4']);
    });

    it('passes over what others have in a range that nobody can count through', () => {
      const node = new Node(['fd00:9:8::/64']);
      node.route('fd00:9:8::/65', true);
      node.slice('other', 'fd00:9:8:0:8000::', 'other');
      expect(node.add('a')).toBe('fd00:9:8:0:8000::1');
      node.route('fd00:9:8:0:8000::/65', true);
      expect(() => node.add('b')).toThrow(/of its 18446744073709551614, 18446744073709551612 routed/);
      node.slice('other', undefined);
      node.route('fd00:9:8:0:8000::/128', true);
      expect(() => node.add('b')).toThrow('all 18446744073709551614 are in use');
      expect(node.ipam.hasFree('fd00:9:8::/64', [...node.kernel.values()])).toBe(false);
    });

    it('says that all addresses rest where the record is lost, without looking at each', () => {
      const node = new Node(['fd00:9:8::/64']);
      node.add('kept');
      node.restart(true);
      expect(() => node.add('a')).toThrow(/at rest for 30 s more/);
      node.now += REST_MS;
      expect(node.add('a')).toBe('fd00:9:8::3');
    });
  });
});
