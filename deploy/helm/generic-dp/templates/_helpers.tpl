{{- define "generic-dp.labels" -}}
app.kubernetes.io/name: generic-dp
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "generic-dp.selector" -}}
app.kubernetes.io/name: generic-dp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "generic-dp.configMap" -}}
{{ .Values.existingConfigMap | default .Release.Name }}
{{- end }}
