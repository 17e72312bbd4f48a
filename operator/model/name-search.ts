/** Looks for the port names of one policy, in pieces: a policy may name so many, of so many sets, that everybody would wait. */
import type { ResolvedRule } from '@weir/policy';
import { askedBy, namedPorts } from './asked-names.ts';

/** A name that no asked pod knows. */
export interface MissingName {
  readonly path: string;
  readonly name: string;
  /** As the rule says: `TCP`, or several. */
  readonly protocols: readonly string[];
  /** Who was asked. */
  readonly asked: 'selected pods' | 'peers';
}

/** What was found of all names of a policy. A name counts once in each rule. */
export interface MissingNames {
  /** The first MOST_NAMED that are missing, in the order of the rules. */
  readonly first: readonly MissingName[];
  /** How many are missing. */
  readonly count: number;
  /** How many were not looked for, because that would take too long. */
  readonly unasked: number;
}

export const NONE_MISSING: MissingNames = { first: [], count: 0, unasked: 0 };

/** Names that a status names. */
const MOST_NAMED = 5;

/** Looks of one piece. Each takes about a microsecond. */
export const PIECE_LOOKS = 4_000;
/** Looks of one search: as many as a policy's sets may have members. */
export const MOST_LOOKS = 500_000;

/** An answer, and how many pods, sets or names were looked at for it. */
export interface Answer {
  readonly is: boolean;
  readonly looks: number;
}

/** What the search asks of the pods. */
export interface Pods {
  /** A pod gives this name (`TCP/http`). */
  anybodyGives(name: string): boolean;
  /** A member of the set gives this name. */
  gives(hash: string, name: string): Answer;
  /** A member of the set has a pod. */
  isInhabited(hash: string): Answer;
  /** There is a pod. */
  anybody(): boolean;
}

/** Where a search goes on. */
interface Place {
  readonly rule: number;
  /** The name in the rule; 0: whether anybody is there to ask. */
  readonly name: number;
  /** The set, or of a name in several protocols the set after those of the protocols before. */
  readonly set: number;
}

/** Table row: how far the search for one policy's names has come, or what it has found. */
export interface NameSearch {
  /** Key of the policy. */
  readonly policy: string;
  readonly rules: readonly ResolvedRule[];
  /** undefined: it is at its end. */
  readonly at: Place | undefined;
  /** What the rule asks in which it goes on: there may be very many names. */
  readonly asking: Questions | undefined;
  /** Sets, by hash, of which is known whether a member has a pod. */
  readonly inhabited: ReadonlyMap<string, boolean>;
  readonly looks: number;
  readonly found: MissingNames;
  /** Pods have changed since it began. */
  readonly stale: boolean;
}

/** What one rule asks. */
interface Questions extends Pick<MissingName, 'path' | 'asked'> {
  readonly hashes: readonly string[];
  readonly everyone: boolean;
  /** Protocols by name. */
  readonly names: readonly (readonly [name: string, protocols: readonly string[]])[];
  /** The rule means nobody, rather than addresses and nodes, which give no port a name. */
  readonly meansNobody: boolean;
}

export function searchFor(policy: string, rules: readonly ResolvedRule[]): NameSearch {
  const at = { rule: 0, name: 0, set: 0 };
  return {
    policy,
    rules,
    at,
    asking: undefined,
    inhabited: new Map(),
    looks: 0,
    found: NONE_MISSING,
    stale: false,
  };
}

/** Whether any rule names a port. */
export function namesPorts(rules: readonly ResolvedRule[]): boolean {
  return rules.some(({ ports }) => ports?.some((port) => 'name' in port));
}

/** One piece more of a search that is not at its end. */
export function goOn(search: NameSearch, pods: Pods): NameSearch {
  return new Piece(search, pods).run();
}

class Piece {
  readonly #before: NameSearch;
  readonly #pods: Pods;
  readonly #inhabited: Map<string, boolean>;
  #at: Place;
  #looks = 0;
  #found: MissingNames;
  #asking: Questions | undefined;

  constructor(before: NameSearch, pods: Pods) {
    this.#before = before;
    this.#pods = pods;
    this.#inhabited = new Map(before.inhabited);
    this.#at = before.at ?? { rule: before.rules.length, name: 0, set: 0 };
    this.#found = before.found;
    this.#asking = before.asking;
  }

