/** Flows that run while something happens to the cluster, and the account of their packets. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { OpenStream } from '../cluster/pod/conversation.ts';
import type { TestCluster } from '../cluster/types.ts';
import { eventually } from '../eventually.ts';

export interface TrafficSpec {
  /** Hosts whose flows a policy allows, or forbids, to reach `to`. */
  readonly allowed: readonly string[];
  readonly denied: readonly string[];
  readonly to: string;
  readonly tcp: number;
  readonly udp: number;
}

/** What came out; `lost` and `leaked` name flows, empty when every packet is accounted for. */
export interface Account {
  /** Allowed: packets without an answer, or a new connection that failed. The last packet may still be on its way. */
  readonly lost: readonly string[];
  /** The same, since `mark` was called. */
  readonly lostSince: readonly string[];
  /** Denied: an answer came, or a connection was made. */
  readonly leaked: readonly string[];
  /** Packets of the quietest allowed flow, and new connections tried: an account of nothing proves nothing. */
  readonly packets: number;
  readonly connections: number;
}

/** Open UDP and TCP flows of every host, a packet each 5 ms; and new TCP connections all the time. */
export class Traffic {
  readonly #cluster: TestCluster;
  readonly #spec: TrafficSpec;
  readonly #streams: { readonly name: string; readonly denied: boolean; readonly stream: OpenStream }[] = [];
  readonly #faults = { lost: [] as string[], lostSince: [] as string[], leaked: [] as string[] };
  /** By flow: packets that had no answer when `mark` was called. */
  readonly #before = new Map<string, number>();
  #marked = false;
  #connections = 0;
  #going = true;
  #probing: Promise<unknown> = Promise.resolve();

  private constructor(cluster: TestCluster, spec: TrafficSpec) {
    this.#cluster = cluster;
    this.#spec = spec;
  }

  static async start(cluster: TestCluster, spec: TrafficSpec): Promise<Traffic> {
    const traffic = new Traffic(cluster, spec);
    const { address } = await cluster.host(spec.to);
    for (const from of [...spec.allowed, ...spec.denied]) {
      const { process } = await cluster.host(from);
      for (const [protocol, port] of [
        ['udp', spec.udp],
        ['tcp', spec.tcp],
      ] as const)
        traffic.#streams.push({
          name: `${from} -> ${spec.to} ${protocol} ${port}`,
          denied: spec.denied.includes(from),
          stream: await process.stream(protocol, address, port),
        });
    }
    traffic.#probing = Promise.all([...spec.allowed, ...spec.denied].map((from) => traffic.#probe(from, address)));
    return traffic;
  }

  async #probe(from: string, address: string): Promise<void> {
    const denied = this.#spec.denied.includes(from);
    while (this.#going) {
      const marked = this.#marked;
      const answer = await this.#cluster.probe(from, address, {
        port: this.#spec.tcp,
        timeoutMs: denied ? 300 : 3000,
      });
      this.#connections += 1;
      const at = new Date().toISOString();
      if (denied && answer === 'reached') this.#faults.leaked.push(`${from} connected at ${at}`);
      if (!denied && answer !== 'reached') {
        const what = `${from} could not connect at ${at}: ${answer}`;
        this.#faults.lost.push(what);
        if (marked) this.#faults.lostSince.push(what);
      }
      await sleep(20);
    }
  }

  /** Waits until so much has been sent and tried that an account of it proves something. */
  async seen(packets: number, connections: number): Promise<void> {
    await eventually(
      async () => {
        const reports = await Promise.all(this.#streams.map(({ stream }) => stream.report()));
        return { sent: reports.map(({ sent }) => sent), connections: this.#connections };
      },
      (so) => so.connections > connections && so.sent.every((sent) => sent > packets),
    );
  }

  /** What is lost from here on is told apart. */
  async mark(): Promise<void> {
    for (const { name, stream } of this.#streams) {
      const { sent, echoed } = await stream.report();
      this.#before.set(name, sent - echoed);
    }
    this.#marked = true;
  }

  async stop(): Promise<Account> {
    this.#going = false;
    await this.#probing;
    const lost = [...this.#faults.lost];
    const lostSince = [...this.#faults.lostSince];
    const leaked = [...this.#faults.leaked];
    let packets = Number.POSITIVE_INFINITY;
    for (const { name, denied, stream } of this.#streams) {
      const { sent, echoed } = await stream.close();
      if (denied && echoed > 0) leaked.push(`${name}: ${echoed} of ${sent} packets were answered`);
      if (denied) continue;
      packets = Math.min(packets, echoed);
      const missing = sent - echoed;
      if (missing > 1) lost.push(`${name}: ${missing} of ${sent} packets had no answer`);
      const since = missing - (this.#before.get(name) ?? 0);
      if (since > 1) lostSince.push(`${name}: ${since} packets had no answer any more`);
    }
    return { lost, lostSince, leaked, packets, connections: this.#connections };
  }
}
