/** SARIF 2.1.0 as code scanning takes it. */
import { relative, resolve, sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Finding, FindingCode } from './validate.ts';

const RULES: Readonly<Record<FindingCode, string>> = {
  InvalidYaml: 'The file is no YAML or JSON.',
  InvalidSpec: 'The API server or Weir refuses the policy, or a part of it.',
  InvalidMetadata: 'The API server refuses the metadata of the object.',
  DuplicateName: 'Two objects have one kind, namespace and name: the last that is applied replaces the other.',
  BudgetExceeded: 'The policy needs more than one policy may.',
  UnsupportedField:
    'Weir does not enforce an element as it is written: an allow allows nothing, a deny is taken at its widest.',
  Warning: 'The policy is enforced, and may mean something else than its author thinks.',
  OtherKind: 'The document is no policy and was not judged.',
};

/** @param cwd the folder that paths of the log are relative to: the root of the repository */
export function sarifLog(findings: readonly Finding[], version: string, cwd: string): object {
  const ids = Object.keys(RULES) as FindingCode[];
  return {
    $schema: 'https://json.schemastore.org/sarif-2.1.0.json',
    version: '2.1.0',
    runs: [
      {
        tool: {
          driver: {
            name: 'weir policy validate',
            version,
            rules: ids.map((id) => ({ id, name: id, shortDescription: { text: RULES[id] } })),
          },
        },
        columnKind: 'utf16CodeUnits',
        results: findings.map((finding) => ({
          ruleId: finding.code,
          ruleIndex: ids.indexOf(finding.code),
          level: finding.severity,
          message: { text: textOf(finding) },
          locations: [
            {
              physicalLocation: {
                artifactLocation: { uri: uriOf(finding.file, cwd) },
                region: { startLine: finding.line, startColumn: finding.column },
              },
              ...(finding.object === undefined
                ? {}
                : { logicalLocations: [{ fullyQualifiedName: finding.object, kind: 'object' }] }),
            },
          ],
        })),
      },
    ],
  };
}

/** What is wrong, with its path. */
export function textOf({ path, message }: Finding): string {
  return path === '' ? message : `${path}: ${message}`;
}

/** Relative where the file is below `cwd`. */
function uriOf(file: string, cwd: string): string {
  const path = relative(cwd, resolve(cwd, file));
  if (path.startsWith('..')) return pathToFileURL(resolve(cwd, file)).href;
  return path.split(sep).map(encodeURIComponent).join('/');
}
