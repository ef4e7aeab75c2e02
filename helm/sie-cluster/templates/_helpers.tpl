{{/* A name of at most `most` characters: a longer one is cut and ends with a hash of the whole. */}}
{{- define "sie.short" -}}
{{- if gt (len .name) (int .most) -}}
{{- printf "%s-%s" (trunc (int (sub .most 9)) .name | trimSuffix "-") (sha256sum .name | trunc 8) -}}
{{- else -}}
{{- .name -}}
{{- end -}}
{{- end -}}

{{- define "sie.fullname" -}}
{{- include "sie.short" (dict "name" (.Values.fullnameOverride | default .Release.Name) "most" 40) -}}
{{- end -}}

{{/* Labels that select the pods of a component: (list $ "gateway"). */}}
{{- define "sie.selector" -}}
app.kubernetes.io/name: sie-cluster
app.kubernetes.io/instance: {{ include "sie.short" (dict "name" (index . 0).Release.Name "most" 63) | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "sie.labels" -}}
{{ include "sie.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "sie.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "sie.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* An image: (list $ "sie-server" "-cpu-default"). One with a registry or a tag of its own is left as it is. */}}
{{- define "sie.image" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}
{{- $tag := printf "%s%s" ($root.Values.image.tag | default $root.Chart.AppVersion) (index . 2) -}}
{{- $named := ternary $name (printf "%s:%s" $name $tag) (or (contains ":" (base $name)) (contains "@" $name)) -}}
{{- if and $root.Values.image.registry (not (contains "/" $name)) -}}
{{- printf "%s/%s" $root.Values.image.registry $named -}}
{{- else -}}
{{- $named -}}
{{- end -}}
{{- end -}}

{{/* What the pods of this project's programs share. */}}
{{- define "sie.pod" -}}
serviceAccountName: {{ include "sie.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ add .Values.drainTimeoutSeconds 15 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext: {{ include "sie.podSecurity" . | nindent 2 }}
{{- end -}}

{{- define "sie.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sie.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Pods of a component on different nodes and zones, where there are several. */}}
{{- define "sie.spread" -}}
topologySpreadConstraints:
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {{ include "sie.selector" $ | fromYaml | toJson }}}
{{- end }}
{{- end -}}

{{/* Variables that every program has. */}}
{{- define "sie.envFrom" -}}
- configMapRef: {name: {{ include "sie.fullname" . }}-settings}
{{- with .Values.secrets.environmentSecret }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- end -}}

{{/* Probes of a container by its port's name, and the numbers of all ports that must be live if these are several:
(list "http" 60) or (list "http" 60 8080 9095). */}}
{{- define "sie.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ index . 0 }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ max 1 (div (index . 1) 5) }}
livenessProbe:
  {{- if gt (len .) 2 }}
  exec:
    command:
      - /opt/sie/bin/python
      - -ISc
      # Not by a proxy that the settings name.
      - import sys, urllib.request as by; ask = by.build_opener(by.ProxyHandler({})).open; [ask(url) for url in sys.argv[1:]]
      {{- range slice . 2 }}
      - http://127.0.0.1:{{ . }}/livez
      {{- end }}
  {{- else }}
  httpGet: {path: /livez, port: {{ index . 0 }}}
  {{- end }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: {{ index . 0 }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* Variables as a list of `env`: a map of names and values. */}}
{{- define "sie.env" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ toString $value | quote }}}
{{- end }}
{{- end -}}

{{/* Variables of the files that a program's secrets lie in: a map of variables and keys of the Secret. */}}
{{- define "sie.secretEnv" -}}
{{- range $name, $key := . }}
- {name: {{ $name }}_FILE, value: /run/secrets/sie/{{ $key }}}
{{- end }}
{{- end -}}

{{/* The volume of those files: (list $ "secrets" MAP). */}}
{{- define "sie.secretVolume" -}}
- name: {{ index . 1 }}
  secret:
    secretName: {{ include "sie.secretName" (index . 0) }}
    defaultMode: 0440
    items:
    {{- range $key := values (index . 2) | sortAlpha }}
      - {key: {{ $key }}, path: {{ $key }}}
    {{- end }}
{{- end -}}

{{- define "sie.secretName" -}}
{{- .Values.secrets.existingSecret | default (printf "%s-secrets" (include "sie.fullname" .)) -}}
{{- end -}}

{{/* Secrets of a role, as JSON: variables and the keys of the Secret. */}}
{{- define "sie.secretsOf" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- $found := dict -}}
{{- if and $root.Values.nats.users (ne $role "adapter") -}}
{{- $_ := set $found "SIE_NATS_PASSWORD" (printf "nats-%s-password" $role) -}}
{{- end -}}
{{- if ne $role "adapter" -}}{{- $_ := set $found "SIE_CONFIG_READ_TOKEN" "config-read-token" -}}{{- end -}}
{{- if eq $role "config" -}}{{- $_ := set $found "SIE_ADMIN_TOKEN" "admin-token" -}}{{- end -}}
{{- if and (eq $root.Values.auth.mode "token") (ne $role "config") -}}
{{- $_ := set $found "SIE_AUTH_TOKEN" "auth-token" -}}
{{- if $root.Values.auth.tokens -}}{{- $_ := set $found "SIE_AUTH_TOKENS" "auth-tokens" -}}{{- end -}}
{{- if eq $role "gateway" -}}{{- $_ := set $found "SIE_POOL_TOKEN" "pool-token" -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The user of a role at the broker, and what clients need at gateways and workers, as JSON. */}}
{{- define "sie.roleEnv" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- $found := dict -}}
{{- if and $root.Values.nats.users (ne $role "adapter") -}}{{- $_ := set $found "SIE_NATS_USER" $role -}}{{- end -}}
{{- if ne $role "config" -}}
{{- $_ := set $found "SIE_AUTH_MODE" $root.Values.auth.mode -}}
{{- $_ := set $found "SIE_AUTH_EXEMPT_OPERATIONAL" $root.Values.auth.exemptOperational -}}
{{- end -}}
{{- if has $role (list "gateway" "worker") -}}
{{- $_ := set $found "SIE_CONFIG_SERVICE_URL" (printf "http://%s-config:8080" (include "sie.fullname" $root)) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The broker's addresses. */}}
{{- define "sie.natsUrl" -}}
{{- if .Values.nats.enabled -}}
{{- $name := printf "%s-nats" (include "sie.fullname" .) -}}
{{- $found := list -}}
{{- range $number := until (int .Values.nats.replicas) -}}
{{- $found = append $found (printf "nats://%s-%d.%s:4222" $name $number $name) -}}
{{- end -}}
{{- join "," $found -}}
{{- else -}}
{{- .Values.nats.url -}}
{{- end -}}
{{- end -}}

{{/* Restarts pods where what they all read has changed. */}}
{{- define "sie.checksum" -}}
checksum/settings: {{ include "sie.shared" . | sha256sum }}
{{- end -}}

{{/* The settings of every program, as YAML: the shared ConfigMap. */}}
{{- define "sie.shared" -}}
{{- $found := dict
  "SIE_HTTP_HOST" "0.0.0.0"
  "SIE_NATS_URL" (include "sie.natsUrl" .)
  "SIE_NATS_REPLICAS" .Values.nats.replicas
  "SIE_LOG_LEVEL" .Values.log.level
  "SIE_LOG_JSON" .Values.log.json
  "SIE_DRAIN_TIMEOUT_S" .Values.drainTimeoutSeconds -}}
{{- if .Values.payloadStore.enabled -}}{{- $_ := set $found "SIE_PAYLOAD_STORE_URL" .Values.payloadStore.url -}}{{- end -}}
{{- range $name, $value := merge (deepCopy .Values.settings) $found }}
{{ $name }}: {{ toString $value | quote }}
{{- end }}
{{- end -}}
