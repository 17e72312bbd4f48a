/** Label selectors in the query language of lists and watches, with the real server's grammar and complaints. */
import { badRequest } from './errors.ts';
import { keyFaults, valueFaults } from './label-rules.ts';

type Labels = Readonly<Record<string, string>>;
type Test = (labels: Labels) => boolean;

const OPERATORS = ['=', '==', '!=', '<', '>', 'in', 'notin'];
const SPECIAL = '=!(),><';

const bad = (message: string): Error => badRequest(message);
const unparsed = (message: string): Error => badRequest(`unable to parse requirement: ${message}`);

/** Words, and the symbols = == != < > ( ) , ! between them; the last token is empty. */
function tokensOf(selector: string): string[] {
  const out: string[] = [];
  let at = 0;
  while (at < selector.length) {
    const char = selector[at] ?? '';
    if (/\s/.test(char)) at += 1;
    else if (SPECIAL.includes(char)) {
      const two = selector.slice(at, at + 2);
      const token = two === '==' || two === '!=' ? two : char;
      out.push(token);
      at += token.length;
    } else {
      const end = selector.slice(at).search(/[\s=!(),><]/);
      const word = end < 0 ? selector.slice(at) : selector.slice(at, at + end);
      out.push(word);
      at += word.length;
    }
  }
  return [...out, ''];
}

const isSymbol = (token: string): boolean => /^[=!(),><]*$/.test(token);
/** `in` and `notin` are plain words where a key or a value stands. */
const isWord = (token: string): boolean => !isSymbol(token);

class Parser {
  readonly #tokens: readonly string[];
  #at = 0;

  constructor(selector: string) {
    this.#tokens = tokensOf(selector);
  }

  get #next(): string {
    return this.#tokens[this.#at] ?? '';
  }

  #take(): string {
    const token = this.#next;
    this.#at += 1;
    return token;
  }

  all(): Test[] {
    const out: Test[] = [];
    for (;;) {
      if (this.#next === '') return out;
      if (!isWord(this.#next) && this.#next !== '!')
        throw bad(`found '${this.#next}', expected: !, identifier, or 'end of string'`);
      out.push(this.#requirement());
      const token = this.#take();
      if (token === '') return out;
      if (token !== ',') throw bad(`found '${token}', expected: ',' or 'end of string'`);
      if (!isWord(this.#next) && this.#next !== '!') throw bad(`found '${this.#next}', expected: identifier after ','`);
    }
  }

  #requirement(): Test {
    const negated = this.#next === '!';
    if (negated) this.#at += 1;
    const key = this.#take();
    if (!isWord(key)) throw unparsed(`found '${key}', expected: identifier`);
    const wrong = keyFaults(key)[0];
    if (wrong !== undefined)
      throw unparsed(`<nil>: Invalid value: ${JSON.stringify(key)}: ${keyFaults(key).join('; ')}`);
    if (negated) return (labels) => !Object.hasOwn(labels, key);
    if (this.#next === '' || this.#next === ',') return (labels) => Object.hasOwn(labels, key);
    const operator = this.#take();
    if (!OPERATORS.includes(operator)) throw unparsed(`found '${operator}', expected: in, notin, =, ==, !=, gt, lt`);
    const values = operator === 'in' || operator === 'notin' ? this.#values() : [this.#exact()];
    return test(key, operator, values);
  }

  #exact(): string {
    if (this.#next === '' || this.#next === ',') return '';
    const token = this.#take();
    if (!isWord(token)) throw unparsed(`found '${token}', expected: identifier`);
    return token;
  }

  #values(): string[] {
    const open = this.#take();
    if (open !== '(') throw unparsed(`found '${open}' expected: '('`);
    if (!isWord(this.#next) && this.#next !== ',' && this.#next !== ')')
      throw unparsed(`found '${this.#next}', expected: ',', ')' or identifier`);
    const out: string[] = [];
    for (let word = ''; ; ) {
      const token = this.#take();
      if (isWord(token)) {
        word = token;
        if (this.#next !== ',' && this.#next !== ')') throw unparsed(`found '${this.#next}', expected: ',' or ')'`);
      } else if (token === ',' || token === ')') {
        out.push(word);
        word = '';
        if (token === ')') return out;
      } else throw unparsed(`found '${token}', expected: ',', or identifier`);
    }
  }
}

function test(key: string, operator: string, values: readonly string[]): Test {
  const order = operator === '>' || operator === '<';
  const bound = values[0] ?? '';
  if (order && !/^[-+]?\d+$/.test(bound))
    throw unparsed(
      `values[0]: Invalid value: ${JSON.stringify(bound)}: for 'Gt', 'Lt' operators, the value must be an integer`,
    );
  values.forEach((value, i) => {
    const found = valueFaults(value);
    if (found.length > 0)
      throw unparsed(`values[${i}][${key}]: Invalid value: ${JSON.stringify(value)}: ${found.join('; ')}`);
  });
  const has = (labels: Labels): boolean => Object.hasOwn(labels, key) && values.includes(labels[key] ?? '');
  switch (operator) {
    case '!=':
    case 'notin':
      return (labels) => !has(labels);
    case '>':
    case '<':
      return (labels) => {
        const own = labels[key] ?? '';
        if (!/^[-+]?\d+$/.test(own)) return false;
        return operator === '>' ? Number(own) > Number(bound) : Number(own) < Number(bound);
      };
    default:
      return has;
  }
}

/** The tests that a selector makes; none for an empty one. @throws StatusError BadRequest when it cannot be parsed. */
export const labelTests = (selector: string): Test[] => new Parser(selector).all();
