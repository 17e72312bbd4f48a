/** Metadata of an object as the API server, and kubectl's strict validation, judge it. */
import { labelValueProblem, readSelectorKey } from '@weir/labels';
import { clipped } from '@weir/process/printable';

/** Path in the object, and what is wrong. */
export type MetadataProblem = readonly [path: string, message: string];

const FIELDS = [
  'name',
  'generateName',
  'namespace',
  'labels',
  'annotations',
  'uid',
  'resourceVersion',
  'generation',
  'creationTimestamp',
  'deletionTimestamp',
  'deletionGracePeriodSeconds',
  'ownerReferences',
  'finalizers',
  'managedFields',
  'selfLink',
];
const LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
/** Keys and values of all annotations together. */
const MOST_ANNOTATION_BYTES = 262_144;

/** Nothing of what is absent: whether a name is needed depends on the kind. */
export function metadataProblems(metadata: unknown): readonly MetadataProblem[] {
  if (metadata === undefined) return [];
  if (!isMap(metadata)) return [['metadata', `${show(metadata)} is no object: write metadata: {name: ...}`]];
  return [
    ...Object.keys(metadata)
      .filter((field) => !FIELDS.includes(field))
      .map((field): MetadataProblem => {
        const near = FIELDS.find((known) => known.toLowerCase() === field.toLowerCase());
        const hint = near === undefined ? 'labels and annotations take names of your own' : `did you mean ${near}?`;
        return [child('metadata', field), `unknown field ${show(field)}: ${hint}`];
      }),
    ...nameProblems('metadata.name', metadata.name, SUBDOMAIN, 253, 'letters a-z, digits, "-" and "."'),
    ...nameProblems('metadata.namespace', metadata.namespace, LABEL, 63, 'letters a-z, digits and "-"'),
    ...labelProblems(metadata.labels),
    ...annotationProblems(metadata.annotations),
  ];
}

export function isNamespaceName(text: string): boolean {
  return nameProblems('', text, LABEL, 63, '').length === 0 && text !== '';
}

function nameProblems(
  path: string,
  name: unknown,
  pattern: RegExp,
  most: number,
  letters: string,
): readonly MetadataProblem[] {
  if (name === undefined || name === null || name === '') return [];
  if (typeof name !== 'string') return [[path, `${show(name)} is not a text: put it in quotes`]];
  if (name.length > most) return [[path, `${show(name)} has ${name.length} characters: at most ${most} are taken`]];
  if (pattern.test(name)) return [];
  return [[path, `${show(name)} is no name: write ${letters}, with a letter or digit at both ends`]];
}

function labelProblems(labels: unknown): readonly MetadataProblem[] {
  return textsOf('metadata.labels', labels, (key, value) => {
    const { reason } = readSelectorKey(key, { keys: 'kubernetes' });
    if (reason !== undefined) return `${show(key)} ${reason}`;
    const problem = labelValueProblem(value);
    return problem === undefined ? undefined : `${show(value)} ${problem}`;
  });
}

function annotationProblems(annotations: unknown): readonly MetadataProblem[] {
  const problems = textsOf('metadata.annotations', annotations, (key) => {
    const { reason } = readSelectorKey(key.toLowerCase(), { keys: 'kubernetes' });
    return reason === undefined ? undefined : `${show(key)} ${reason.replace('a label key', 'an annotation key')}`;
  });
  const size = isMap(annotations) ? Buffer.byteLength(Object.entries(annotations).flat().join('')) : 0;
  if (size <= MOST_ANNOTATION_BYTES) return problems;
  return [...problems, ['metadata.annotations', `${size} bytes: at most ${MOST_ANNOTATION_BYTES} are taken`]];
}

function textsOf(
  path: string,
  map: unknown,
  problemOf: (key: string, value: string) => string | undefined,
): readonly MetadataProblem[] {
  if (map === undefined || map === null) return [];
  if (!isMap(map)) return [[path, `${show(map)} is no object: write names and texts`]];
  return Object.entries(map).flatMap(([key, value]): readonly MetadataProblem[] => {
    const problem =
      typeof value === 'string' ? problemOf(key, value) : `${show(value)} is not a text: put it in quotes`;
    return problem === undefined ? [] : [[child(path, key), problem]];
  });
}

export function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function show(value: unknown): string {
  return clipped(JSON.stringify(value) ?? 'nothing', 80);
}

export function child(path: string, field: string): string {
  return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(field) ? `${path}.${field}` : `${path}[${JSON.stringify(field)}]`;
}
