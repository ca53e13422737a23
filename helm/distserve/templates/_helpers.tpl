{{- define "distserve.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Room is left for the suffix of the gateway's role. */}}
{{- define "distserve.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "distserve.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "distserve.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "distserve.selectorLabels" -}}
app.kubernetes.io/name: {{ include "distserve.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "distserve.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "distserve.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: distserve
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "distserve.labels" -}}
{{ include "distserve.commonLabels" . }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "distserve.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "distserve.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "distserve.gatewayRoleName" -}}
{{- printf "%s-gateway" (include "distserve.fullname" .) -}}
{{- end -}}

{{/* An image reference: dict "root" $ "image" .Values.….image */}}
{{- define "distserve.image" -}}
{{- $repository := .image.repository -}}
{{- if .image.registry -}}{{- $repository = printf "%s/%s" .image.registry .image.repository -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (coalesce .image.tag .root.Values.image.tag .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "distserve.arguments" -}}
{{- range .Values.watchNamespaces }}
- --namespace={{ . }}
{{- else }}
- --all-namespaces
{{- end }}
- --worker-image={{ include "distserve.image" (dict "root" . "image" .Values.worker.image) }}
- --gateway-image={{ include "distserve.image" (dict "root" . "image" .Values.gateway.image) }}
- --image-pull-policy={{ .Values.workloads.imagePullPolicy }}
{{- range .Values.workloads.imagePullSecrets }}
- --image-pull-secret={{ .name }}
{{- end }}
- --gateway-cluster-role={{ include "distserve.gatewayRoleName" . }}
- --health-port=8080
- --log-level={{ .Values.logLevel }}
{{- end -}}
