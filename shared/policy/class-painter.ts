import { decisionOfRule } from './decision.ts';
import type { PeerNames } from './peer-names.ts';
import { isNamed, type NumbersOf, numbered } from './port-names.ts';
import type { RowBudget } from './row-budget.ts';
import { type Painting, paintOver, rowsOf, rowsOfRule } from './rows.ts';
import type { CommonHits, Hits } from './rule-hits.ts';
import type { ClassRows, CompiledRow, ResolvedRule } from './types.ts';

const NO_ROWS: ClassRows = [];

/** Rows of classes. What classes have in common is painted once, and shared. */
export class ClassPainter {
  readonly #rules: readonly ResolvedRule[];
  readonly #budget: RowBudget;
  /** What port names stand for: for whoever the peer is, or for each peer. */
  readonly #names: NumbersOf | PeerNames;
  /** Of rules that are alike to every peer, by index. */
  readonly #ofRule = new Map<number, readonly CompiledRow[]>();
  readonly #common = new Map<Painting, Map<CommonHits, Common>>();

  constructor(rules: readonly ResolvedRule[], budget: RowBudget, names: NumbersOf | PeerNames) {
    this.#rules = rules;
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
    const added = [...painted, ...(own ?? [])].flatMap((index) => this.#rowsOf(index, identity));
    const look = (count: number): void => this.#budget.takeLooks(count);
    return rowsOf(paintOver(painting, added, look));
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
        others.flatMap((index) => this.#rowsOf(index, undefined)),
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

  #rowsOf(index: number, identity: number | undefined): readonly CompiledRow[] {
    const known = this.#ofRule.get(index);
    if (known !== undefined) return known;
    const rule = this.#rules[index];
    if (rule === undefined) return [];
    if (this.#differs(index)) this.#budget.takeLooks(rule.ports?.length ?? 0);
    const { verdict, cookie } = rule;
    const numbersOf = typeof this.#names === 'function' ? this.#names : this.#names.numbersOf(identity, verdict);
    const ports = numbered(rule.ports, numbersOf);
    const rows = rowsOfRule({ ...decisionOfRule(verdict), cookie, ...(ports === undefined ? {} : { ports }) });
    if (!this.#differs(index)) this.#ofRule.set(index, rows);
    return rows;
  }
}

/** What the rules that are alike to every peer come to, and the others. */
interface Common {
  readonly painting: Painting;
  readonly named: readonly number[];
}
