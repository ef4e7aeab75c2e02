{{/* The broker's configuration. Names and passwords are variables of its container. What each user may do stands in
files/broker-access.json, in which POOL stands for each queue pool: `sie cluster nats-conf` writes the same. */}}
{{- define "sie.natsConf" -}}
server_name: $POD_NAME
port: 4222
http_port: 8222
max_payload: 1048576
pid_file: "/run/nats/nats.pid"
lame_duck_grace_period: 5s
lame_duck_duration: 30s
jetstream { store_dir: "/data" }
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: sie
  port: 6222
  authorization { user: route, password: $ROUTE_PASSWORD }
  routes: $ROUTES
}
{{- end }}
{{- if .Values.nats.users }}
authorization {
  users: [
  {{- range $role, $may := .Files.Get "files/broker-access.json" | fromJson }}
    {
      user: {{ $role }}
      password: ${{ upper $role }}_PASSWORD
      permissions: {
      {{- range $verb, $subjects := $may }}
        {{ $verb }}: { allow: [
        {{- range $subject := $subjects }}
        {{- range $pool := include "sie.queuePools" $ | fromJsonArray }}
        {{- if or (contains "POOL" $subject) (eq $pool "_default") }}
          {{ replace "POOL" $pool $subject | quote }}
        {{- end }}
        {{- end }}
        {{- end }}
        ] }
      {{- end }}
      }
    }
  {{- end }}
  ]
}
{{- end }}
{{- end -}}
