import { electionPart } from './election-part.ts';
import { failuresPart } from './failures-part.ts';
import { healthPart } from './health-part.ts';
import { heartbeatPart } from './heartbeat/heartbeat-part.ts';
import { cidrGroupsPart } from './kubernetes/cidr-groups-part.ts';
import { garbagePart } from './kubernetes/garbage-part.ts';
import { inputsPart } from './kubernetes/inputs-part.ts';
import { policiesPart } from './kubernetes/policies-part.ts';
import { reportsPart } from './kubernetes/reports-part.ts';
import { servicesPart } from './kubernetes/services-part.ts';
import { targetsPart } from './kubernetes/targets-part.ts';
import { workloadsPart } from './kubernetes/workloads-part.ts';
import { writersPart } from './kubernetes/writers-part.ts';
import { leasePart } from './lease-part.ts';
import { limitsPart } from './limits-part.ts';
import { identityGcPart } from './model/identity-gc-part.ts';
import { modelPart } from './model-part.ts';
import type { AnyOperatorPart, ConfigOfParts } from './parts/contract.ts';
import { policyWebhookPart } from './policy-webhook/policy-webhook-part.ts';
import { preflightPart } from './preflight-part.ts';
import { syncLoopPart } from './sync-loop-part.ts';
import { tablesPart } from './tables-part.ts';
import { tenantLogPart } from './tenant-log-part.ts';
import { totalsPart } from './totals-part.ts';
import { webhooksPart } from './webhooks/webhooks-part.ts';

/**
 * The operator. First what lives as long as the process, then what lives for a term. A term stops in the opposite order: first nothing is read any
 * more, then nothing computed, then nothing written, and the lease goes last: while it is ours nobody else writes.
 */
export const OPERATOR_PARTS = [
  totalsPart,
  failuresPart,
  healthPart,
  limitsPart,
  policyWebhookPart,
  webhooksPart,
  identityGcPart,
  electionPart,
  preflightPart,

  tablesPart,
  leasePart,
  writersPart,
  targetsPart,
  tenantLogPart,
  policiesPart,
  workloadsPart,
  servicesPart,
  cidrGroupsPart,
  reportsPart,
  modelPart,
  syncLoopPart,
  garbagePart,
  inputsPart,
  heartbeatPart,
] as const satisfies readonly AnyOperatorPart[];

export type OperatorConfig = ConfigOfParts<typeof OPERATOR_PARTS>;