  run(): NameSearch {
    const { rules } = this.#before;
    for (; this.#at.rule < rules.length; this.#at = { rule: this.#at.rule + 1, name: 0, set: 0 }) {
      const rule = rules[this.#at.rule];
      if (rule === undefined || !namesPorts([rule])) continue;
      this.#asking ??= questionsOf(rule);
      if (!this.#askRule(this.#asking)) return this.#pause();
      this.#asking = undefined;
    }
    return this.#end();
  }

  /** False: it is to go on there later. */
  #askRule({ names, hashes, everyone, meansNobody, path, asked }: Questions): boolean {
    const somebody = everyone ? this.#pods.anybody() : hashes.length === 0 ? !meansNobody : this.#anybodyIn(hashes);
    if (somebody === undefined) return false;
    if (!somebody) return true;
    if (this.#at.name === 0) this.#at = { ...this.#at, name: 1, set: 0 };
    for (; this.#at.name <= names.length; this.#at = { ...this.#at, name: this.#at.name + 1, set: 0 }) {
      if (this.#isSpent()) return false;
      this.#looks += 1;
      const [name = '', protocols = []] = names[this.#at.name - 1] ?? [];
      const keys = protocols.map((protocol) => `${protocol}/${name}`);
      const given = everyone ? this.#anybodyGives(keys) : this.#givenIn(hashes, keys);
      if (given === undefined) return false;
      if (!given) this.#miss({ path, name, protocols, asked });
    }
    return true;
  }

  /** Whether a member of any of the sets has a pod; undefined: not known yet. */
  #anybodyIn(hashes: readonly string[]): boolean | undefined {
    // A rule of which names are asked has somebody.
    if (this.#at.name > 0) return true;
    for (; this.#at.set < hashes.length; this.#at = { ...this.#at, set: this.#at.set + 1 }) {
      if (this.#isSpent()) return undefined;
      if (this.#isInhabited(hashes[this.#at.set] ?? '')) return true;
    }
    return false;
  }

  /** Whether a member of any of the sets gives any of the names; undefined: not known yet. */
  #givenIn(hashes: readonly string[], names: readonly string[]): boolean | undefined {
    for (; this.#at.set < hashes.length * names.length; this.#at = { ...this.#at, set: this.#at.set + 1 }) {
      if (this.#isSpent()) return undefined;
      const hash = hashes[this.#at.set % hashes.length] ?? '';
      const name = names[Math.floor(this.#at.set / hashes.length)] ?? '';
      if (this.#at.set % hashes.length === 0 && !this.#anybodyGives([name])) {
        this.#at = { ...this.#at, set: this.#at.set + hashes.length - 1 };
        continue;
      }
      if (this.#counted(this.#pods.gives(hash, name))) return true;
    }
    return false;
  }

  #anybodyGives(names: readonly string[]): boolean {
    this.#looks += names.length;
    return names.some((name) => this.#pods.anybodyGives(name));
  }

  #isInhabited(hash: string): boolean {
    this.#looks += 1;
    const is = this.#inhabited.get(hash) ?? this.#counted(this.#pods.isInhabited(hash));
    this.#inhabited.set(hash, is);
    return is;
  }

  #counted({ is, looks }: Answer): boolean {
    this.#looks += looks;
    return is;
  }

  #miss(name: MissingName): void {
    const { first, count, unasked } = this.#found;
    this.#found = { first: first.length < MOST_NAMED ? [...first, name] : first, count: count + 1, unasked };
  }

  #isSpent(): boolean {
    return this.#looks >= PIECE_LOOKS;
  }

  #pause(): NameSearch {
    const looks = this.#before.looks + this.#looks;
    if (looks < MOST_LOOKS) {
      const asking = this.#asking;
      return { ...this.#before, at: this.#at, asking, inhabited: this.#inhabited, looks, found: this.#found };
    }
    const { rule, name } = this.#at;
    const left = this.#before.rules.slice(rule).reduce((sum, { ports }) => sum + namesIn(ports).size, 0);
    this.#found = { ...this.#found, unasked: left - Math.max(0, name - 1) };
    return this.#end();
  }

  #end(): NameSearch {
    return {
      ...this.#before,
      at: undefined,
      asking: undefined,
      inhabited: new Map(),
      looks: this.#before.looks + this.#looks,
      found: this.#found,
    };
  }
}

function namesIn(ports: ResolvedRule['ports']): Set<string> {
  return new Set((ports ?? []).flatMap((port) => ('name' in port ? [port.name] : [])));
}

function questionsOf(rule: ResolvedRule): Questions {
  const byName = new Map<string, string[]>();
  for (const { name, protocol } of namedPorts(rule)) {
    const protocols = byName.get(name);
    if (protocols === undefined) byName.set(name, [protocol]);
    else if (!protocols.includes(protocol)) protocols.push(protocol);
  }
  return {
    path: rule.path,
    asked: rule.direction === 'ingress' ? 'selected pods' : 'peers',
    ...askedBy(rule),
    names: [...byName],
    meansNobody: rule.peers?.length === 0,
  };
}
