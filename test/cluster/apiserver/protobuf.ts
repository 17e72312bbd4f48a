/**
 * Request bodies in the Kubernetes protobuf encoding, which kubectl uses for what its `create` generators build.
 * Only reading, and only the fields listed here (numbers as published in the generated.proto files of the Kubernetes
 * API); any other field is refused, so nothing is dropped in silence. Answers are always JSON, which clients accept.
 */
import type { BuiltinSchemas } from './builtin-schema.ts';
import { badRequest } from './errors.ts';
import { isObject, type Json, type JsonObject } from './json.ts';
import { isSchema, type Schema } from './schema.ts';

export const PROTOBUF = 'application/vnd.kubernetes.protobuf';

const OBJECT = '1:metadata 2:spec 3:status';

/** Field numbers by model: `number:field`. Types come from the model's schema. */
const FIELDS: Readonly<Record<string, string>> = {
  V1ObjectMeta:
    '1:name 2:generateName 3:namespace 4:selfLink 5:uid 6:resourceVersion 7:generation 8:creationTimestamp 9:deletionTimestamp 10:deletionGracePeriodSeconds 11:labels 12:annotations 13:ownerReferences 14:finalizers',
  V1OwnerReference: '1:kind 3:name 4:uid 5:apiVersion 6:controller 7:blockOwnerDeletion',
  V1DeleteOptions: '1:gracePeriodSeconds 2:preconditions 3:orphanDependents 4:propagationPolicy 5:dryRun',
  V1Preconditions: '1:uid 2:resourceVersion',
  V1Namespace: OBJECT,
  V1NamespaceSpec: '1:finalizers',
  V1NamespaceStatus: '1:phase',
  V1ConfigMap: '1:metadata 2:data 3:binaryData 4:immutable',
  V1Secret: '1:metadata 2:data 3:type 4:stringData 5:immutable',
  V1ServiceAccount: '1:metadata 2:secrets 3:imagePullSecrets 4:automountServiceAccountToken',
  V1Deployment: OBJECT,
  V1DeploymentSpec:
    '1:replicas 2:selector 3:template 4:strategy 5:minReadySeconds 6:revisionHistoryLimit 7:paused 9:progressDeadlineSeconds',
  V1DeploymentStrategy: '1:type 2:rollingUpdate',
  V1DeploymentStatus:
    '1:observedGeneration 2:replicas 3:updatedReplicas 4:availableReplicas 5:unavailableReplicas 7:readyReplicas',
  V1LabelSelector: '1:matchLabels 2:matchExpressions',
  V1LabelSelectorRequirement: '1:key 2:operator 3:values',
  V1PodTemplateSpec: '1:metadata 2:spec',
  V1PodSpec:
    '2:containers 3:restartPolicy 4:terminationGracePeriodSeconds 5:activeDeadlineSeconds 6:dnsPolicy 7:nodeSelector 8:serviceAccountName 9:serviceAccount 10:nodeName 11:hostNetwork 12:hostPID 13:hostIPC 14:securityContext 15:imagePullSecrets 16:hostname 17:subdomain 19:schedulerName 20:initContainers 24:priorityClassName',
  V1PodSecurityContext: '',
  V1LocalObjectReference: '1:name',
  V1Container:
    '1:name 2:image 3:command 4:args 5:workingDir 6:ports 7:env 8:resources 13:terminationMessagePath 14:imagePullPolicy 16:stdin 17:stdinOnce 18:tty 20:terminationMessagePolicy',
  V1ContainerPort: '1:name 2:hostPort 3:containerPort 4:protocol 5:hostIP',
  V1EnvVar: '1:name 2:value',
  V1ResourceRequirements: '1:limits 2:requests',
  V1Service: OBJECT,
  V1ServiceSpec:
    '1:ports 2:selector 3:clusterIP 4:type 5:externalIPs 7:sessionAffinity 8:loadBalancerIP 10:externalName 11:externalTrafficPolicy 12:healthCheckNodePort 13:publishNotReadyAddresses',
  V1ServicePort: '1:name 2:protocol 3:port 4:targetPort 5:nodePort 6:appProtocol',
  V1ServiceStatus: '1:loadBalancer',
  V1LoadBalancerStatus: '',
  V1Role: '1:metadata 2:rules',
  V1ClusterRole: '1:metadata 2:rules 3:aggregationRule',
  V1AggregationRule: '1:clusterRoleSelectors',
  V1PolicyRule: '1:verbs 2:apiGroups 3:resources 4:resourceNames 5:nonResourceURLs',
  V1RoleBinding: '1:metadata 2:subjects 3:roleRef',
  V1ClusterRoleBinding: '1:metadata 2:subjects 3:roleRef',
  RbacV1Subject: '1:kind 2:apiGroup 3:name 4:namespace',
  V1RoleRef: '1:apiGroup 2:kind 3:name',
  V1Job: OBJECT,
  V1JobSpec:
    '1:parallelism 2:completions 3:activeDeadlineSeconds 4:selector 5:manualSelector 6:template 7:backoffLimit',
  V1JobStatus: '4:active 5:succeeded 6:failed 7:completedIndexes',
  V1CronJob: OBJECT,
  V1CronJobSpec:
    '1:schedule 2:startingDeadlineSeconds 3:concurrencyPolicy 4:suspend 5:jobTemplate 6:successfulJobsHistoryLimit 7:failedJobsHistoryLimit',
  V1JobTemplateSpec: '1:metadata 2:spec',
  V1CronJobStatus: '',
  V1PodDisruptionBudget: OBJECT,
  V1PodDisruptionBudgetSpec: '1:minAvailable 2:selector 3:maxUnavailable',
  V1PodDisruptionBudgetStatus:
    '1:observedGeneration 3:disruptionsAllowed 4:currentHealthy 5:desiredHealthy 6:expectedPods',
  V1PriorityClass: '1:metadata 2:value 3:globalDefault 4:description 5:preemptionPolicy',
};

