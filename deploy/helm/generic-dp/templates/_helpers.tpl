{{- define "generic-dp.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- define "generic-dp.fullname" -}}
{{- $name := include "generic-dp.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- define "generic-dp.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}
{{- define "generic-dp.labels" -}}
{{ include "generic-dp.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "generic-dp.selector" -}}
app.kubernetes.io/name: {{ include "generic-dp.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "generic-dp.configMap" -}}
{{ .Values.existingConfigMap | default (include "generic-dp.fullname" .) }}
{{- end }}
{{- define "generic-dp.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "generic-dp.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name }}
{{- end }}
{{- end }}
{{- define "generic-dp.image" -}}
{{- with .Values.image -}}
{{- /* A first component with a dot or a port is a registry, as in docker's references. */ -}}
{{- if and .registry (not (regexMatch "^([^/]*[.:][^/]*|localhost)/" .repository)) }}{{ .registry }}/{{ end -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}
