import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from '@jest/globals';
import { Registry } from 'prom-client';
import { eventually } from '../../test/eventually.ts';
import { registerMetrics } from './index.ts';

describe('registerMetrics()', () => {
  let registry: Registry;
  beforeEach(() => {
    registry = new Registry();
    registerMetrics(registry);
  });

  /** One scrape. */
  async function scrape(): Promise<(name: string) => number> {
    const text = await registry.metrics();
    return (name) => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]);
  }

  it('shows no lag of an event loop that is idle', async () => {
    await scrape();
    // Whatever else the machine does: some timer comes in time.
    const idle = await eventually(
      scrape,
      (value) => value('nodejs_eventloop_lag_samples') > 0 && value('nodejs_eventloop_lag_min_seconds') < 0.005,
    );
    expect(idle('nodejs_eventloop_lag_min_seconds')).toBeGreaterThanOrEqual(0);
    expect(idle('nodejs_eventloop_lag_min_seconds')).toBeLessThan(0.005);
  });

  /** 300 ms without a break. */
  function block(): void {
    const end = performance.now() + 300;
    while (performance.now() < end);
  }

  it.each([
    ['just before the scrape', async () => block()],
    [
      'just after a scrape',
      async () => {
        await scrape();
        block();
      },
    ],
    [
      'in between',
      async () => {
        await scrape();
        await sleep(100);
        block();
        await sleep(100);
      },
    ],
    [
      'before the timers that were due when it began',
      async () => {
        await scrape();
        setTimeout(() => undefined, 1);
        const blocked = sleep(30).then(block);
        const end = performance.now() + 100;
        while (performance.now() < end);
        await blocked;
      },
    ],
  ])('shows how long it stood still %s, in the scrape that follows and in no later one', async (_, happen) => {
    await scrape();
    await happen();
    const blocked = await scrape();
    expect(blocked('nodejs_eventloop_lag_max_seconds')).toBeGreaterThan(0.25);
    expect(blocked('nodejs_eventloop_utilization_ratio')).toBeGreaterThan(0);
    const later = await eventually(scrape, (value) => value('nodejs_eventloop_lag_max_seconds') < 0.25);
    expect(later('nodejs_eventloop_lag_max_seconds')).toBeLessThan(0.25);
  });

  it('shows the process and its memory', async () => {
    const value = await scrape();
    expect(value('process_resident_memory_bytes')).toBeGreaterThan(0);
    expect(value('nodejs_heap_size_used_bytes')).toBeGreaterThan(0);
    expect(value('nodejs_eventloop_lag_mean_seconds')).toBeGreaterThanOrEqual(0);
  });
});
