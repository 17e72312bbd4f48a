/** Events are stored in the core/v1 shape and served under events.k8s.io/v1 with that group's field names. */
import type { JsonObject } from './json.ts';

const RENAMED: readonly (readonly [core: string, events: string])[] = [
  ['involvedObject', 'regarding'],
  ['message', 'note'],
  ['reportingComponent', 'reportingController'],
  ['source', 'deprecatedSource'],
  ['firstTimestamp', 'deprecatedFirstTimestamp'],
  ['lastTimestamp', 'deprecatedLastTimestamp'],
  ['count', 'deprecatedCount'],
];

const TO_EVENTS = new Map(RENAMED);
const TO_CORE = new Map(RENAMED.map(([core, events]) => [events, core]));

function rename(object: JsonObject, names: ReadonlyMap<string, string>, apiVersion: string): JsonObject {
  const out: JsonObject = {};
  for (const [key, value] of Object.entries(object)) out[names.get(key) ?? key] = value;
  out.apiVersion = apiVersion;
  return out;
}

export const eventFromStored = (object: JsonObject): JsonObject => rename(object, TO_EVENTS, 'events.k8s.io/v1');
export const eventToStored = (object: JsonObject): JsonObject => rename(object, TO_CORE, 'v1');
