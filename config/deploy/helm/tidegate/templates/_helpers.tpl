{{- define "tidegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tidegate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "tidegate.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: {{ include "tidegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidegate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "tidegate.selector" . }}
{{- end }}

{{- define "tidegate.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* Whether there are tenants: "true" or nothing. */}}
{{- define "tidegate.tenants" -}}
{{- if or .Values.tenants.text .Values.tenants.existingSecret }}true{{ end }}
{{- end }}

{{- define "tidegate.config" -}}
{{- if .Values.config }}
{{- .Values.config }}
{{- else }}
{{- if include "tidegate.tenants" . }}
{{- println "tenants_file = \"/etc/tidegate-secrets/tenants.toml\"" }}
{{- end }}
{{- .Files.Get "files/tidegate.toml" | replace "@MODEL@" .Values.backends.model | replace "@SERVICE@" .Values.backends.service | replace "@PORT@" (toString .Values.backends.port) }}
{{- end }}
{{- end }}

{{- define "tidegate.adminSecret" -}}
{{- default (printf "%s-admin" (include "tidegate.fullname" .)) .Values.adminToken.existingSecret }}
{{- end }}

{{- define "tidegate.tenantsSecret" -}}
{{- default (printf "%s-tenants" (include "tidegate.fullname" .)) .Values.tenants.existingSecret }}
{{- end }}
