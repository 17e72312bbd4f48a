import { expect, it } from '@jest/globals';
import { pino } from 'pino';
import { TenantLog } from './tenant-log.ts';

it('names a node that reports too many addresses, the count and the limit, ten times a minute at most, and counts each time', () => {
  const lines: Record<string, unknown>[] = [];
  const counted: string[] = [];
  const logger = pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const log = new TenantLog(logger, { error: (component) => counted.push(component) });
  for (let n = 0; n < 12; n += 1) log.nodeAddressesLeftOut('n1', 65 + n);
  log.nodeAddressesLeftOut('n2', 65);
  log.stop();
  expect(lines[0]).toMatchObject({ level: 40, node: 'n1', reported: 65, counted: 64 });
  expect(lines.map(({ node, leftOut }) => [node, leftOut])).toEqual([
    ...Array.from({ length: 10 }, () => ['n1', undefined]),
    ['n2', undefined],
    ['n1', 2],
  ]);
  expect(counted).toEqual(Array.from({ length: 13 }, () => 'address'));
});
