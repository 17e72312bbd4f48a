/**
 * How a plan is computed: its steps, each with the working tables that it reads and those that it writes. A step reads what the steps before it have
 * written. Where a later step writes the table, what is there is as the plan before left it: `asBefore` says why that is right. A test holds the lists to it.
 */
import type { LabelMap } from '@weir/labels';
import type { SelectorHash } from '@weir/policy';
import { PartListError } from '@weir/process/parts';
import type { PlanStep } from '../core.ts';
import type { AddressChanges, Addresses } from './addresses.ts';
import type { CidrPeers } from './cidr-peers.ts';
import type { CompiledShapes, EndpointShapes, Wanted } from './endpoint-shapes.ts';
import type { EndpointStates } from './endpoint-states.ts';
import type { InForce, Subject } from './in-force.ts';
import type { LocalEndpoints } from './local-endpoints.ts';
import type { NodePeers } from './node-peers.ts';
import type { Pace } from './pace.ts';
import type { PeerPortNames } from './peer-port-names.ts';
import type { PeerSetViews } from './peer-set-views.ts';
import type { Plan } from './plan.ts';
import type { RemoteEndpoints } from './remote-endpoints.ts';
import type { Slots } from './slots.ts';

/** What inputs have changed since the last plan, as far as it is no mark of one part alone. */
export interface Marks {
  readonly identities: Set<number>;
  /** Peer sets that select by other labels. */
  readonly hashes: Set<SelectorHash>;
  /** This node's own row. */
  ownNode: boolean;
  /** Whether the host is an API server's. */
  host: boolean;
}

/** The parts that compute it. */
export interface Derivers {
  readonly inForce: InForce;
  readonly remote: RemoteEndpoints;
  readonly local: LocalEndpoints;
  readonly portNames: PeerPortNames;
  readonly shapes: EndpointShapes;
  readonly peerSets: PeerSetViews;
  readonly nodes: NodePeers;
  readonly cidrPeers: CidrPeers;
  readonly slots: Slots;
  readonly addresses: Addresses;
  readonly endpointStates: EndpointStates;
  readonly pace: Pace;
  /** What this node's pods are selected by, after `local`. */
  readonly subjects: () => Iterable<Subject>;
}

/** A plan as far as it is computed. */
export interface Draft {
  readonly marks: Marks;
  /** Policies have changed. */
  readonly policies: boolean;
  /** As in `Plan`. */
  readonly rules: boolean;
  /** No plan with rules is computed since the start. */
  readonly first: boolean;
  localLabels: ReadonlyMap<number, LabelMap>;
  wanted: Wanted;
  shapes: CompiledShapes;
  addresses: AddressChanges;
  endpoints: Pick<Plan, 'endpoints' | 'afterGone' | 'endpointsGone'>;
  again: boolean;
}

export const NOTHING_COMPUTED: Omit<Draft, 'marks' | 'policies' | 'rules' | 'first'> = {
  localLabels: new Map(),
  wanted: new Map(),
  shapes: { slots: [], slotsGone: [], reframed: false },
  addresses: { upserts: [], deletes: [], leaving: [], from: new Map(), moved: [], movedByDelete: [] },
  endpoints: { endpoints: [], afterGone: [], endpointsGone: [] },
  again: false,
};

export function noMarks(): Marks {
  return { identities: new Set(), hashes: new Set(), ownNode: false, host: false };
}

export interface Step {
  readonly name: string;
  /** Of the tables that some step writes. */
  readonly reads: readonly string[];
  /** Tables that a later step writes, and not this one. */
  readonly asBefore?: Readonly<Record<string, string>>;
  readonly writes: readonly string[];
  /** It says who has which address: it is taken before rules are known, too. */
  readonly early?: true;
  run(draft: Draft, derivers: Derivers): Promise<void> | void;
}

const NOBODY: ReadonlySet<number> = new Set();