/** Numbers whose zero is a choice; the encoding writes every other unset number as zero too. */
const KEEPS_ZERO = new Set([
  'replicas',
  'terminationGracePeriodSeconds',
  'gracePeriodSeconds',
  'backoffLimit',
  'parallelism',
  'completions',
  'revisionHistoryLimit',
  'value',
]);
const KEEPS_FALSE = new Set(['automountServiceAccountToken', 'immutable']);

interface Part {
  readonly number: number;
  readonly value: bigint | Buffer;
}

function* parts(bytes: Buffer): Generator<Part> {
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at];
      if (byte === undefined || shift > 63n) throw badRequest('the protobuf body is cut short or damaged');
      at += 1;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const wire = Number(tag & 7n);
    if (wire === 0) yield { number: Number(tag >> 3n), value: varint() };
    else if (wire === 2) {
      const end = Number(varint()) + at;
      if (end > bytes.length) throw badRequest('the protobuf body is cut short or damaged');
      yield { number: Number(tag >> 3n), value: bytes.subarray(at, end) };
      at = end;
    } else throw badRequest(`the protobuf body uses wire type ${wire}, which no Kubernetes object has`);
  }
}

const bufferOf = (part: Part | undefined): Buffer => (Buffer.isBuffer(part?.value) ? part.value : Buffer.alloc(0));

function single(bytes: Buffer, number: number): Buffer {
  return bufferOf([...parts(bytes)].find((part) => part.number === number));
}

export class ProtobufReader {
  readonly #schemas: BuiltinSchemas;
  readonly #tables = new Map<string, ReadonlyMap<number, string>>();

  constructor(schemas: BuiltinSchemas) {
    this.#schemas = schemas;
  }

