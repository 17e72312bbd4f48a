/**
 * List and map semantics of built-in kinds, which their generated models do not carry: merge keys of strategic merge
 * patch and topology of server-side apply (source: the `patchStrategy`, `listType` and `mapType` markers documented in
 * the Kubernetes API reference). Keyed by model name and field.
 */
export interface FieldSemantics {
  /** Strategic merge patch: key by which items are merged; `''` merges a list of scalars as a set. */
  readonly patchKey?: string;
  readonly retainKeys?: boolean;
  /** Server-side apply: keys of a list of type map. */
  readonly mapKeys?: readonly string[];
  readonly set?: boolean;
  readonly atomic?: boolean;
}

const byName: FieldSemantics = { patchKey: 'name', mapKeys: ['name'] };
const byType: FieldSemantics = { patchKey: 'type', mapKeys: ['type'] };
const atomic: FieldSemantics = { atomic: true };

export const FIELD_SEMANTICS: Readonly<Record<string, FieldSemantics>> = {
  'V1ObjectMeta.finalizers': { patchKey: '', set: true },
  'V1ObjectMeta.ownerReferences': { patchKey: 'uid', mapKeys: ['uid'] },
  'V1PodSpec.containers': byName,
  'V1PodSpec.initContainers': byName,
  'V1PodSpec.ephemeralContainers': byName,
  'V1PodSpec.volumes': { ...byName, retainKeys: true },
  'V1PodSpec.imagePullSecrets': byName,
  'V1PodSpec.hostAliases': { patchKey: 'ip', mapKeys: ['ip'] },
  'V1PodSpec.topologySpreadConstraints': { patchKey: 'topologyKey', mapKeys: ['topologyKey', 'whenUnsatisfiable'] },
  'V1PodSpec.schedulingGates': byName,
  'V1PodSpec.resourceClaims': { ...byName, retainKeys: true },
  'V1PodSpec.nodeSelector': atomic,
  'V1Container.env': byName,
  'V1Container.ports': { patchKey: 'containerPort', mapKeys: ['containerPort', 'protocol'] },
  'V1Container.volumeMounts': { patchKey: 'mountPath', mapKeys: ['mountPath'] },
  'V1Container.volumeDevices': { patchKey: 'devicePath', mapKeys: ['devicePath'] },
  'V1EphemeralContainer.env': byName,
  'V1EphemeralContainer.ports': { patchKey: 'containerPort', mapKeys: ['containerPort', 'protocol'] },
  'V1EphemeralContainer.volumeMounts': { patchKey: 'mountPath', mapKeys: ['mountPath'] },
  'V1ResourceRequirements.claims': { mapKeys: ['name'] },
  'V1PodStatus.conditions': byType,
  'V1PodStatus.podIPs': { patchKey: 'ip', mapKeys: ['ip'] },
  'V1PodStatus.hostIPs': { patchKey: 'ip', atomic: true },
  'V1DeploymentSpec.strategy': { retainKeys: true },
  'V1DeploymentStatus.conditions': byType,
  'V1DaemonSetStatus.conditions': byType,
  'V1ReplicaSetStatus.conditions': byType,
  'V1StatefulSetStatus.conditions': byType,
  'V1JobStatus.conditions': { patchKey: 'type', atomic: true },
  'V1ServiceSpec.ports': { patchKey: 'port', mapKeys: ['port', 'protocol'] },
  'V1ServiceSpec.selector': atomic,
  'V1ServiceStatus.conditions': byType,
  'V1ServiceAccount.secrets': byName,
  'V1ServiceAccount.imagePullSecrets': { patchKey: 'name', atomic: true },
  'V1NamespaceStatus.conditions': byType,
  'V1NodeSpec.podCIDRs': { patchKey: '', set: true },
  'V1NodeStatus.conditions': byType,
  'V1NodeStatus.addresses': byType,
  'V1PodDisruptionBudgetStatus.conditions': byType,
  'V1PodDisruptionBudgetSpec.selector': { retainKeys: true },
  'V1CustomResourceDefinitionStatus.conditions': { mapKeys: ['type'] },
  'V1ClusterRole.rules': atomic,
  'V1ProjectedVolumeSource.sources': atomic,
};

/** Models that server-side apply treats as one value. */
export const ATOMIC_MODELS: ReadonlySet<string> = new Set([
  'V1LabelSelector',
  'V1NodeSelector',
  'V1NodeSelectorTerm',
  'V1ObjectReference',
  'V1LocalObjectReference',
  'V1SecretReference',
  'V1ConfigMapKeySelector',
  'V1SecretKeySelector',
  'V1ObjectFieldSelector',
  'V1ResourceFieldSelector',
  'V1TypedLocalObjectReference',
  'V1OwnerReference',
  'V1RoleRef',
  'RbacV1Subject',
  'V1JSONSchemaProps',
]);

/** Defaults that take part in list keys, so that an item without the field is the same item as one with the default. */
export const KEY_DEFAULTS: Readonly<Record<string, string>> = {
  'V1ContainerPort.protocol': 'TCP',
  'V1ServicePort.protocol': 'TCP',
};

/** Fields whose absence the real server refuses with `Required value`. */
export const ENFORCED_REQUIRED: ReadonlySet<string> = new Set([
  'V1PodSpec.containers',
  'V1Container.name',
  'V1EphemeralContainer.name',
  'V1EnvVar.name',
  'V1ContainerPort.containerPort',
  'V1Volume.name',
  'V1VolumeMount.name',
  'V1VolumeMount.mountPath',
  'V1DeploymentSpec.selector',
  'V1DeploymentSpec.template',
  'V1DaemonSetSpec.selector',
  'V1DaemonSetSpec.template',
  'V1ReplicaSetSpec.selector',
  'V1StatefulSetSpec.selector',
  'V1StatefulSetSpec.template',
  'V1JobSpec.template',
  'V1CronJobSpec.jobTemplate',
  'V1CronJobSpec.schedule',
  'V1ServicePort.port',
  'V1RoleBinding.roleRef',
  'V1ClusterRoleBinding.roleRef',
  'V1RoleRef.kind',
  'V1RoleRef.name',
  'RbacV1Subject.kind',
  'RbacV1Subject.name',
  'V1PolicyRule.verbs',
  'V1PriorityClass.value',
  'V1EndpointSlice.addressType',
  'V1Endpoint.addresses',
  'V1OwnerReference.apiVersion',
  'V1OwnerReference.kind',
  'V1OwnerReference.name',
  'V1OwnerReference.uid',
  'V1IPBlock.cidr',
  'V1CustomResourceDefinitionSpec.group',
  'V1CustomResourceDefinitionSpec.names',
  'V1CustomResourceDefinitionSpec.scope',
  'V1CustomResourceDefinitionSpec.versions',
  'V1CustomResourceDefinitionNames.kind',
  'V1CustomResourceDefinitionNames.plural',
  'V1CustomResourceDefinitionVersion.name',
]);
