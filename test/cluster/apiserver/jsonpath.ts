/** The JSONPath subset of additionalPrinterColumns and selectableFields: fields, quoted keys, indexes, wildcards, equality filters. */
import { isObject, type Json, scalarText } from './json.ts';

type Step = (value: Json) => Json[];

const field =
  (name: string): Step =>
  (value) => {
    const found = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
    return found === undefined ? [] : [found];
  };
const wildcard: Step = (value) => (Array.isArray(value) ? value : isObject(value) ? Object.values(value) : []);
const index =
  (i: number): Step =>
  (value) => {
    const found = Array.isArray(value) ? value.at(i) : undefined;
    return found === undefined ? [] : [found];
  };
const descend: Step = (value) => {
  const out: Json[] = [value];
  for (const child of wildcard(value)) out.push(...descend(child));
  return out;
};

function filter(expression: string): Step {
  const match = /^@\.?([^=!]*?)\s*(==|!=)\s*(?:"([^"]*)"|'([^']*)'|(\S+))$/.exec(expression.trim());
  if (match === null) {
    const exists = compileJsonPath(expression.trim().replace(/^@/, ''));
    return (value) => (Array.isArray(value) ? value.filter((entry) => exists(entry).length > 0) : []);
  }
  const [, path = '', operator, double, single, bare] = match;
  const read = compileJsonPath(`.${path}`);
  const wanted = double ?? single ?? bare ?? '';
  return (value) =>
    Array.isArray(value)
      ? value.filter((entry) => read(entry).some((found) => scalarText(found) === wanted) === (operator === '=='))
      : [];
}

/**
 * Compiles a path such as `.spec.ports[0].port` or `.status.conditions[?(@.type=="Ready")].status`.
 * @throws Error naming the path when it uses syntax outside the subset.
 */
export function compileJsonPath(path: string): (value: Json) => Json[] {
  const source = path
    .trim()
    .replace(/^\{|\}$/g, '')
    .replace(/^\$/, '');
  const steps: Step[] = [];
  const token =
    /\.\.|\.?\*|\.((?:\\.|[^.[\]\\])+)|\[\?\((.*?)\)\]|\[\*\]|\[(-?\d+)\]|\[(?:'([^']*)'|"([^"]*)")\]|^([A-Za-z_][\w-]*)|\.$/y;
  let position = 0;
  while (position < source.length) {
    token.lastIndex = position;
    const match = token.exec(source);
    if (match === null) throw new Error(`JSONPath ${path}: cannot read from "${source.slice(position)}"`);
    position = token.lastIndex;
    const [whole, name, condition, at, single, double, bare] = match;
    const key = name?.replaceAll('\\', '') ?? single ?? double ?? bare;
    if (key !== undefined) steps.push(field(key));
    else if (condition !== undefined) steps.push(filter(condition));
    else if (at !== undefined) steps.push(index(Number(at)));
    else if (whole.includes('*')) steps.push(wildcard);
    else if (whole === '..') steps.push(descend);
  }
  return (value) => steps.reduce<Json[]>((values, step) => values.flatMap(step), [value]);
}
