/** Names as people see them: `/v1/fqdn`. */
import { canonicalHostName, hostNameMatches } from '@weir/policy';
import type { Reader, StateDB } from '@weir/statedb';
import type { FastifyInstance } from 'fastify';
import type { Audit } from '../api/audit-fields.ts';
import { BadRequestError, ConflictError, NotFoundError } from '../api/errors.ts';
import { sendJson } from '../api/json.ts';
import type { FqdnCacheModel, FqdnNamesModel } from '../api/models.ts';
import type { Tables } from '../core.ts';
import type { FqdnRow, FqdnTable } from './types.ts';

export interface FqdnFaces {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'nameIdentities' | 'endpoints'>;
  readonly names: FqdnTable;
  /** Undefined: no proxy is there. */
  readonly forget: (pattern: string) => true | undefined;
}

interface CacheQuery {
  readonly matchpattern?: string;
  readonly cidr?: string;
  readonly source?: string;
}

export function fqdnRoutes(app: FastifyInstance, faces: FqdnFaces): void {
  app.get<{ Querystring: CacheQuery }>('/fqdn/cache', (request, reply) => {
    using snapshot = faces.db.read();
    return sendJson(reply, 200, cacheOf(snapshot.all(faces.names), patternIn(request.query)));
  });
  app.get<{ Params: { id: string }; Querystring: CacheQuery }>('/fqdn/cache/:id', (request, reply) => {
    const { id } = request.params;
    using snapshot = faces.db.read();
    if (!/^\d{1,5}$/.test(id) || !hasEndpoint(snapshot, faces, Number(id)))
      throw new NotFoundError(`no endpoint has the number ${JSON.stringify(id)}`);
    const rows = snapshot.list(faces.names, 'endpoint', id);
    return sendJson(reply, 200, cacheOf(rows, patternIn(request.query)));
  });
  const audit: Audit = ({ query }) => ({ pattern: query.matchpattern ?? '*' });
  app.delete<{ Querystring: CacheQuery }>('/fqdn/cache', { config: { audit } }, (request, reply) => {
    const pattern = patternIn(request.query);
    if (faces.forget(pattern) === undefined)
      throw new ConflictError('the DNS proxy is away, and what it knows stays; try again when `weir status` shows it');
    return sendJson(reply, 200, { forgotten: pattern });
  });
  app.get('/fqdn/names', (_request, reply) => {
    using snapshot = faces.db.read();
    return sendJson(reply, 200, namesOf(snapshot, faces));
  });
}

function hasEndpoint(snapshot: Reader, { tables }: FqdnFaces, id: number): boolean {
  for (const row of snapshot.all(tables.endpoints)) if (row.id === id) return true;
  return false;
}

/** Any, where there is none. */
function patternIn({ matchpattern = '*' }: CacheQuery): string {
  const pattern = canonicalHostName(matchpattern);
  if (/^[-a-z0-9_.*]+$/.test(pattern) && pattern.length <= 255) return pattern;
  throw new BadRequestError(
    `matchpattern ${JSON.stringify(matchpattern)} is no pattern of names: write example.com or *.example.com`,
  );
}

/** One entry for each name of an endpoint. */
function cacheOf(rows: Iterable<FqdnRow>, pattern: string): readonly FqdnCacheModel[] {
  const own = [...rows].filter(({ name }) => hostNameMatches(pattern, name));
  return Array.from(Map.groupBy(own, ({ endpoint, name }) => `${endpoint} ${name}`).values(), (all): FqdnCacheModel => {
    const [first] = all.toSorted((a, b) => b.expires - a.expires);
    return {
      'endpoint-id': first?.endpoint ?? 0,
      fqdn: first?.name ?? '',
      ips: all.map(({ address }) => address).sort(),
      'lookup-time': new Date(first?.seen ?? 0).toISOString(),
      ttl: first?.ttl ?? 0,
      'expiration-time': new Date(first?.expires ?? 0).toISOString(),
      source: 'lookup',
    };
  });
}

function namesOf(snapshot: Reader, { tables }: FqdnFaces): FqdnNamesModel {
  const identities = new Map<string, number[]>();
  for (const { identity, patterns } of snapshot.all(tables.nameIdentities))
    for (const pattern of patterns) identities.set(pattern, [...(identities.get(pattern) ?? []), identity]);
  const sorted = [...identities].sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    FQDNPolicySelectors: sorted.map(([pattern, ids]) => ({
      selectorString: `${pattern.includes('*') ? 'MatchPattern' : 'MatchName'}: ${pattern}`,
      regexString: expressionOf(pattern),
      identities: ids,
    })),
  };
}

/** The regular expression that says the same. */
export function expressionOf(pattern: string): string {
  if (pattern === '*') return '^.*$';
  const [head, rest] = pattern.startsWith('**.') ? ['([-a-z0-9_]+[.])+', pattern.slice(3)] : ['', pattern];
  return `^${head}${rest.replaceAll('.', '[.]').replaceAll('*', '[-a-z0-9_]*')}$`;
}
