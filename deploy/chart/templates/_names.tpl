{{- define "fencepost.labels" -}}
app.kubernetes.io/name: fencepost
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fencepost.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
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

{{- define "fencepost.judge.environment" -}}
- {name: JUDGE_STORE, value: {{ .Values.judge.store | quote }}}
{{- with .Values.judge.s3Endpoint }}
- {name: JUDGE_S3_ENDPOINT, value: {{ . | quote }}}
{{- end }}
- {name: JUDGE_S3_REGION, value: {{ .Values.judge.s3Region | quote }}}
- {name: JUDGE_DISCOVERY, value: {{ .Values.judge.discovery | quote }}}
# Without keys the machine's role is asked.
- name: JUDGE_S3_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.secretName }}, key: judge-s3-access-key, optional: true}}
- name: JUDGE_S3_SECRET_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.secretName }}, key: judge-s3-secret-key, optional: true}}
{{- end }}

{{- define "fencepost.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 10001
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* A process without requests of its own: Deployment, PodDisruptionBudget and PodMonitor. Of the dict: root, name, image, args,
environment, settings (replicas, resources, terminationGracePeriodSeconds, autoscaling), security, pod (more of its spec), scratch. */}}
{{- define "fencepost.process" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: {{- include "fencepost.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  {{- if not (and .settings.autoscaling .settings.autoscaling.enabled) }}
  replicas: {{ if .settings.autoscaling }}{{ .settings.autoscaling.minReplicas }}{{ else }}{{ .settings.replicas }}{{ end }}
  {{- end }}
  selector:
    matchLabels: {{- include "fencepost.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "fencepost.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
      {{- with .annotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {{ .settings.terminationGracePeriodSeconds }}
      {{- with .pod }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      containers:
        - name: {{ .container | default .name }}
          image: {{ .image }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{- toYaml .args | nindent 12 }}
          env:
            {{- include "fencepost.environment" .root | nindent 12 }}
            - {name: METRICS_ADDRESS, value: 0.0.0.0}
            - {name: METRICS_PORT, value: "9400"}
            {{- with .environment }}
            {{- . | nindent 12 }}
            {{- end }}
          ports: [{name: metrics, containerPort: 9400}]
          # The process is restarted when it does not answer at all, and not when PostgreSQL does not: that would help nothing.
          startupProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 2, failureThreshold: 60}
          livenessProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 10, timeoutSeconds: 5}
          readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 10, timeoutSeconds: 10}
          resources: {{- toYaml .settings.resources | nindent 12 }}
          securityContext: {{- .security | nindent 12 }}
          # The rest of its files is read-only.
          volumeMounts: [{name: scratch, mountPath: /tmp}]
      volumes: [{name: scratch, emptyDir: {{ if .scratch }}{sizeLimit: {{ .scratch }}}{{ else }}{}{{ end }}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: {{- include "fencepost.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "fencepost.selector" . | nindent 6 }}
{{- if .root.Values.podMonitor.enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: {{- include "fencepost.labels" .root | nindent 4 }}
spec:
  selector:
    matchLabels: {{- include "fencepost.selector" . | nindent 6 }}
  podMetricsEndpoints: [{port: metrics}]
{{- end }}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: {{- include "fencepost.labels" .root | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "fencepost.selector" . | nindent 6 }}
  policyTypes: [Ingress{{ if .egressPorts }}, Egress{{ end }}]
  ingress:
    - from: {{- toYaml .root.Values.networkPolicy.metricsFrom | nindent 8 }}
      ports: [{port: metrics}]
  {{- with .egressPorts }}
  egress:
    - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
    - ports:
        {{- range . }}
        - {port: {{ . }}, protocol: TCP}
        {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* As many processes as the queues want. Of the dict: root, name, settings, queues (a requirement on the label queue). */}}
{{- define "fencepost.autoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: {{- include "fencepost.labels" .root | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .root.Release.Name }}-{{ .name }}}
  minReplicas: {{ .settings.autoscaling.minReplicas }}
  maxReplicas: {{ .settings.autoscaling.maxReplicas }}
  metrics:
    - type: External
      external:
        metric:
          name: fencepost_jobs_wanted_workers
          selector: {matchExpressions: [{{ .queues }}]}
        # Its value is how many are wanted.
        target: {type: AverageValue, averageValue: "1"}
  behavior:
    # One that is stopped puts back what it cannot finish: slowly down, quickly up.
    scaleDown: {stabilizationWindowSeconds: 300}
{{- end }}
