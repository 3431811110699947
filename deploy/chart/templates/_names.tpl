{{- define "fencepost.labels" -}}
app.kubernetes.io/name: fencepost
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fencepost.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "fencepost.environment" -}}
- {name: LOG_FORMAT, value: json}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.secretName }}, key: database-url}}
- name: REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.secretName }}, key: redis-url}}
{{- with .Values.environment }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fencepost.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
