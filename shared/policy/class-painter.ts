import { RESERVED_ID } from '@weir/identity';
import { ALLOW, ANY_NAME, decisionOfRule, NO_LISTENERS, NO_PROXY } from './decision.ts';
import type { PeerNames } from './peer-names.ts';
import { isNamed, type NumbersOf, numbered } from './port-names.ts';
import type { RowBudget } from './row-budget.ts';
import { OPEN, type Painting, paintOver, type RankedRow, rowsOf, rowsOfRule } from './rows.ts';
import type { CommonHits, Hits } from './rule-hits.ts';
import type { ClassRows, Decision, Listeners } from './types.ts';
import type { RankedRule } from './widened.ts';

const NO_ROWS: ClassRows = [];

/** Rows of classes. What classes have in common is painted once, and shared. */
export class ClassPainter {
  readonly #rules: readonly RankedRule[];
  readonly #budget: RowBudget;
  /** What port names stand for: for whoever the peer is, or for each peer. */
  readonly #names: NumbersOf | PeerNames;
  /** Of rules that are alike to every peer, by index. */
  readonly #ofRule = new Map<Painting, Map<number, readonly RankedRow[]>>();
  readonly #common = new Map<Painting, Map<CommonHits, Common>>();

  readonly #listeners: Listeners;

  constructor(
    rules: readonly RankedRule[],
    budget: RowBudget,
    names: NumbersOf | PeerNames,
    listeners: Listeners = NO_LISTENERS,
  ) {
    this.#rules = rules;
    this.#listeners = listeners;
    this.#budget = budget;
    this.#names = names;
  }

  /**
   * None once the budget is spent. They are not counted yet.
   * @param identity undefined: a member of a scope of which nothing else is known
   * @param under what is decided where no rule hits
   */
  rows({ common, own }: Partial<Hits>, identity: number | undefined, under: Painting): ClassRows {
    if (this.#budget.spent) return NO_ROWS;
    const names = this.#names;
    const given = typeof names === 'function' ? undefined : names.rulesFor(identity);
    const { painting, named } = common === undefined ? { painting: under, named: [] } : this.#painted(common, under);
    const painted = given === undefined ? named : named.filter((index) => given.has(index) || this.#hasNumbers(index));
    const added = [...painted, ...(own ?? [])].flatMap((index) => this.#rowsOf(index, identity, under));
    const look = (count: number): void => this.#budget.takeLooks(count);
    return rowsOf(paintOver(painting, added, look, this.#listeners));
  }

  #painted(common: CommonHits, under: Painting): Common {
    const paintings = this.#common.get(under) ?? new Map<CommonHits, Common>();
    this.#common.set(under, paintings);
    const known = paintings.get(common);
    if (known !== undefined) return known;
    const named = common.rules.filter((index) => this.#differs(index));
    const others = common.rules.filter((index) => !this.#differs(index));
    const made = {
      painting: paintOver(
        under,
        others.flatMap((index) => this.#rowsOf(index, undefined, under)),
        undefined,
        this.#listeners,
      ),
      named,
    };
    paintings.set(common, made);
    return made;
  }

  /** Whether the rule uses port names that each peer gives numbers of its own. */
  #differs(index: number): boolean {
    return typeof this.#names !== 'function' && this.#rules[index]?.ports?.some(isNamed) === true;
  }

  /** Whether the rule has ports without names, too. */
  #hasNumbers(index: number): boolean {
    return this.#rules[index]?.ports?.some((port) => !isNamed(port)) === true;
  }

  #rowsOf(index: number, identity: number | undefined, under: Painting): readonly RankedRow[] {
    const ofRule = this.#ofRule.get(under) ?? new Map<number, readonly RankedRow[]>();
    this.#ofRule.set(under, ofRule);
    const rule = this.#rules[index];
    if (rule === undefined) return [];
    const isUnsure = identity === RESERVED_ID.unknown && asksOfSome(rule);
    const known = isUnsure ? undefined : ofRule.get(index);
    if (known !== undefined) return known;
    if (this.#differs(index)) this.#budget.takeLooks(rule.ports?.length ?? 0);
    const { verdict, cookie, widens } = rule;
    const numbersOf = typeof this.#names === 'function' ? this.#names : this.#names.numbersOf(identity, verdict);
    const ports = numbered(rule.ports, numbersOf);
    const decision = isUnsure ? (under === OPEN ? ALLOW : NO_PROXY) : this.#decision(rule, under);
    const rows = rowsOfRule({
      ...decision,
      cookie,
      ...(ports === undefined ? {} : { ports }),
      ...(widens === undefined ? {} : { widens }),
    });
    if (!isUnsure && !this.#differs(index)) ofRule.set(index, rows);
    return rows;
  }

  /** Where everything is allowed that no rule decides, a proxy lets everything pass (spec 2.7). */
  #decision(rule: RankedRule, under: Painting): Decision {
    if (rule.verdict !== 'redirect' || under !== OPEN) return decisionOfRule(rule, this.#listeners);
    return rule.dns === undefined ? ALLOW : decisionOfRule({ verdict: 'redirect', dns: ANY_NAME }, this.#listeners);
  }
}

/** Whether the rule hands flows to some peers to a proxy that there is: of an unknown peer it is not known whether it may be asked. */
function asksOfSome({ dns, peers }: RankedRule): boolean {
  return dns !== undefined && peers?.some((peer) => 'entity' in peer && peer.entity === 'all') === false;
}

/** What the rules that are alike to every peer come to, and the others. */
interface Common {
  readonly painting: Painting;
  readonly named: readonly number[];
}