export const STEPS: readonly Step[] = [
  {
    name: 'rules in force',
    reads: ['addressClaims', 'missingPolicies', 'namedCidrs', 'retainedPeerSets', 'rulesInForce', 'shapes', 'subjects'],
    asBefore: {
      shapes: 'a set that the cluster has dropped stays while a slot is compiled from it',
    },
    writes: [
      'addressClaims',
      'missingPolicies',
      'namedCidrs',
      'retainedPeerSets',
      'rulesInForce',
      'selections',
      'subjects',
    ],
    async run({ marks }, { inForce }) {
      await inForce.settle(marks.hashes);
    },
  },
  {
    name: 'remote endpoints',
    reads: ['addressClaims', 'believedEndpoints', 'portNameClaims'],
    writes: ['addressClaims', 'believedEndpoints', 'portNameClaims'],
    early: true,
    async run({ marks }, { remote, pace }) {
      for (const id of marks.identities) {
        remote.identityChanged(id);
        if (pace.due()) await pace.yieldNow();
      }
      if (marks.ownNode) remote.ownNodeChanged();
      await remote.settle();
    },
  },
  {
    name: 'local endpoints',
    reads: [
      'addressClaims',
      'computedStates',
      'endpointShapes',
      'localIdentities',
      'localNumbers',
      'missingPolicies',
      'portNameClaims',
      'retainedPeerSets',
      'rulesInForce',
    ],
    asBefore: {
      computedStates: 'what was found in the kernel and closed counts no more',
      endpointShapes: 'what was found in the kernel counts until the first plan with rules is computed',
      retainedPeerSets: 'the slots forget only sets that no policy names',
    },
    writes: ['addressClaims', 'localIdentities', 'localNumbers', 'portNameClaims'],
    early: true,
    async run(draft, { local }) {
      const { marks, rules, first } = draft;
      const policies = rules && (draft.policies || first);
      draft.localLabels = await local.settle({ identities: marks.identities.size > 0, policies, rules });
    },
  },
  {
    name: 'subjects',
    reads: ['localIdentities', 'retainedPeerSets', 'rulesInForce', 'selections', 'subjects'],
    asBefore: {
      retainedPeerSets: 'the slots forget only sets that no policy names',
    },
    writes: ['selections', 'subjects'],
    async run(_, { inForce, subjects }) {
      await inForce.settleSubjects(subjects());
    },
  },
  {
    name: 'port names',
    reads: ['peerPortNumbers', 'portNameClaims', 'shapes'],
    asBefore: {
      shapes: 'shapes that come with this plan are compiled in any case',
    },
    writes: ['peerPortNumbers', 'portNameClaims'],
    async run(_, { portNames, slots }) {
      slots.portNamesChanged(await portNames.settle());
    },
  },
  {
    name: 'wanted shapes',
    reads: [
      'endpointShapes',
      'localIdentities',
      'retainedPeerSets',
      'rulesInForce',
      'selections',
      'shapes',
      'subjects',
    ],
    asBefore: {
      retainedPeerSets: 'the slots forget only sets that no policy names',
    },
    writes: ['endpointShapes', 'shapes'],
    async run(draft, { shapes }) {
      draft.wanted = await shapes.settle();
    },
  },
  {
    name: 'members of peer sets',
    reads: [
      'addressClaims',
      'addresses',
      'keptIdentities',
      'localNumbers',
      'nodePeers',
      'peerSetViews',
      'retainedPeerSets',
      'shapes',
    ],
    asBefore: {
      addresses: 'an identity that gets other labels is what it was for as long as an address has it',
      retainedPeerSets: 'the slots forget only sets that no policy names',
      shapes: 'nothing is compiled from what the slots drop',
    },
    writes: ['addressClaims', 'keptIdentities', 'localNumbers', 'nodePeers', 'peerSetViews'],
    async run({ localLabels }, { peerSets, nodes, slots, pace }) {
      for (const [hash, ids] of await peerSets.settle()) {
        slots.peerSetChanged(hash, ids);
        if (pace.due()) await pace.yieldNow();
      }
      for (const [id, labels] of localLabels)
        for (const hash of peerSets.setsOf(id, labels)) slots.peerSetChanged(hash, new Set([id]));
      for (const [id, each] of await nodes.settle(peerSets.selectNodes)) {
        for (const labels of each)
          for (const hash of peerSets.setsOf(id, labels)) slots.peerSetChanged(hash, new Set([id]));
        if (pace.due()) await pace.yieldNow();
      }
    },
  },
  {
    name: 'identities of CIDRs',
    reads: ['addressClaims', 'cidrPeers', 'localNumbers', 'shapes'],
    asBefore: {
      shapes: 'nothing is compiled from what the slots drop',
    },
    writes: ['cidrPeers', 'localNumbers'],
    async run({ marks }, { cidrPeers, slots }) {
      slots.serversChanged(await cidrPeers.settle());
      if (marks.host) slots.hostChanged();
    },
  },
  {
    name: 'slots',
    reads: [
      'addresses',
      'cidrPeers',
      'computedStates',
      'endpointShapes',
      'keptIdentities',
      'localIdentities',
      'localNumbers',
      'nodePeers',
      'peerPortNumbers',
      'peerSetViews',
      'portNameClaims',
      'retainedPeerSets',
      'rulesInForce',
      'shapes',
      'slotNumbers',
    ],
    asBefore: {
      addresses: 'slots must know who comes before an address does',
      computedStates: 'a slot stays as it is for endpoints that leave it',
      keptIdentities: 'an identity is released once no address has it',
      portNameClaims: 'what leaves with an address gives no address a number',
    },
    writes: ['endpointShapes', 'localNumbers', 'retainedPeerSets', 'shapes', 'slotNumbers'],
    async run(draft, { shapes }) {
      draft.shapes = await shapes.compile(draft.wanted);
      draft.again ||= draft.shapes.reframed;
    },
  },
  {
    name: 'addresses',
    reads: ['addressClaims', 'addresses', 'keptIdentities', 'localNumbers', 'portNameClaims'],
    asBefore: {
      keptIdentities: 'an identity is released once no address has it',
    },
    writes: ['addresses', 'portNameClaims'],
    early: true,
    async run(draft, { cidrPeers, peerSets, portNames, addresses }) {
      if (!draft.rules) {
        draft.addresses = await addresses.settle(NOBODY, false);
        return;
      }
      const { reframed } = draft.shapes;
      if (cidrPeers.leave()) draft.again = true;
      const renumbered = peerSets.renumbered();
      const wait = reframed || renumbered.size > 0 ? renumbered.union(portNames.hold()) : NOBODY;
      draft.addresses = await addresses.settle(wait, true);
    },
  },
  {
    name: 'identities that were kept',
    reads: ['addresses', 'keptIdentities'],
    writes: ['keptIdentities'],
    async run(draft, { peerSets }) {
      if (await peerSets.release()) draft.again = true;
    },
  },
  {
    name: 'endpoints',
    reads: [
      'cidrPeers',
      'computedStates',
      'endpointShapes',
      'localIdentities',
      'rulesInForce',
      'selections',
      'shapes',
      'subjects',
    ],
    asBefore: {
      endpointShapes: 'who is gone has no state',
    },
    writes: ['computedStates'],
    early: true,
    async run(draft, { endpointStates }) {
      const states = draft.rules
        ? await endpointStates.settle(draft.addresses)
        : { endpoints: endpointStates.close(), afterGone: [] };
      draft.endpoints = { ...states, endpointsGone: endpointStates.tidy() };
    },
  },
  {
    name: 'what is over',
    reads: ['endpointShapes', 'localIdentities', 'portNameClaims', 'shapes'],
    writes: ['endpointShapes'],
    run(draft, { portNames, slots, shapes }) {
      if (portNames.leaving().some((name) => slots.usesPortName(name))) draft.again = true;
      shapes.tidy();
    },
  },
];

