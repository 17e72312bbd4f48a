import { type LabelSelector, matches, type Requirement } from '@weir/labels';
import type { FastifyInstance } from 'fastify';
import { type Audit, labelList, member, some } from './audit-fields.ts';
import { BadRequestError, ClientGoneError, HttpError, NotFoundError } from './errors.ts';
import { queryFlag, queryList, queryString, stringList } from './input.ts';
import { sendJson } from './json.ts';
import { canonicalLabels } from './labels.ts';
import type { PolicyModel } from './models.ts';
import { parsePolicyRef, policyStatuses } from './policy-status.ts';
import type { ApiOptions } from './types.ts';

const imported: Audit = ({ query, body }) => ({
  ...rulesOf(body),
  ...some('replace', query.replace),
  ...labelList('replaceWithLabels', query['replace-with-labels']),
});

const deleted: Audit = ({ query, body }) => labelList('labels', [query.labels ?? [], body ?? []].flat());

/** How many rules, and the labels by which they are deleted again. */
function rulesOf(body: unknown): object {
  if (body === undefined || body === null) return {};
  const rules: readonly unknown[] = Array.isArray(body) ? body : [body];
  return {
    rules: rules.length,
    ...labelList(
      'labels',
      rules.flatMap((rule) => member(rule, 'labels') ?? []),
    ),
  };
}

/** @param stopping ends requests that wait, when the agent does */
export function policyRoutes(app: FastifyInstance, options: ApiOptions, stopping: AbortSignal): void {
  const { core } = options;

  app.get('/policy/status', (request, reply) => {
    const wanted = queryString(request.query, 'policy');
    return sendJson(reply, 200, policyStatuses(options, wanted === undefined ? undefined : parsePolicyRef(wanted)));
  });

  app.get('/policy', (request, reply) => {
    const labels = wantedLabels(request.query, request.body);
    known(core);
    const rules = core.importedRules(labels);
    if (labels.length > 0 && rules.length === 0)
      throw new NotFoundError(`no imported rule carries all of: ${labels.join(', ')}`);
    return sendJson(
      reply,
      200,
      policyModel(
        core.policyRevision(),
        rules.map((rule) => rule.json),
      ),
    );
  });

  app.put('/policy', { config: { audit: imported } }, async (request, reply) => {
    if (request.body === undefined || request.body === null)
      throw new BadRequestError('the body is empty; send a JSON list of rules');
    const replaceWithLabels = canonicalLabels(queryList(request.query, 'replace-with-labels'));
    const { revision, problems } = core.importRules(request.body, {
      replace: queryFlag(request.query, 'replace'),
      ...(replaceWithLabels.length === 0 ? {} : { replaceWithLabels }),
    });
    const fatal = problems.filter((problem) => problem.code !== 'Warning');
    if (fatal.length > 0) {
      const lines = fatal.map((problem) => `${problem.path === '' ? 'rules' : problem.path}: ${problem.message}`);
      throw new BadRequestError(`nothing was imported: ${lines.join('; ')}`);
    }
    await core.files.saved();
    return sendJson(reply, 200, {
      ...policyModel(
        revision,
        core.importedRules().map((rule) => rule.json),
      ),
      ...unsaved(core),
    });
  });

  app.delete('/policy', { config: { audit: deleted } }, async (request, reply) => {
    const labels = wantedLabels(request.query, request.body);
    if (labels.length > 0) known(core);
    const { revision, deleted } = core.deleteRules(labels);
    if (deleted === 0 && labels.length > 0)
      throw new NotFoundError(`no imported rule carries all of: ${labels.join(', ')}`);
    await core.files.saved();
    return sendJson(reply, 200, {
      ...policyModel(
        revision,
        core.importedRules().map((rule) => rule.json),
      ),
      ...unsaved(core),
      deleted,
    });
  });

  app.get('/policy/selectors', (_request, reply) => sendJson(reply, 200, selectors(options)));
  app.get('/policy/subject-selectors', (_request, reply) => sendJson(reply, 200, selectors(options)));

  waitRoute(app, options, stopping);
}

function waitRoute(app: FastifyInstance, { core }: ApiOptions, stopping: AbortSignal): void {
  app.get('/policy/wait', async (request, reply) => {
    const text = queryString(request.query, 'revision');
    const revision = text === undefined ? core.policyRevision() : Number(text);
    if (!Number.isSafeInteger(revision) || revision < 0)
      throw new BadRequestError(`query parameter "revision" is "${text}", not a whole number`);
    const gone = new AbortController();
    reply.raw.on('close', () => gone.abort(new ClientGoneError()));
    try {
      return sendJson(reply, 200, await core.waitPolicyRevision(revision, AbortSignal.any([gone.signal, stopping])));
    } catch (error) {
      if (!stopping.aborted) throw error;
      throw new HttpError(503, 'the agent is ending; ask its successor', { cause: error });
    }
  });
}

/** @throws HttpError while nobody knows which rules were imported: none of them in the table is not none in force */
function known(core: ApiOptions['core']): void {
  const waiting = core.rulesWait();
  if (waiting?.reason === 'ImportedRulesUnknown') throw new HttpError(503, waiting.message);
}

/** What was asked for is in force, and the agent's successor would not know it. */
function unsaved({ files }: ApiOptions['core']): Pick<PolicyModel, 'warnings'> {
  const why = files.unsaved('rules');
  return why === undefined ? {} : { warnings: [`the change will not outlive a restart of the agent: ${why}`] };
}

function wantedLabels(query: unknown, body: unknown): readonly string[] {
  return canonicalLabels([...queryList(query, 'labels'), ...stringList(body, 'the body (labels)')]);
}

function policyModel(revision: number, rules: readonly unknown[]): PolicyModel {
  return { revision, policy: JSON.stringify(rules, null, 2) };
}

/** The selector cache: each peer set with its identities and how many policies name it. */
function selectors(options: ApiOptions): readonly object[] {
  const { db, tables } = options.core;
  using snapshot = db.read();
  const users = new Map<string, Set<string>>();
  const use = (hash: string, uid: string): void => {
    const set = users.get(hash) ?? new Set();
    users.set(hash, set.add(uid));
  };
  for (const policy of snapshot.all(tables.policies)) {
    for (const rule of policy.rules) {
      use(rule.subject, policy.uid);
      for (const peer of rule.peers ?? []) if ('peerSet' in peer) use(peer.peerSet, policy.uid);
    }
  }
  // Nobody lists who is in the sets of imported rules.
  const matching = (selector: LabelSelector): number[] =>
    [...snapshot.all(tables.identities)].filter(({ labels }) => matches(selector, labels)).map(({ id }) => id);
  return [...snapshot.all(tables.peerSets)].map((set) => ({
    selector: selectorText(set.selector),
    labels: [],
    identities: set.origin === 'cluster' ? set.identities : matching(set.selector),
    users: users.get(set.hash)?.size ?? 0,
    hash: set.hash,
  }));
}

function selectorText(selector: LabelSelector): string {
  return selector.requirements.length === 0 ? '{}' : selector.requirements.map(requirementText).join(', ');
}

function requirementText({ key, operator, values }: Requirement): string {
  switch (operator) {
    case 'In':
      return values.length === 1 ? `${key}=${values[0] ?? ''}` : `${key} in (${values.join(',')})`;
    case 'NotIn':
      return `${key} not in (${values.join(',')})`;
    case 'Exists':
      return `${key} exists`;
    case 'DoesNotExist':
      return `${key} does not exist`;
  }
}
