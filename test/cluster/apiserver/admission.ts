/**
 * Validating webhooks: who is asked about a write, and what the answers make of it.
 *
 * Guarantees: what is stored is what was reviewed; all that match are asked at once; one that cannot be asked, or answers no review, refuses the
 * write or not, as its failurePolicy says.
 */
import { randomUUID } from 'node:crypto';
import { request } from 'node:https';
import { StatusError } from './errors.ts';
import { at, isObject, type Json, type JsonObject, list, object, text } from './json.ts';
import { apiVersionOf, type Resource } from './registry.ts';
import type { Store } from './store.ts';
import type { ServiceAddress } from './types.ts';

const CONFIGURATIONS = 'admissionregistration.k8s.io/validatingwebhookconfigurations';
/** Longer answers are not read. */
const MOST_BYTES = 3 * 1024 * 1024;

/** A write as webhooks are asked about it. */
export interface Asked {
  readonly operation: 'CREATE' | 'UPDATE';
  readonly resource: Resource;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
  readonly object: JsonObject;
  readonly previous: JsonObject | undefined;
  readonly dryRun: boolean;
  /** Kind of the options of the request: `PatchOptions`. */
  readonly options: string;
}

type Target = Pick<Asked, 'resource' | 'subresource'>;

export class Admission {
  readonly #store: Store;
  readonly #serviceAddress: ServiceAddress;

  constructor(store: Store, serviceAddress: ServiceAddress) {
    this.#store = store;
    this.#serviceAddress = serviceAddress;
  }

  /** Whether some webhook asks for writes of this kind. */
  concerns(target: Target): boolean {
    return this.#webhooks(target, undefined).length > 0;
  }

  /** Returns the warnings. @throws StatusError where a webhook refuses the write */
  async review(asked: Asked): Promise<readonly string[]> {
    const answers = await Promise.all(
      this.#webhooks(asked, asked.operation).map((webhook) => this.#ask(webhook, asked)),
    );
    const warnings: string[] = [];
    for (const answer of answers) {
      if (answer instanceof StatusError) throw answer;
      warnings.push(...answer);
    }
    return warnings;
  }

  #webhooks({ resource, subresource }: Target, operation: Asked['operation'] | undefined): JsonObject[] {
    // Else nobody could mend one that refuses everything.
    if (resource.storage === CONFIGURATIONS) return [];
    return this.#store
      .list(CONFIGURATIONS, '')
      .toSorted((a, b) => (text(a, 'metadata', 'name') < text(b, 'metadata', 'name') ? -1 : 1))
      .flatMap((configuration) => list(configuration, 'webhooks').filter(isObject))
      .filter((webhook) => list(webhook, 'rules').some((rule) => matches(rule, resource, subresource, operation)));
  }

  async #ask(webhook: JsonObject, asked: Asked): Promise<readonly string[] | StatusError> {
    const name = text(webhook, 'name');
    let response: JsonObject;
    try {
      response = await this.#call(webhook, reviewOf(asked));
    } catch (error) {
      if (text(webhook, 'failurePolicy') === 'Ignore') return [];
      const why = `failed calling webhook ${JSON.stringify(name)}: failed to call webhook: ${String(error)}`;
      return new StatusError(500, 'InternalError', `Internal error occurred: ${why}`);
    }
    if (response.allowed === true) return list(response, 'warnings').map(String);
    const { code } = object(response, 'status');
    const why = text(response, 'status', 'message') || text(response, 'status', 'reason');
    const message = `admission webhook ${JSON.stringify(name)} denied the request`;
    return new StatusError(
      typeof code === 'number' && code >= 400 ? code : 400,
      text(response, 'status', 'reason'),
      why === '' ? `${message} without explanation` : `${message}: ${why}`,
    );
  }

  async #call(webhook: JsonObject, review: JsonObject): Promise<JsonObject> {
    const client = object(webhook, 'clientConfig');
    const seconds = Number(webhook.timeoutSeconds);
    const url = this.#urlOf(client);
    url.searchParams.set('timeout', `${seconds}s`);
    const caBundle = text(client, 'caBundle');
    const body = await post(url, JSON.stringify(review), {
      signal: AbortSignal.timeout(seconds * 1000),
      ...serverName(client),
      ...(caBundle === '' ? {} : { ca: Buffer.from(caBundle, 'base64').toString() }),
    });
    const answer = JSON.parse(body) as Json;
    const response = object(answer, 'response');
    if (text(answer, 'kind') !== 'AdmissionReview' || text(answer, 'apiVersion') !== 'admission.k8s.io/v1')
      throw new Error('the answer is no AdmissionReview of admission.k8s.io/v1');
    if (response.uid !== at(review, 'request', 'uid')) throw new Error('the answer is to another request');
    return response;
  }

  #urlOf(client: JsonObject): URL {
    const given = text(client, 'url');
    if (given !== '') return new URL(given);
    const service = object(client, 'service');
    const wanted = { namespace: text(service, 'namespace'), name: text(service, 'name'), port: Number(service.port) };
    const found = this.#serviceAddress(wanted);
    if (found === undefined) throw new Error(`Service ${wanted.namespace}/${wanted.name} leads to nobody`);
    return new URL(text(service, 'path'), `https://${found.host}:${found.port}`);
  }
}