/** A plan waits so long for a step of a part, in milliseconds. */
const STEP_MS = 10_000;

async function within(run: boolean | Promise<boolean>): Promise<boolean> {
  if (!(run instanceof Promise)) return run;
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`it has not ended within ${STEP_MS / 1000} s`)), STEP_MS);
  try {
    return await Promise.race([run, promise]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * The steps, and those of parts, each after the one that it names.
 * @param onEnd called when a step of a part has ended, with its error
 * @throws PartListError for a name that none has
 */
export function stepsWith(more: readonly PlanStep[], onEnd: (name: string, error?: unknown) => void): readonly Step[] {
  const steps = [...STEPS];
  for (const part of more) {
    const { name, after } = part;
    if (steps.some((step) => step.name === name))
      throw new PartListError(`two steps are called "${name}": give one another name`);
    const place = steps.findIndex((step) => step.name === after);
    if (place < 0)
      throw new PartListError(
        `step "${name}" is to follow "${after}", which is none of ${STEPS.map((step) => step.name).join(', ')}`,
      );
    const step: Step = {
      name,
      reads: [],
      writes: [],
      async run(draft) {
        // What the steps before it have computed must not be lost with it.
        try {
          draft.again = (await within(part.run())) || draft.again;
          onEnd(name);
        } catch (error) {
          onEnd(name, error);
        }
      },
    };
    steps.splice(place + 1, 0, step);
  }
  return steps;
}

/** Computes what must change. */
export async function compute(
  draft: Draft,
  derivers: Derivers,
  steps: readonly Step[],
  onStep?: (step: Step | undefined) => void,
): Promise<Plan> {
  for (const step of steps) {
    if (!draft.rules && step.early !== true) continue;
    onStep?.(step);
    await step.run(draft, derivers);
  }
  onStep?.(undefined);
  const { addresses, shapes, endpoints, again } = draft;
  const { slots, slotsGone } = shapes;
  const { upserts: ipcache, deletes: ipcacheGone, leaving, from: moved } = addresses;
  return { rules: draft.rules, slots, ipcache, moved, ...endpoints, ipcacheGone, leaving, slotsGone, again };
}
