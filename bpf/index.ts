/**
 * The datapath: its programs (weir.c), how to build them, and the bytes of their maps.
 *
 * Guarantees: codecs are exact inverses of the C layouts (the compiler asserts sizes and offsets); encoders refuse what
 * does not fit. This folder makes no decision and keeps no state. The contract of the packet path is at the top of weir.c.
 */
export {
  type BuildOptions,
  type BuiltDatapath,
  buildDatapath,
  objectBeside,
  objectFor,
  SKB_ACCESS,
  type SkbAccess,
} from './build.ts';
export type { Codec } from './codec.ts';
export {
  CT_FLAGS,
  DIRECTION,
  type Direction,
  DROP_REASONS,
  ENDPOINT_FLAGS,
  EVENT_KIND,
  FIRST_CLASS,
  MARK_ANSWER,
  MARK_FROM_PROXY,
  MARK_PROXY,
  MARK_TO_PROXY,
  PROTOCOL,
  type Reason,
  reasonNumber,
  SETTING_PROXY_PORT,
  SETTING_PROXY_RATE,
  SETTINGS,
  VERDICT,
} from './constants.ts';
export { checkElement, ENDPOINT_CELLS, EndpointCells, elementProblem } from './endpoint-cells.ts';
export { DatapathBuildError, LayoutError } from './errors.ts';
export {
  CT_CELLS,
  CT_KEYS,
  type CtKey,
  type CtShare,
  type CtValue,
  ctAge,
  ctShare,
  ctTimeoutTicks,
  ctValue,
  type DatapathEvent,
  decodeEvent,
  EVENT_SIZE,
  isHalfOpen,
  listenerOf,
  type MetricsKey,
  type MetricsValue,
  metricsEntry,
  metricsKey,
  sumMetrics,
  TICK_NS,
  ticksAt,
} from './flows.ts';
export {
  type ClassKey,
  type ClassValue,
  classKey,
  classValue,
  ctShareKey,
  type EndpointValue,
  endpointKey,
  endpointValue,
  type IpcacheKey,
  type IpcacheValue,
  identityIn,
  ipcacheKey,
  ipcacheValue,
  isVerdictPrefix,
  nameKey,
  nameValue,
  settingsKey,
  settingsValue,
  slotKey,
  VERDICT_KIND,
  type VerdictKey,
  type VerdictValue,
  verdictKey,
  verdictPrefix,
  verdictPrefixValue,
  verdictValue,
} from './layout.ts';
export {
  createSlotMaps,
  MAPS,
  type MapEntry,
  type MapName,
  type MapShape,
  type MapSpec,
  PROGRAMS,
  type SlotSizes,
  STAGES,
  slotMapOptions,
} from './maps.ts';
export type { Hook, ObjectSource, ProgramObject } from './program-object.ts';
