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
{{- if or .Values.metrics.expose .Values.metrics.serviceMonitor.enabled }}true{{ end }}
{{- end }}

{{/* The flag --health-address. The variable is the node's address; the brackets make an IPv6 address readable and do no harm to others. */}}
{{- define "weir.healthAddress" -}}
{{- if include "weir.exposed" .root -}}
--health-address=[$(WEIR_HOST_IP)]:{{ .port }}
{{- else -}}
--health-address=127.0.0.1:{{ .port }}
{{- end -}}
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
  {{- if not (include "weir.exposed" .root) }}
  host: 127.0.0.1
  {{- end }}
  path: {{ .path }}
  port: {{ .port }}
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
