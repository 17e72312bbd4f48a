import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { AddressesExhaustedError, PodCidrError } from './errors.ts';
import { Ipam, podRange } from './ipam.ts';

describe('podRange', () => {
  it('leaves out network, gateway and broadcast', () => {
    expect(podRange('10.1.0.0/24')).toEqual({ first: 0x0a010002, last: 0x0a0100fe });
    expect(podRange('10.1.0.4/30')).toEqual({ first: 0x0a010006, last: 0x0a010006 });
  });
  it.each(['10.1.0.0', '10.1.0.0/31', 'fd00::/64', '10.1.0.00/24', '', 'x/24'])('refuses %j', (cidr) => {
    expect(() => podRange(cidr)).toThrow(PodCidrError);
  });
});

describe('Ipam', () => {
  it('waits for a pod CIDR', () => {
    const ipam = new Ipam({ cidr: () => undefined, inUse: () => [] });
    expect(() => ipam.allocate()).toThrow('not known yet');
    expect(ipam.free()).toBeUndefined();
  });

  it('equals a plain model: the lowest free address, never one twice, exhaustion said', () => {
    const step = fc.oneof(
      fc.record({ do: fc.constant('allocate' as const) }),
      fc.record({ do: fc.constant('attach' as const), at: fc.nat(20) }),
      fc.record({ do: fc.constant('release' as const), at: fc.nat(20) }),
      fc.record({ do: fc.constant('restart' as const) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const cidr = '10.9.8.0/28';
        const all = Array.from({ length: 13 }, (_, at) => `10.9.8.${at + 2}`);
        const table = new Set<string>();
        let reserved: string[] = [];
        const make = (): Ipam => new Ipam({ cidr: () => cidr, inUse: () => table });
        let ipam = make();
        for (const step of steps) {
          if (step.do === 'allocate') {
            const free = all.filter((address) => !table.has(address) && !reserved.includes(address));
            expect(ipam.free()).toBe(free.length);
            if (free.length === 0) expect(() => ipam.allocate()).toThrow(AddressesExhaustedError);
            else {
              const got = ipam.allocate();
              expect(got).toBe(free[0]);
              reserved.push(got);
            }
          } else if (step.do === 'attach') {
            const address = reserved.splice(step.at % Math.max(1, reserved.length), 1)[0];
            if (address === undefined) continue;
            table.add(address);
            ipam.release(address);
          } else if (step.do === 'release') {
            const address = [...table][step.at % Math.max(1, table.size)];
            if (address !== undefined) table.delete(address);
          } else {
            reserved = [];
            ipam = make();
          }
        }
      }),
      { numRuns: 200 },
    );
  });
});