/** What the certificate must be for, where that is not the host of the URL. */
function serverName(client: JsonObject): { readonly servername?: string } {
  const service = at(client, 'service');
  return service === undefined ? {} : { servername: `${text(service, 'name')}.${text(service, 'namespace')}.svc` };
}

/** @param operation undefined: any */
function matches(
  rule: Json,
  resource: Resource,
  subresource: string,
  operation: Asked['operation'] | undefined,
): boolean {
  const has = (field: string, value: string): boolean =>
    list(rule, field).some((each) => each === '*' || each === value);
  const name = subresource === '' ? resource.plural : `${resource.plural}/${subresource}`;
  const named = list(rule, 'resources').some(
    (each) => each === name || (subresource === '' ? each === '*' : each === `*/${subresource}`),
  );
  const scope = text(rule, 'scope');
  return (
    named &&
    has('apiGroups', resource.group) &&
    has('apiVersions', resource.version) &&
    (operation === undefined || has('operations', operation)) &&
    (scope === '*' || scope === (resource.namespaced ? 'Namespaced' : 'Cluster'))
  );
}

function reviewOf(asked: Asked): JsonObject {
  const { operation, resource, subresource, namespace, name, previous, dryRun, options } = asked;
  const { group, version, kind, plural } = resource;
  const subject = { group, version, resource: plural };
  const part = subresource === '' ? {} : { subResource: subresource, requestSubResource: subresource };
  return {
    kind: 'AdmissionReview',
    apiVersion: 'admission.k8s.io/v1',
    request: {
      uid: randomUUID(),
      kind: { group, version, kind },
      resource: subject,
      requestKind: { group, version, kind },
      requestResource: subject,
      ...part,
      name,
      ...(namespace === '' ? {} : { namespace }),
      operation,
      userInfo: { username: 'admin', groups: ['system:masters', 'system:authenticated'] },
      object: { ...asked.object, apiVersion: apiVersionOf(resource), kind },
      oldObject: previous === undefined ? null : { ...previous, apiVersion: apiVersionOf(resource), kind },
      dryRun,
      options: { kind: options, apiVersion: 'meta.k8s.io/v1' },
    },
  };
}

interface PostOptions {
  readonly signal: AbortSignal;
  readonly servername?: string;
  readonly ca?: string;
}

async function post(url: URL, body: string, options: PostOptions): Promise<string> {
  const answered = Promise.withResolvers<string>();
  const sent = request(
    url,
    { ...options, method: 'POST', agent: false, headers: { 'content-type': 'application/json' } },
    (answer) => {
      const pieces: Buffer[] = [];
      let bytes = 0;
      answer.on('data', (piece: Buffer) => {
        bytes += piece.length;
        if (bytes > MOST_BYTES) answer.destroy(new Error(`the answer has more than ${MOST_BYTES} bytes`));
        else pieces.push(piece);
      });
      answer.on('error', answered.reject);
      answer.on('end', () => {
        if (answer.statusCode === 200) answered.resolve(Buffer.concat(pieces).toString());
        else answered.reject(new Error(`the answer has status ${answer.statusCode}`));
      });
    },
  );
  sent.on('error', answered.reject);
  sent.end(body);
  return answered.promise;
}
