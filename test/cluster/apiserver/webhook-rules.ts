/** ValidatingWebhookConfigurations: defaults, and what may be written in them. What is not evaluated here is not accepted either. */
import { type Cause, cause } from './errors.ts';
import { at, isObject, type Json, type JsonObject, list, object, scalarText, text } from './json.ts';
import type { Strategy } from './registry.ts';

const OPERATIONS = ['CREATE', 'UPDATE'];
const NOT_EVALUATED = ['namespaceSelector', 'objectSelector', 'matchConditions'];

export const webhookConfiguration: Strategy = {
  defaults: (o) => {
    for (const webhook of list(o, 'webhooks')) if (isObject(webhook)) setDefaults(webhook);
  },
  validate: (o) =>
    list(o, 'webhooks').flatMap((webhook, index) =>
      isObject(webhook) ? rulesOf(webhook, `webhooks[${index}]`) : [cause.required(`webhooks[${index}]`)],
    ),
};

function setDefaults(webhook: JsonObject): void {
  webhook.failurePolicy ??= 'Fail';
  webhook.matchPolicy ??= 'Equivalent';
  webhook.timeoutSeconds ??= 10;
  webhook.namespaceSelector ??= {};
  webhook.objectSelector ??= {};
  for (const rule of list(webhook, 'rules')) if (isObject(rule)) rule.scope ??= '*';
  const service = at(webhook, 'clientConfig', 'service');
  if (isObject(service)) service.port ??= 443;
}

function rulesOf(webhook: JsonObject, path: string): Cause[] {
  const out: Cause[] = [];
  const client = object(webhook, 'clientConfig');
  if ((client.url === undefined) === (client.service === undefined))
    out.push(cause.required(`${path}.clientConfig`, 'exactly one of url or service is required'));
  if (client.url !== undefined && !text(client, 'url').startsWith('https://'))
    out.push(cause.invalid(`${path}.clientConfig.url`, client.url, "'https' is the only allowed URL scheme"));
  if (!['None', 'NoneOnDryRun'].includes(text(webhook, 'sideEffects')))
    out.push(cause.notSupported(`${path}.sideEffects`, at(webhook, 'sideEffects'), ['None', 'NoneOnDryRun']));
  if (!['Ignore', 'Fail'].includes(text(webhook, 'failurePolicy')))
    out.push(cause.notSupported(`${path}.failurePolicy`, at(webhook, 'failurePolicy'), ['Fail', 'Ignore']));
  if (!list(webhook, 'admissionReviewVersions').includes('v1'))
    out.push(cause.invalid(`${path}.admissionReviewVersions`, at(webhook, 'admissionReviewVersions'), 'must have v1'));
  const { timeoutSeconds } = webhook;
  if (typeof timeoutSeconds !== 'number' || timeoutSeconds < 1 || timeoutSeconds > 30)
    out.push(
      cause.invalid(`${path}.timeoutSeconds`, timeoutSeconds, 'the timeout value must be between 1 and 30 seconds'),
    );
  for (const field of NOT_EVALUATED)
    if (!isEmpty(webhook[field])) out.push(cause.forbidden(`${path}.${field}`, 'this server does not evaluate it'));
  list(webhook, 'rules').forEach((rule, index) => {
    const where = `${path}.rules[${index}]`;
    for (const field of ['apiGroups', 'apiVersions', 'resources', 'operations'])
      if (list(rule, field).length === 0) out.push(cause.required(`${where}.${field}`));
    for (const operation of list(rule, 'operations'))
      if (!OPERATIONS.includes(scalarText(operation)))
        out.push(cause.forbidden(`${where}.operations`, 'this server asks of CREATE and UPDATE alone'));
    for (const resource of list(rule, 'resources'))
      if (!/^[^/]+(\/status)?$/.test(scalarText(resource)))
        out.push(cause.forbidden(`${where}.resources`, 'this server asks of resources and their status alone'));
  });
  return out;
}

function isEmpty(value: Json | undefined): boolean {
  return value === undefined || value === null || Object.keys(value).length === 0;
}
