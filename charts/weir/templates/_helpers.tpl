{{- define "weir.labels" -}}
app.kubernetes.io/part-of: weir
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Names are fixed, because a cluster has one Weir: weir-operator, weir-agent. */}}
{{- define "weir.operator.selector" -}}
app.kubernetes.io/name: weir-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.agent.selector" -}}
app.kubernetes.io/name: weir-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Arguments: chart, image (repository, tag, digest). */}}
{{- define "weir.image" -}}
{{- $tag := .image.tag | default .chart.AppVersion -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ $tag }}
{{- end -}}
{{- end }}

{{/* Whether the cluster has ValidatingAdmissionPolicies (Kubernetes 1.30): "true" or empty. It says so itself; helm template asks none. */}}
{{- define "weir.admissionServed" -}}
{{- $served := semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- $served = .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" }}
{{- end }}
{{- if $served }}true{{ end }}
{{- end }}

{{/* Where programs find the API server when the cluster's own service does not lead there. */}}
{{- define "weir.apiServerEnv" -}}
{{- if .Values.apiServer.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .Values.apiServer.host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .Values.apiServer.port | quote }}
{{- end }}
{{- end }}

{{/* Whether Prometheus is to reach health and metrics from outside the node: "true" or empty. */}}
{{- define "weir.exposed" -}}
{{- if or .Values.metrics.expose .Values.metrics.serviceMonitor.enabled .Values.metrics.secure.enabled }}true{{ end }}
{{- end }}

{{/* The same, without TLS: health and metrics are at one address then. */}}
{{- define "weir.exposedPlain" -}}
{{- if and (include "weir.exposed" .) (not .Values.metrics.secure.enabled) }}true{{ end }}
{{- end }}

{{/*
The flags that say where health and metrics are, as items of a list. The variable is the node's address; the brackets make an IPv6 address readable
and do no harm to others. Loopback and node's address may share a port. Arguments: root, port.
*/}}
{{- define "weir.addresses" -}}
{{- if include "weir.exposedPlain" .root }}
- --health-address=[$(WEIR_HOST_IP)]:{{ .port }}
{{- else }}
- --health-address=127.0.0.1:{{ .port }}
{{- end }}
{{- if .root.Values.metrics.secure.enabled }}
- --metrics-address=[$(WEIR_HOST_IP)]:{{ .port }}
- --metrics-cert-path=/etc/weir/metrics
{{- end }}
{{- end }}

{{- define "weir.metricsMount" -}}
{{- if .Values.metrics.secure.enabled }}
- name: metrics-certificate
  mountPath: /etc/weir/metrics
  readOnly: true
{{- end }}
{{- end }}

{{/* Optional: without it the programs do their work, and their log says that metrics are not served. */}}
{{- define "weir.metricsVolume" -}}
{{- if .Values.metrics.secure.enabled }}
- name: metrics-certificate
  secret:
    secretName: {{ .Values.metrics.secure.certificateSecret | quote }}
    optional: true
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
{{- end }}
{{- end }}

{{- define "weir.hostIpEnv" -}}
{{- if include "weir.exposed" . }}
- name: WEIR_HOST_IP
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
{{- end }}
{{- end }}

{{/* httpGet of a probe. On the host's network the pod's address is the node's. Arguments: root, port, path. */}}
{{- define "weir.httpGet" -}}
httpGet:
  {{- if not (include "weir.exposedPlain" .root) }}
  host: 127.0.0.1
  {{- end }}
  path: {{ .path }}
  port: {{ .port }}
{{- end }}

{{- define "weir.dnsProxyProbe" -}}
httpGet:
  host: 127.0.0.1
  path: /
  port: 10053
{{- end }}

{{/*
Replicas of the operator: not more than there are nodes to hold them, at most one a node. Without a cluster to ask (helm
template) as many as the value says.
*/}}
{{- define "weir.operator.replicas" -}}
{{- $wanted := int .Values.operator.replicas -}}
{{- $nodes := 0 -}}
{{- if gt $wanted 1 -}}
{{- range (lookup "v1" "Node" "" "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $fits := true -}}
{{- range $key, $value := $.Values.operator.nodeSelector -}}
{{- if ne (get $labels $key | toString) $value -}}{{- $fits = false -}}{{- end -}}
{{- end -}}
{{- if $fits -}}{{- $nodes = add1 $nodes -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (gt $nodes 0) (lt $nodes $wanted) -}}{{ $nodes }}{{- else -}}{{ $wanted }}{{- end -}}
{{- end }}

{{/* Profiles of a container, as fields of its securityContext. AppArmor's is a field since Kubernetes 1.30. Arguments: root, of (agent, operator). */}}
{{- define "weir.profiles" -}}
{{- with .of.seccompProfile }}
seccompProfile:
  type: {{ .type }}
  {{- if eq .type "Localhost" }}
  localhostProfile: {{ .localhostProfile | quote }}
  {{- end }}
{{- end }}
{{- with .of.appArmorProfile }}
{{- if and .type (include "weir.profileFields" $.root) }}
appArmorProfile:
  type: {{ .type }}
  {{- if eq .type "Localhost" }}
  localhostProfile: {{ .localhostProfile | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "weir.profileFields" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{/* The same of AppArmor before Kubernetes 1.30, as an annotation of the pod; empty: none. Arguments: root, of, container. */}}
{{- define "weir.appArmorAnnotation" -}}
{{- with .of.appArmorProfile }}
{{- if and .type (not (include "weir.profileFields" $.root)) }}
container.apparmor.security.beta.kubernetes.io/{{ $.container }}: {{ get (dict "Unconfined" "unconfined" "RuntimeDefault" "runtime/default" "Localhost" (printf "localhost/%s" .localhostProfile)) .type }}
{{- end }}
{{- end }}
{{- end }}

{{/* What a container may that needs nothing. */}}
{{- define "weir.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What a pod may whose containers need nothing. */}}
{{- define "weir.unprivilegedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The mode of masquerading that agents are given. */}}
{{- define "weir.masquerade" -}}
{{- if eq .Values.masquerade "always" -}}on
{{- else if and (eq .Values.masquerade "auto") (eq .Values.routing "direct") -}}auto
{{- else -}}off
{{- end -}}
{{- end -}}
