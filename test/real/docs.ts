/**
 * Reads the pages of docs/ as a test runs them. Pure.
 *
 * A page says once which cluster its commands want: `<!-- cluster: empty -->` (no pod network yet) or `<!-- cluster: installed -->` (Weir
 * in kube-system). Its fenced blocks are scripts, to be run in their order, each by a shell of its own, from the checkout's root:
 *
 *   ```sh test             must end with 0
 *   ```sh test fails       must not
 *   ```sh no-test WHY      cannot be run by a test, for this reason
 *   ```text                output of the block before it, as an example; not compared
 *
 * Every other fence is a problem, so that no command of a page goes unnoticed.
 */

export type Cluster = 'empty' | 'installed';

export interface DocBlock {
  readonly file: string;
  /** Of the script's first line, from 1. */
  readonly line: number;
  /** What is to come of it; `skip`: it is not run. */
  readonly expect: 'success' | 'failure' | 'skip';
  /** Why it is not run. */
  readonly reason?: string;
  readonly script: string;
}

export interface DocPage {
  readonly file: string;
  /** Undefined when the page has no marker, which is a problem if it has scripts to run. */
  readonly cluster: Cluster | undefined;
  readonly blocks: readonly DocBlock[];
  /** What is wrong with the page, each with file and line. */
  readonly problems: readonly string[];
}

const FENCE = /^(\s*)```(.*)$/;
const CLUSTER = /^<!-- cluster: (.*) -->$/;

/** `file` is only for messages; `text` is the page. */
export function readPage(file: string, text: string): DocPage {
  const blocks: DocBlock[] = [];
  const problems: string[] = [];
  const clusters: Cluster[] = [];
  const lines = text.split('\n');
  const problem = (at: number, what: string): void => void problems.push(`${file}:${at + 1}: ${what}`);
  let afterScript = false;
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? '';
    const cluster = CLUSTER.exec(line)?.[1];
    if (cluster !== undefined) {
      if (cluster === 'empty' || cluster === 'installed') clusters.push(cluster);
      else problem(at, `there is no cluster "${cluster}": write empty or installed`);
      if (clusters.length > 1) problem(at, 'a second cluster marker: a page has one');
    }
    const [, indent, info] = FENCE.exec(line) ?? [];
    if (indent === undefined || info === undefined) {
      // Only blank lines may stand between a script and its output.
      if (line.trim() !== '') afterScript = false;
      continue;
    }
    const end = lines.findIndex((other, index) => index > at && other.trim() === '```');
    if (end < 0) {
      problem(at, 'a fence that nothing closes');
      break;
    }
    const body = lines
      .slice(at + 1, end)
      .map((inner) => (inner.startsWith(indent) ? inner.slice(indent.length) : inner));
    const kind = kindOf(info);
    if (typeof kind === 'object') {
      if (body.join('').trim() === '') problem(at, 'a script without a command');
      blocks.push({ file, line: at + 2, ...kind, script: `${body.join('\n')}\n` });
    } else if (kind === 'problem') {
      problem(
        at,
        `"\`\`\`${info}": write "sh test", "sh test fails", "sh no-test" and a reason, or "text" after such a block`,
      );
    } else if (!afterScript) problem(at, 'output that follows no script');
    afterScript = typeof kind === 'object';
    at = end;
  }
  if (clusters.length === 0 && blocks.some((block) => block.expect !== 'skip'))
    problems.push(`${file}:1: no line "<!-- cluster: empty -->" or "<!-- cluster: installed -->"`);
  return { file, cluster: clusters[0], blocks, problems };
}

function kindOf(info: string): Pick<DocBlock, 'expect' | 'reason'> | 'output' | 'problem' {
  if (info === 'sh test') return { expect: 'success' };
  if (info === 'sh test fails') return { expect: 'failure' };
  if (info === 'text') return 'output';
  const reason = /^sh no-test (\S.*)$/.exec(info)?.[1];
  return reason === undefined ? 'problem' : { expect: 'skip', reason };
}

/** One command of a script: what a shell would run, without quotes and expansions. */
export interface DocCommand {
  readonly line: number;
  readonly words: readonly string[];
}

/**
 * The simple commands of a block, split at pipes, `;`, `&&`, line ends and command substitutions; here-documents and comments are left
 * out. As much of a shell's language as the pages use.
 */
export function commandsOf(block: DocBlock): readonly DocCommand[] {
  const commands: DocCommand[] = [];
  let until: string | undefined;
  for (const [index, text] of block.script.split('\n').entries()) {
    if (until !== undefined) {
      if (text === until) until = undefined;
      continue;
    }
    until = /<<'?(\w+)'?/.exec(text)?.[1];
    const bare = text.replace(/<<.*$/, '').replace(/(^|\s)#.*$/, '');
    for (const part of split(bare)) {
      const words = part
        .split(/[ \t]+/)
        .filter((word) => word !== '' && !/^[A-Z_]+=$/.test(word))
        .map((word) => word.replaceAll(QUOTED_SPACE, ' '));
      if (words.length > 0) commands.push({ line: block.line + index, words });
    }
  }
  return commands;
}

/** Stands for a space inside of quotes, which ends no word. */
const QUOTED_SPACE = '\0';

/** Outside of quotes, at what ends a command; `$(` and `)` begin and end one, too. */
function split(text: string): readonly string[] {
  const parts: string[] = [''];
  let quote = '';
  for (let at = 0; at < text.length; at += 1) {
    const here = text[at] ?? '';
    if (quote !== '') {
      if (here === quote) quote = '';
      else add(here === ' ' ? QUOTED_SPACE : here);
    } else if (here === "'" || here === '"') quote = here;
    else if (here === '$' && text[at + 1] === '(') {
      parts.push('');
      at += 1;
    } else if (here === ')' || here === '|' || here === ';' || here === '&') parts.push('');
    else add(here);
  }
  return parts;

  function add(character: string): void {
    parts[parts.length - 1] += character;
  }
}
