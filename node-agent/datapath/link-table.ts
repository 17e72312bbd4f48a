/** Which interfaces run the programs: what links and filters have in common, and its text. */
import { PROGRAMS } from '@weir/bpf';
import { interfaceName, programName, type TcDirection } from 'libbpf-ts';

/** Runs in the node's network namespace, where interface indexes mean something. */
export type InNode = <T>(body: () => T) => T;

/** One endpoint's interface. */
export interface Hooked {
  readonly id: number;
  readonly ifindex: number;
}

/** What a look at an endpoint's interface finds. */
export interface LinkLook {
  readonly id: number;
  /** There is no such interface. */
  readonly gone: boolean;
  /** What is not as it should be, of each hook. */
  readonly faults: readonly string[];
  /** Each hook where others' programs run before this agent's: they may end the chain, so that it does not judge. */
  readonly behind: readonly string[];
}

export interface EnsureLinks {
  /** The endpoint's interface until now, which loses its programs. */
  readonly former?: number;
  /** Called before a hook gets programs that ran none of ours, of whichever version. */
  readonly onBare?: () => void;
}

/** Which interfaces run the programs. */
export interface LinkTable {
  /**
   * Makes sure that both hooks of the interface run this version's programs; what is newly attached comes first.
   * @throws InterfaceGoneError
   */
  ensure(endpoint: number, ifindex: number, options?: EnsureLinks): void;
  /** Puts the programs before all others, on hooks where they are not: at every instant one of ours runs. @throws LinkError */
  overtake(endpoint: Hooked, onMove: () => void): void;
  /** Detaches; succeeding when there is nothing. Programs of an interface that this namespace does not have go only with `everywhere`. */
  remove(endpoint: number, options: RemoveLinks): void;
  /** Endpoints whose interface has them. */
  endpoints(): Set<number>;
  /** Whether something is pinned for the endpoint. */
  has(endpoint: number): boolean;
  /** Whether its interface lives, with programs of ours, in another network namespace. */
  isAway(endpoint: number): boolean;
  /** Endpoints with programs of ours on both hooks of a live interface, of whichever version: its index. */
  attached(): Map<number, number>;
  /** The same, whatever program somebody may have put into our links or filters. */
  hooked(): Map<number, number>;
  /** Whether each interface runs this version's programs. */
  look(endpoints: readonly Hooked[]): LinkLook[];
}

export interface RemoveLinks {
  /** Index of the endpoint's interface, as far as it is known, and whether it is no other endpoint's by now. */
  readonly ifindex?: number;
  readonly alone?: boolean;
  readonly everywhere: boolean;
}

export const HOOKS: readonly TcDirection[] = ['ingress', 'egress'];

/** What a hook's program judges, in the pod's direction, as policies have it: the node's hook `ingress` gets what the pod sends. */
export const JUDGED: Readonly<Record<TcDirection, string>> = {
  ingress: 'what the pod sends (egress)',
  egress: 'what the pod receives (ingress)',
};

/** The fault of a hook whose program is not there. */
export function unjudgedText(hook: TcDirection): string {
  return `${JUDGED[hook]} is not judged, as its program is not attached`;
}

/** Whether the program is ours for this hook, of whichever version: somebody may have put another one into our link or filter. */
export function isOurs(program: number, hook: TcDirection): boolean {
  return programName(program) === (hook === 'ingress' ? PROGRAMS.fromPod : PROGRAMS.toPod);
}

/** Says which programs come before this agent's. In the interface's network namespace. */
export function behindText(
  ifindex: number,
  hook: TcDirection,
  before: readonly { readonly program?: number; readonly kind?: string }[],
): string {
  const others = before.map(({ program, kind }) =>
    program === undefined ? `a ${kind} filter` : `program ${programName(program) ?? 'unknown'}, id ${program},`,
  );
  return `on tc hook ${hook} of ${interfaceName(ifindex) ?? `interface ${ifindex}`}, for ${JUDGED[hook]}, ${others.join(' and ')} runs before this agent's`;
}