  /**
   * The object in a body that starts with `k8s\0`. Kinds without a table give apiVersion and kind alone when
   * `envelopeOnly` allows it.
   * @throws StatusError BadRequest for damaged bodies, and for kinds and fields that are not listed.
   */
  read(body: Buffer, envelopeOnly: (apiVersion: string) => boolean): JsonObject {
    if (body.subarray(0, 4).toString('latin1') !== 'k8s\0') throw badRequest('the protobuf body lacks the k8s prefix');
    const envelope = body.subarray(4);
    const type = single(envelope, 1);
    const apiVersion = single(type, 1).toString();
    const kind = single(type, 2).toString();
    if (envelopeOnly(apiVersion)) return { apiVersion, kind };
    const model = `V1${kind}`;
    if (!Object.hasOwn(FIELDS, model))
      throw badRequest(`${kind} is not read from protobuf here: send it as JSON (kubectl create -f)`);
    return { apiVersion, kind, ...this.#message(model, single(envelope, 2)) };
  }

  #table(model: string): ReadonlyMap<number, string> {
    let table = this.#tables.get(model);
    if (table === undefined) {
      const entries = (FIELDS[model] ?? '').split(' ').filter((entry) => entry !== '');
      table = new Map(entries.map((entry) => [Number(entry.split(':')[0]), entry.split(':')[1] ?? '']));
      this.#tables.set(model, table);
    }
    return table;
  }

  #message(model: string, bytes: Buffer): JsonObject {
    const out: JsonObject = {};
    const table = this.#table(model);
    const schema = this.#schemas.model(model);
    for (const part of parts(bytes)) {
      const field = table.get(part.number);
      const type = field === undefined ? undefined : schema.properties?.[field];
      if (field === undefined || type === undefined) {
        throw badRequest(
          `field ${part.number} of ${model.slice(2)} is not read from protobuf here: send the object as JSON (kubectl create -f)`,
        );
      }
      this.#put(out, field, type, part);
    }
    return out;
  }

  #put(out: JsonObject, field: string, type: Schema, part: Part): void {
    if (type.type === 'array' && type.items !== undefined) {
      const items = Array.isArray(out[field]) ? out[field] : [];
      items.push(this.#value(type.items, part) ?? {});
      out[field] = items;
    } else if (isSchema(type.additionalProperties)) {
      const entry = bufferOf(part);
      const map = isObject(out[field]) ? out[field] : {};
      const value = { number: 2, value: single(entry, 2) };
      map[single(entry, 1).toString()] = this.#value(type.additionalProperties, value) ?? '';
      out[field] = map;
    } else {
      const value = this.#value(type, part);
      const empty =
        value === undefined ||
        value === '' ||
        (value === 0 && !KEEPS_ZERO.has(field)) ||
        (value === false && !KEEPS_FALSE.has(field)) ||
        (isObject(value) && Object.keys(value).length === 0);
      if (!empty) out[field] = value;
    }
  }

  /** Undefined for an unset time. */
  #value(type: Schema, part: Part): Json | undefined {
    if (type.$ref !== undefined) return this.#message(this.#schemas.modelOf(type.$ref), bufferOf(part));
    if (type['x-kubernetes-int-or-string'] === true) return intOrString(bufferOf(part));
    if (type['x-weir-quantity'] === true) return single(bufferOf(part), 1).toString();
    if (type.format === 'date-time') return timeOf(bufferOf(part));
    if (type.format === 'byte') return bufferOf(part).toString('base64');
    if (type.type === 'boolean') return part.value === 1n;
    if (typeof part.value === 'bigint') return Number(BigInt.asIntN(64, part.value));
    return part.value.toString('utf8');
  }
}

function intOrString(bytes: Buffer): Json {
  const found = new Map([...parts(bytes)].map((part) => [part.number, part]));
  if (found.get(1)?.value === 1n) return bufferOf(found.get(3)).toString();
  const value = found.get(2)?.value;
  return typeof value === 'bigint' ? Number(BigInt.asIntN(32, value)) : 0;
}

function timeOf(bytes: Buffer): string | undefined {
  const seconds = [...parts(bytes)].find((part) => part.number === 1)?.value;
  return typeof seconds === 'bigint' ? `${new Date(Number(seconds) * 1000).toISOString().slice(0, 19)}Z` : undefined;
}
