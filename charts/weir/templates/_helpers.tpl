{{- define "weir.labels" -}}
app.kubernetes.io/part-of: weir
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "weir.operator.selector" -}}
app.kubernetes.io/name: weir-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.agent.selector" -}}
app.kubernetes.io/name: weir-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.apiServerEnv" -}}
{{- if .Values.apiServer.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .Values.apiServer.host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .Values.apiServer.port | quote }}
{{- end }}
{{- end }}
