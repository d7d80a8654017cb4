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
{{- /* Not the name of the DaemonSet's pods, whose selector has no component. */ -}}
{{- define "generic-dp.evictName" -}}
{{ include "generic-dp.name" . | trunc 57 | trimSuffix "-" }}-evict
{{- end }}
{{- define "generic-dp.evictFullname" -}}
{{ include "generic-dp.fullname" . | trunc 57 | trimSuffix "-" }}-evict
{{- end }}
{{- /* The pods of both. */ -}}
{{- define "generic-dp.pods" -}}
matchLabels:
  app.kubernetes.io/instance: {{ .Release.Name }}
matchExpressions:
  - key: app.kubernetes.io/name
    operator: In
    values: [{{ include "generic-dp.name" . }}, {{ include "generic-dp.evictName" . }}]
{{- end }}
{{- define "generic-dp.configMap" -}}
{{ .Values.existingConfigMap | default (include "generic-dp.fullname" .) }}
{{- end }}
{{- /* Not empty if a service account is created. */ -}}
{{- define "generic-dp.createServiceAccount" -}}
{{- $needed := or .Values.dra.enabled (include "generic-dp.createSCC" .) -}}
{{- if or .Values.serviceAccount.create (and $needed (not .Values.serviceAccount.name)) }}true{{ end }}
{{- end }}
{{- /* true if the container may open device nodes, otherwise false. */ -}}
{{- define "generic-dp.privileged" -}}
{{ .Values.openNodes }}
{{- end }}
{{- /* Not empty if SecurityContextConstraints are created. */ -}}
{{- define "generic-dp.createSCC" -}}
{{- $create := .Values.securityContextConstraints.create -}}
{{- if kindIs "invalid" $create }}{{ $create = .Capabilities.APIVersions.Has "security.openshift.io/v1" }}{{ end -}}
{{- if $create }}true{{ end }}
{{- end }}
{{- /* They are cluster-wide, unlike the release. */ -}}
{{- define "generic-dp.scc" -}}
{{ printf "%s-%s" (include "generic-dp.namespace" .) (include "generic-dp.fullname" .) | trunc 253 | trimSuffix "-" }}
{{- end }}
{{- /* Not empty if the DaemonSet's pods may need a connection. An edit of an existing ConfigMap may add health.tcp. */ -}}
{{- define "generic-dp.connects" -}}
{{- if or .Values.dra.enabled .Values.existingConfigMap }}true{{ end }}
{{- range .Values.config }}{{ if regexMatch "\\btcp\\b" (. | default "") }}true{{ end }}{{ end }}
{{- end }}
{{- /* Problems of values that the schema would report without a hint. */ -}}
{{- define "generic-dp.validate" -}}
{{- range $name, $_ := .Values.config }}
{{- if not (regexMatch "^[A-Za-z0-9_][-A-Za-z0-9_.]*[.]toml$" $name) }}
{{- fail (printf "config: %q is not the name of a file: write config: {10-mine.toml: TEXT}, with a name of letters, digits, - _ and . that ends in .toml" $name) }}
{{- end }}
{{- end }}
{{- if hasKey .Values "serviceMonitor" }}
{{- fail "serviceMonitor: the pods have no Service: use podMonitor.enabled, which creates a PodMonitor for the Prometheus operator" }}
{{- end }}
{{- end }}
{{- define "generic-dp.serviceAccount" -}}
{{- if include "generic-dp.createServiceAccount" . -}}
{{ .Values.serviceAccount.name | default (include "generic-dp.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name }}
{{- end }}
{{- end }}
{{- /* The name of a resource's DeviceClass, as "kubectl generic-dp classes" has it. */ -}}
{{- define "generic-dp.deviceClass" -}}
{{- $parts := splitn "/" 2 . -}}
{{- $name := $parts._1 | lower | replace "_" "-" | replace "." "-" -}}
{{- if ne $name $parts._1 }}{{ $name = printf "%s-%s" ($name | trunc 52 | trimSuffix "-") (sha256sum . | trunc 10) }}{{ end -}}
{{ $name }}.{{ $parts._0 }}
{{- end }}
{{- /* What automountServiceAccountToken would mount, but for an hour: the API server extends that token to a year. */ -}}
{{- define "generic-dp.token" -}}
name: token
projected:
  sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: 3600
    - configMap:
        name: kube-root-ca.crt
        items:
          - key: ca.crt
            path: ca.crt
{{- end }}
{{- define "generic-dp.tokenMount" -}}
name: token
mountPath: /var/run/secrets/kubernetes.io/serviceaccount
readOnly: true
{{- end }}
{{- define "generic-dp.image" -}}
{{- $registry := (.Values.global | default dict).imageRegistry | default .Values.image.registry -}}
{{- with .Values.image -}}
{{- /* A first component with a dot or a port is a registry, as in docker's references. */ -}}
{{- if and $registry (not (regexMatch "^([^/]*[.:][^/]*|localhost)/" .repository)) }}{{ $registry }}/{{ end -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}
