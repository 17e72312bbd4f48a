/** Runs one question through the oracle and through parse -> resolve -> compile -> evaluate. For tests. */
import { matches } from '@weir/labels';
import { compile } from '../compile.ts';
import { type Evaluation, evaluate } from '../evaluate.ts';
import { type Explanation, explain } from '../explain.ts';
import { hostNameMatches } from '../host-names.ts';

import {
  addressOf,
  type OracleEndpoint,
  type OraclePeer,
  type OracleVerdict,
  type OracleWorld,
  oracleVerdict,
} from '../oracle.ts';
import { resolve } from '../resolve.ts';
import type { CompiledPolicy, CompileInput, Direction, PeerIdentity, ResolvedRule, Rule } from '../types.ts';
import { type IdentityWorld, identitiesOn, identityWorld } from './identities.ts';
import { NameLists } from './name-lists.ts';

/** First number of names' identities. */
const NAMES_BASE = 5 << 24;

export interface JudgeOptions {
  /** Names of peers outside, each list of one address. */
  readonly names?: readonly (readonly string[])[];
  readonly mode?: CompileInput['mode'];
  readonly allowLocalhost?: boolean;
}

export interface Question {
  readonly direction: Direction;
  readonly subject: OracleEndpoint;
  readonly peer: OraclePeer;
  readonly protocol: number;
  readonly port: number;
}

/** Answers of all three implementations; they must agree. */
export interface Answers {
  readonly oracle: OracleVerdict;
  readonly compiled: Evaluation;
  readonly explained: Explanation;
}

/** All policies of a world, resolved once; compiled for each subject once. */
export class Judge {
  readonly world: OracleWorld;
  readonly rules: readonly Rule[];
  readonly resolved: readonly ResolvedRule[];
  readonly numbers: IdentityWorld;
  readonly listeners = new NameLists();
  readonly #options: JudgeOptions;
  /** Identities of names, by their patterns. */
  readonly #named = new Map<string, PeerIdentity>();
  readonly #resolution: ReturnType<typeof resolve>;
  readonly #compiled = new Map<string, CompiledPolicy>();
  readonly #inputs = new Map<string, CompileInput>();

  constructor(world: OracleWorld, rules: readonly Rule[], options: JudgeOptions = {}) {
    this.world = world;
    this.rules = rules;
    this.#options = options;
    let cookie = 0;
    this.#resolution = resolve(rules, {
      cookieOf: () => {
        cookie += 1;
        return cookie;
      },
    });
    this.resolved = this.#resolution.rules;
    this.numbers = identityWorld(world, rules);
    for (const names of options.names ?? []) {
      const patterns = this.#patternsOf(names);
      const key = patterns.join(' ');
      if (patterns.length > 0 && !this.#named.has(key))
        this.#named.set(key, { id: NAMES_BASE + this.#named.size, names: patterns });
    }
  }

  /** Of `toFQDNs` that the names are of. */
  #patternsOf(names: readonly string[]): readonly string[] {
    const all = this.resolved.flatMap(({ peers = [] }) => peers.flatMap((peer) => ('fqdn' in peer ? [peer.fqdn] : [])));
    return [...new Set(all)].filter((pattern) => names.some((name) => hostNameMatches(pattern, name))).sort();
  }

  inputFor(subject: OracleEndpoint): CompileInput {
    const known = this.#inputs.get(subject.name);
    if (known !== undefined) return known;
    const { selectors } = this.#resolution;
    const input: CompileInput = {
      rules: this.resolved.filter((rule) => {
        const selector = selectors.get(rule.subject);
        return selector !== undefined && matches(selector, subject.labels);
      }),
      peerSets: this.numbers.peerSets(selectors),
      identities: [...identitiesOn(this.world, this.numbers.identities, subject.node), ...this.#named.values()],
      listeners: this.listeners,
      mode: this.#options.mode ?? 'default',
      allowLocalhost: this.#options.allowLocalhost ?? true,
      portNames: this.numbers.portNames(subject),
    };
    this.#inputs.set(subject.name, input);
    return input;
  }

  compiledFor(subject: OracleEndpoint): CompiledPolicy {
    const known = this.#compiled.get(subject.name) ?? compile(this.inputFor(subject));
    this.#compiled.set(subject.name, known);
    return known;
  }

  ask({ direction, subject, peer, protocol, port }: Question): Answers {
    const identity = this.numbers.identityOf(peer, subject.node);
    const input = this.inputFor(subject);
    const options = { endpoints: this.world.endpoints, ...this.#options };
    const [address] = addressOf(peer);
    const patterns = peer.kind === 'outside' ? this.#patternsOf(peer.names ?? []) : [];
    const names = this.#named.get(patterns.join(' '))?.id;
    const found = [...input.identities].find((candidate) => candidate.id === identity) ?? { id: identity };
    return {
      oracle: oracleVerdict(this.rules, direction, subject, peer, { protocol, port }, options),
      compiled: evaluate(this.compiledFor(subject), { direction, identity, names, address, protocol, port }),
      explained: explain(input, {
        direction,
        names: patterns,
        peer: address === undefined ? found : { ...found, address },
        protocol,
        port,
      }),
    };
  }
}
