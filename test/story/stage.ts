/**
 * Where a story is played: a cluster, somebody who listens to what happens (the demo prints, the test collects), and the words that
 * the steps are written in. A probe whose answer is not the expected one is recorded as a fault, never passed over.
 */
import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { isIP } from 'node:net';
import { createInterface } from 'node:readline';
import { type Family, familyOf } from '@weir/net';
import { Cluster, type PodSpec, type ProbeProtocol, type TestCluster } from '../cluster/index.ts';
import { reachability } from './table.ts';

export interface Listener {
  /** A step begins. */
  title(text: string): void;
  /** What was done, or seen. */
  say(text: string): void;
  /** Something is not as it must be. */
  fault(text: string): void;
}

/** A destination of a table: `app1:80`, `app1:53/udp`, `203.0.113.9:80`. */
export type Destination = string;

export interface Expectation {
  readonly from: readonly string[];
  readonly to: readonly Destination[];
  /** Whether `from` must get an answer of `to`. */
  readonly reaches: (from: string, to: Destination) => boolean;
}

/** The fields of a flow event that a story looks at (`weir monitor --json`). */
export interface SeenEvent {
  readonly verdict: string;
  readonly direction: string;
  readonly reason: string;
  readonly message: string;
  readonly policies: readonly string[];
  readonly source: { readonly address: string; readonly name?: string };
  readonly destination: { readonly address: string; readonly name?: string };
  readonly destinationPort?: number;
}

const PODS: readonly PodSpec[] = [
  { name: 'app1', labels: { id: 'app1' }, node: 1, tcp: [80, 8080], udp: [5353] },
  { name: 'app2', labels: { id: 'app2' }, node: 1, tcp: [80] },
  { name: 'app2-far', labels: { id: 'app2' }, node: 2, tcp: [80] },
  { name: 'app3', labels: { id: 'app3' }, node: 1, tcp: [80] },
  { name: 'app3-far', labels: { id: 'app3' }, node: 2, tcp: [80] },
];

export class Stage {
  readonly cluster: TestCluster;
  readonly listener: Listener;
  readonly #monitors: ClientRequest[] = [];
  #events: SeenEvent[] = [];

  readonly #own: boolean;

  /** @param own the cluster ends with the stage. */
  private constructor(cluster: TestCluster, listener: Listener, own: boolean) {
    this.cluster = cluster;
    this.listener = listener;
    this.#own = own;
  }

