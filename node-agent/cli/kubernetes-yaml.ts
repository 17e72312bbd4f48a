/**
 * YAML as kubectl reads it, which is neither YAML 1.1 nor 1.2: `no`, `off` and `n` are false, `010` is 8, `12:30` and dates are texts, `<<` merges. A file
 * read by other rules would be judged by other values than those that reach the API server.
 */
import {
  CORE_SCHEMA,
  constructFromEvents,
  defineScalarTag,
  type Event,
  mergeTag,
  NOT_RESOLVED,
  parseEvents,
} from 'js-yaml';

/** Levels of YAML: to read twice as many may take more than the stack. */
const DEEPEST = 1_000;
/** Aliases of one document. */
const MOST_ALIASES = 10_000;

const TRUE = /^(y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON)$/;
const FALSE = /^(n|N|no|No|NO|false|False|FALSE|off|Off|OFF)$/;
const INTEGER = /^([-+]?)(0[bB][01]+|0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0|[1-9][0-9]*)$/;

const SCHEMA = CORE_SCHEMA.withTags(
  mergeTag,
  defineScalarTag('tag:yaml.org,2002:bool', {
    implicit: true,
    implicitFirstChars: 'yYnNtTfFoO'.split(''),
    resolve: (text) => (TRUE.test(text) ? true : FALSE.test(text) ? false : NOT_RESOLVED),
    identify: () => false,
  }),
  defineScalarTag('tag:yaml.org,2002:int', {
    implicit: true,
    implicitFirstChars: '+-0123456789'.split(''),
    resolve: (text) => integer(text) ?? NOT_RESOLVED,
    identify: () => false,
  }),
);

function integer(text: string): number | undefined {
  const [, sign, digits = ''] = INTEGER.exec(text.replaceAll('_', '')) ?? [];
  if (digits === '') return undefined;
  const octal = /^0[0-7]+$/.test(digits) ? `0o${digits.slice(1)}` : digits;
  return sign === '-' ? -Number(octal) : Number(octal);
}

export interface YamlStream {
  readonly events: readonly Event[];
  /** Of each document. An alias is the same object as what it stands for. */
  readonly values: readonly unknown[];
}

/** @throws YAMLException */
export function readYaml(text: string): YamlStream {
  const events = parseEvents(text, { maxDepth: DEEPEST });
  const values = constructFromEvents(events, { source: text, schema: SCHEMA, maxAliases: MOST_ALIASES });
  return { events, values };
}
