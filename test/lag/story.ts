/** Test helper: a cluster of one operator and two agents, and everything that can happen to it. Which of it happens, the caller says. */
import { setImmediate } from 'node:timers/promises';
import type { CiliumIdentity } from '@weir/kube';
import type { LabelMap } from '@weir/labels';
import { ccnp, cnp, namespace, node } from '../../operator/testing.ts';
import { LaggingAgent } from './agent.ts';
import { type Answer, Api } from './api.ts';
import { IDENTITY_GRACE_MS, LaggingOperator, StoppedClock } from './operator.ts';
import { Truth } from './truth.ts';

const NODES = ['n1', 'n2'] as const;
const PORTS = [80, 81] as const;
/** Writers and models answer within so many turns of the event loop. */
const TURNS = 6;

export type Step =
  | { readonly do: 'policy'; readonly policy: number; readonly spec: object }
  | { readonly do: 'delete-policy'; readonly policy: number }
  | { readonly do: 'pod'; readonly pod: number; readonly app: string; readonly version: number }
  | { readonly do: 'delete-pod'; readonly pod: number }
  | { readonly do: 'operator'; readonly kinds: readonly number[]; readonly count: number }
  | { readonly do: 'collect' }
  | { readonly do: 'restart-operator' }
  | { readonly do: 'answer'; readonly which: number; readonly how: Answer; readonly times: number }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'agent'; readonly agent: number; readonly kinds: readonly number[]; readonly count: number }
  | { readonly do: 'restart-agent'; readonly agent: number; readonly late: readonly number[] };

export class Story {
  readonly #api = new Api();
  readonly #clock = new StoppedClock();
  readonly #truth = new Truth();
  #operator: LaggingOperator;
  readonly #agents: LaggingAgent[];
  readonly #policies = new Map<number, { readonly uid: string; readonly generation: number }>();
  readonly #pods = new Map<number, string>();
  #count = 0;

  constructor() {
    this.#api.put('Namespace', namespace('ns'));
    for (const name of NODES) this.#api.put('Node', node(name));
    this.#operator = new LaggingOperator(this.#api, this.#clock);
    this.#agents = NODES.map((node) => new LaggingAgent(this.#api, node));
  }