  /**
   * Sets the scene: two nodes; app1 with two ports; app2 and app3 beside it and on the other node.
   * @param given a cluster of two nodes or more that has no such pods; it stays when the stage is closed. Default: an embedded one.
   */
  static async set(listener: Listener, given?: TestCluster): Promise<Stage> {
    const cluster = given ?? (await Cluster.start({ dnsProxies: true, onLog: (line) => listener.say(line) }));
    const stage = new Stage(cluster, listener, given === undefined);
    try {
      await cluster.createPods(PODS);
      await Promise.all(cluster.nodes.map((node) => stage.#monitor(node.socket)));
      return stage;
    } catch (error) {
      await stage.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    for (const monitor of this.#monitors) monitor.destroy();
    if (this.#own) await this.cluster.stop();
    else {
      const pods = PODS.map(({ name }) => name);
      await this.cluster.kubectl(['delete', 'pod', ...pods, '--ignore-not-found', '--wait=true', '--timeout=60s']);
    }
  }

  /** Resolves when the agent tells of its drops from now on. */
  async #monitor(socket: string): Promise<void> {
    const monitor = request({ socketPath: socket, path: '/v1/monitor?type=drop' }).end();
    this.#monitors.push(monitor);
    const [drops] = (await once(monitor, 'response')) as [IncomingMessage];
    // The agent may end while it is followed.
    for (const stream of [monitor, drops]) stream.on('error', () => undefined);
    createInterface({ input: drops })
      .on('line', (line) => this.#events.push(JSON.parse(line) as SeenEvent))
      .on('error', () => undefined);
  }

  say(text: string): void {
    this.listener.say(text);
  }

  /** Records a fault when `holds` is false. */
  check(holds: boolean, claim: string): void {
    if (holds) this.say(`ok: ${claim}`);
    else this.listener.fault(`not so: ${claim}`);
  }

  /** Applies YAML with kubectl, waits until the named policies are Programmed, and says how long that took. */
  async apply(yaml: string, ...policies: readonly string[]): Promise<void> {
    this.say(`kubectl apply -f - <<EOF\n${yaml.trim()}\nEOF`);
    const start = Date.now();
    this.say((await this.cluster.apply(yaml)).trim());
    for (const policy of policies) {
      await this.programmed(policy);
      this.say(`${policy}: Programmed after ${Date.now() - start} ms`);
    }
  }

  async programmed(...policies: readonly string[]): Promise<void> {
    for (const policy of policies) await this.cluster.programmed(policy);
  }

  async kubectl(...args: readonly string[]): Promise<string> {
    const text = (await this.cluster.kubectl(args)).trim();
    this.say(`$ kubectl ${args.join(' ')}\n${text}`);
    return text;
  }

  /** Runs `weir` on a node's agent; another exit code than 0 is a fault. */
  async weir(node: number, ...args: readonly string[]): Promise<string> {
    const output = await this.cluster.node(node).weir(args);
    this.say(`${this.cluster.node(node).name}$ weir ${args.join(' ')}\n${(output.stdout + output.stderr).trim()}`);
    if (output.code !== 0) this.listener.fault(`weir ${args.join(' ')} ended with code ${output.code}`);
    return output.stdout;
  }

  /** Probes every pair at once, by each family that both have, prints the table, and records each wrong answer. */
  async expect(expectation: Expectation): Promise<void> {
    const seen = new Map<string, readonly Answer[]>();
    const pairs = expectation.from.flatMap((from) =>
      expectation.to.filter((to) => host(to) !== from).map((to) => [from, to] as const),
    );
    await Promise.all(
      pairs.map(async ([from, to]) =>
        seen.set(`${from} ${to}`, await this.#probe(from, to, expectation.reaches(from, to))),
      ),
    );
    const cell = (from: string, to: string) => {
      const answers = seen.get(`${from} ${to}`);
      if (answers === undefined) return undefined;
      return {
        seen: textOf(answers),
        right:
          answers.length > 0 && answers.every(({ result }) => (result === 'reached') === expectation.reaches(from, to)),
      };
    };
    this.say(reachability(expectation.from, expectation.to, cell));
    for (const [from, to] of pairs) {
      if (cell(from, to)?.right === false)
        this.listener.fault(
          `${from} -> ${to}: ${cell(from, to)?.seen}, expected ${expectation.reaches(from, to) ? 'an answer' : 'a drop'}`,
        );
    }
  }

  async #probe(from: string, to: Destination, patient: boolean): Promise<readonly Answer[]> {
    const [name = '', rest = '80'] = to.split(':');
    const [port = '80', protocol = 'tcp'] = rest.split('/');
    const [source, destination] = await Promise.all([this.#addresses(from), this.#addresses(name)]);
    const pairs = destination.filter((at) => source.some((address) => familyOf(address) === familyOf(at)));
    return await Promise.all(
      pairs.map(async (address) => {
        const result = await this.cluster.probe(from, address, {
          port: Number(port),
          protocol: protocol as ProbeProtocol,
          // Where an answer is expected a slow machine is given time; where a drop is expected silence is believed sooner.
          timeoutMs: patient ? 60_000 : 400,
        });
        return { family: familyOf(address), result };
      }),
    );
  }

  async #addresses(name: string): Promise<readonly string[]> {
    return isIP(name) === 0 ? (await this.cluster.host(name)).addresses : [name];
  }

  /** Waits for a drop event that `matches`, prints it, and records a fault when none comes within a minute. */
  async dropEvent(claim: string, matches: (event: SeenEvent) => boolean): Promise<SeenEvent | undefined> {
    const end = Date.now() + 60_000;
    for (;;) {
      const event = this.#events.findLast(matches);
      if (event !== undefined) {
        this.say(`event: ${describe(event)}`);
        return event;
      }
      if (Date.now() > end) {
        this.listener.fault(`no event for ${claim}`);
        return undefined;
      }
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  }

  forgetEvents(): void {
    this.#events = [];
  }
}

/** What came of a probe. */
interface Answer {
  readonly family: Family;
  readonly result: string;
}

/** `yes`, or what was seen, where all families agree. */
function textOf(answers: readonly Answer[]): string {
  const word = ({ result }: Answer): string => (result === 'reached' ? 'yes' : result);
  const [first] = answers;
  if (first !== undefined && answers.every(({ result }) => result === first.result)) return word(first);
  return answers.map((answer) => `${word(answer)} (IPv${answer.family})`).join(' ') || 'no family in common';
}

const host = (to: Destination): string => to.split(':')[0] ?? to;

function describe(event: SeenEvent): string {
  const who = (peer: SeenEvent['source']) =>
    peer.name === undefined ? peer.address : `${peer.name} (${peer.address})`;
  const port = event.destinationPort === undefined ? '' : `:${event.destinationPort}`;
  return `${event.verdict} ${event.direction} ${who(event.source)} -> ${who(event.destination)}${port}, ${event.reason}: ${event.message} [${event.policies.join(', ')}]`;
}
