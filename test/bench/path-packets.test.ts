import { expect, it } from '@jest/globals';
import { TestDatapath } from '@weir/bpf/testing/datapath.ts';
import { ethernet, ipv4, tcp } from '@weir/bpf/testing/packets.ts';
import { packetCosts } from './path-packets.ts';

it('a packet of each row comes to what the row says', async () => {
  const cases: string[] = [];
  for await (const figure of packetCosts({ rounds: 1, repeat: 10, flows: 10 })) cases.push(figure.case);
  expect(cases).toHaveLength(26);
});

it('a packet that comes to something else fails the measurement', () => {
  using datapath = new TestDatapath();
  const packet = ethernet(
    ipv4({ src: '10.0.0.2', dst: '10.0.0.1', protocol: 6, payload: tcp({ sport: 1, dport: 80 }) }),
  );
  const run = () => datapath.run('ingress', packet);
  expect(() => datapath.expecting('ingress', 'forwarded', 1, run)).toThrow(
    'expected 1 forwarded, but counted 1 no-endpoint',
  );
});