  /** Takes the step; a sentence when some node then decides what it must not. */
  async take(step: Step): Promise<string | undefined> {
    switch (step.do) {
      case 'policy':
        this.#putPolicy(step.policy, step.spec);
        break;
      case 'delete-policy':
        if (this.#policies.delete(step.policy)) this.#api.remove(...policyKey(step.policy));
        break;
      case 'pod':
        this.#putPod(step.pod, { app: step.app, ...(step.version === 0 ? {} : { version: `${step.version}` }) });
        break;
      case 'delete-pod':
        this.#deletePod(step.pod);
        break;
      case 'operator':
        deliver(this.#operator.watches, step.kinds, step.count);
        this.#operator.round();
        break;
      case 'collect':
        this.#clock.advance(IDENTITY_GRACE_MS);
        this.#operator.collect();
        break;
      case 'restart-operator':
        await this.#stopOperator();
        this.#operator = new LaggingOperator(this.#api, this.#clock);
        break;
      case 'answer':
        for (let time = 0; time < step.times && this.#api.waiting > 0; time += 1) {
          this.#api.answer(step.which, step.how);
          await this.#calm();
        }
        break;
      case 'wait':
        this.#clock.advance(step.ms);
        for (const { world } of this.#agents) world.pass(step.ms);
        break;
      case 'agent':
        return this.#tell(step.agent, step.kinds, step.count);
      case 'restart-agent': {
        const before = this.#agents[step.agent];
        if (before !== undefined)
          this.#agents[step.agent] = new LaggingAgent(this.#api, before.node, before, step.late);
        return this.#tell(step.agent, [], 0);
      }
    }
    await this.#calm();
    return this.#problem();
  }

  /** Nothing lags or fails any more. A sentence when then some node does not decide exactly what it must. */
  async end(): Promise<string | undefined> {
    const all = [...this.#operator.watches.keys()];
    for (let round = 0; round < 30; round += 1) {
      const steps: Step[] = [
        { do: 'operator', kinds: all, count: Infinity },
        { do: 'answer', which: 0, how: 'ok', times: 200 },
        { do: 'wait', ms: 40_000 },
        ...NODES.map((_, agent): Step => ({ do: 'agent', agent, kinds: all, count: Infinity })),
      ];
      for (const step of steps) {
        const problem = await this.take(step);
        if (problem !== undefined) return problem;
      }
      if (round < 2) continue;
      for (const agent of this.#agents) this.#truth.computed(agent, true);
      if (this.#agents.every((agent) => this.#truth.settled(agent))) return this.#problem();
    }
    const lagging = this.#agents.find((agent) => !this.#truth.settled(agent));
    return lagging && `${lagging.node} has not come to rest`;
  }

  async stop(): Promise<void> {
    await this.#stopOperator();
  }

  #putPolicy(policy: number, spec: object): void {
    const { uid, generation } = this.#policies.get(policy) ?? {
      uid: `p${policy}-${this.#next()}`,
      generation: 0,
    };
    const object = policy === 0 ? ccnp('all', spec) : cnp(`ns/p${policy}`, spec);
    this.#policies.set(policy, { uid, generation: generation + 1 });
    this.#truth.policy(uid, generation + 1, object.kind as 'CiliumNetworkPolicy', object);
    this.#api.put(object.kind, { ...object, metadata: { ...object.metadata, uid, generation: generation + 1 } });
  }

  #putPod(pod: number, labels: Record<string, string>): void {
    const name = `pod${pod}`;
    const node = NODES[pod % NODES.length] ?? 'n1';
    const known = this.#truth.pods.get(this.#pods.get(pod) ?? '');
    const number = this.#next();
    const { uid, ip } = known ?? { uid: `u-${name}-${number}`, ip: `10.1.${number >> 8}.${number & 255}` };
    if (known === undefined) {
      this.#pods.set(pod, uid);
      this.#truth.pods.set(uid, { uid, name, node, ip, labels: [Truth.labels(labels)] });
      for (const agent of this.#agents) if (agent.node === node) agent.add({ id: number, uid, name, ip });
    } else known.labels.push(Truth.labels(labels));
    this.#api.put('Pod', {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { namespace: 'ns', name, uid, labels },
      spec: { nodeName: node, serviceAccountName: 'default' },
      status: { phase: 'Running', podIP: ip, podIPs: [{ ip }], hostIP: '192.0.2.1' },
    } as never);
  }

  #deletePod(pod: number): void {
    const uid = this.#pods.get(pod);
    if (uid === undefined) return;
    this.#pods.delete(pod);
    this.#truth.pods.delete(uid);
    for (const agent of this.#agents) agent.remove(uid);
    this.#api.remove('Pod', `ns/pod${pod}`);
  }

  #next(): number {
    this.#count += 1;
    return this.#count;
  }

  async #tell(index: number, kinds: readonly number[], count: number): Promise<string | undefined> {
    const agent = this.#agents[index];
    if (agent === undefined) return undefined;
    deliver(agent.watches, kinds, count);
    for (let plans = 0; plans < 20; plans += 1) {
      const how = await agent.plan();
      if (how !== 'waits') this.#truth.computed(agent);
      else if (agent.addressed) this.#truth.addressed(agent, this.#identities());
      const problem = this.#problem();
      if (problem !== undefined || how !== 'again') return problem;
    }
    return `${agent.node} plans without end`;
  }

  /** Labels of each identity, by its number. */
  #identities(): ReadonlyMap<number, LabelMap> {
    const objects = this.#api.objects<CiliumIdentity>('CiliumIdentity');
    return new Map(objects.map(({ metadata: { name }, 'security-labels': labels }) => [Number(name), labels]));
  }

  #problem(): string | undefined {
    for (const agent of this.#agents) {
      const problem = this.#truth.problem(agent, PORTS);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }

  async #stopOperator(): Promise<void> {
    let stopped = false;
    const stopping = this.#operator.stop().then(() => {
      stopped = true;
    });
    while (!stopped) {
      while (this.#api.waiting > 0) this.#api.answer(0, 'failed');
      this.#clock.advance(1_000);
      await setImmediate();
    }
    await stopping;
  }

  /** Lets whoever has something to do now do it. */
  async #calm(): Promise<void> {
    for (let turn = 0; turn < TURNS; turn += 1) await setImmediate();
  }
}

function deliver(watches: LaggingAgent['watches'], kinds: readonly number[], count: number): void {
  for (const kind of kinds) watches[kind]?.deliver(count);
}

function policyKey(policy: number): readonly [kind: string, key: string] {
  return policy === 0 ? ['CiliumClusterwideNetworkPolicy', 'all'] : ['CiliumNetworkPolicy', `ns/p${policy}`];
}
