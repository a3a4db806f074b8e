{{- define "cosyserve.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "cosyserve.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cosyserve.labels" -}}
{{ include "cosyserve.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The component that clients ask: the gateway where there is one, else the servers themselves. */}}
{{- define "cosyserve.front" -}}
{{ ternary "router" "engine" .Values.routerSpec.enableRouter }}
{{- end }}

{{/* Every Triton server that there may be; the gateway leaves out those that are not there. */}}
{{- define "cosyserve.tritons" -}}
{{- $model := first .Values.servingEngineSpec.modelSpec }}
{{- $name := printf "%s-engine" (include "cosyserve.fullname" .) }}
{{- range $n := until (int (max $model.replicaCount $model.maxReplicaCount)) }}
{{- if $n }},{{ end }}{{ $name }}-{{ $n }}.{{ $name }}:8001
{{- end }}
{{- end }}

{{- define "cosyserve.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "cosyserve.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where a container may write, and the model's folders. Takes a dict: spec, shm. */}}
{{- define "cosyserve.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /var/lib/cosyserve}
{{- if .shm }}
- {name: shm, mountPath: /dev/shm}
{{- end }}
{{- range $inside, $folder := .spec.folders }}
- {name: model, mountPath: {{ $inside }}, subPath: {{ $folder }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "cosyserve.volumes" -}}
- name: tmp
  emptyDir: {}
- name: home
  emptyDir: {}
{{- if .shm }}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .spec.shmSize }}}
{{- end }}
{{- if .spec.pvcExistingClaimName }}
- name: model
  persistentVolumeClaim: {claimName: {{ .spec.pvcExistingClaimName }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "cosyserve.resources" -}}
requests:
  cpu: {{ .requestCPU | quote }}
  memory: {{ .requestMemory }}
  {{- if .requestGPU }}
  {{ .requestGPUType }}: {{ .requestGPU | quote }}
  {{- end }}
limits:
  memory: {{ .limitMemory | default .requestMemory }}
  {{- if .requestGPU }}
  {{ .requestGPUType }}: {{ .requestGPU | quote }}
  {{- end }}
{{- end }}

{{- define "cosyserve.probes" -}}
startupProbe: {{ toJson .startupProbe }}
livenessProbe: {{ toJson .livenessProbe }}
readinessProbe: {{ toJson .readinessProbe }}
{{- end }}

{{- define "cosyserve.placement" -}}
{{- with .nodeSelectorTerms }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Where a process that answers clients listens. */}}
{{- define "cosyserve.frontPorts" -}}
- {name: http, containerPort: {{ .Values.servingEngineSpec.containerPort }}}
- {name: metrics, containerPort: {{ .Values.servingEngineSpec.metricsPort }}}
{{- end }}

{{/* What such a process is told: its ports, who may ask, where voices are. */}}
{{- define "cosyserve.frontEnv" -}}
- {name: COSYSERVE_PORT, value: {{ .Values.servingEngineSpec.containerPort | quote }}}
- {name: COSYSERVE_METRICS_PORT, value: {{ .Values.servingEngineSpec.metricsPort | quote }}}
{{- with .Values.servingEngineSpec.apiKey }}
{{- if .secretName }}
- name: COSYSERVE_API_KEYS
  valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .secretKey }}}}
{{- end }}
{{- end }}
{{- if .Values.redisSpec.enabled }}
- {name: COSYSERVE_VOICE_STORE, value: "redis://{{ include "cosyserve.fullname" . }}-redis:6379/0"}
{{- end }}
{{- end }}
