/**
 * The traffic process: every host sends numbered packets to every other, all the time, and notes what comes. It knows nothing of
 * policies. Child of a run, with an IPC channel; ends with it.
 */
import { now } from '../clock.ts';
import { Pair } from './pair.ts';
import type { TrafficCommand, TrafficHost, TrafficReport } from './protocol.ts';
import { type Ears, Station } from './station.ts';

/** Time between two packets of one pair and kind. */
const INTERVAL_MS = Number(process.argv[2] ?? 250);
const TICK_MS = 10;
const REPORT_MS = 100;

type Writable<T> = { -readonly [K in keyof T]: T[K] extends readonly (infer E)[] ? E[] : T[K] };
const emptyReport = (): Writable<TrafficReport> => ({
  flows: [],
  sent: [],
  received: [],
  echoed: [],
  lost: [],
  void: [],
  upTo: 0,
});

let report = emptyReport();
let numbers = 0;
let flows = 0;
const ears: Ears = {
  flow: (flow) => {
    flows += 1;
    report.flows.push({ id: flows, ...flow });
    return flows;
  },
  sent: (flow) => {
    numbers += 1;
    report.sent.push([numbers, flow, now()]);
    return numbers;
  },
  received: (number, host) => report.received.push([number, host, now()]),
  line: (number, host, from) => {
    report.received.push([number, host, now()]);
    pairs.get(`${from} ${host}`)?.arrived(number);
  },
  echoed: (number) => report.echoed.push([number, now()]),
  lost: (number) => report.lost.push([number, now()]),
  void: (number) => report.void.push(number),
};

const stations = new Map<number, Station>();
const pairs = new Map<string, Pair>();

function arrive(host: TrafficHost): void {
  const station = new Station(host, ears);
  for (const other of stations.values())
    for (const [from, to] of [
      [station, other],
      [other, station],
    ] as const)
      pairs.set(`${from.host.id} ${to.host.id}`, new Pair(from, to, ears, { intervalMs: INTERVAL_MS, at: now() }));
  stations.set(host.id, station);
}

function leave(id: number): void {
  for (const [key, pair] of pairs) {
    if (pair.from.host.id !== id && pair.to.host.id !== id) continue;
    pair.close();
    pairs.delete(key);
  }
  stations.get(id)?.close();
  stations.delete(id);
}

process.on('message', (command: TrafficCommand) => {
  if (command.do === 'host') arrive(command.host);
  else leave(command.id);
});
process.on('disconnect', () => process.exit(0));
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => process.exit(0));

setInterval(() => {
  for (const pair of pairs.values()) pair.tick(now());
}, TICK_MS);

/** Timers run before what has come in is read: only what came before the last report is surely in this one. */
let lastReport = now();
setInterval(() => {
  report.upTo = lastReport;
  lastReport = now();
  process.send?.(report);
  report = emptyReport();
}, REPORT_MS);
process.send?.(report);
