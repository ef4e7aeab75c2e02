{{/* The worker sets, one for each bundle of each enabled pool, as a JSON list: the pool's values over those of its
machine profile, with name, pool, profile and bundle. */}}
{{- define "sie.workerSets" -}}
{{- $sets := list -}}
{{- range $pool, $given := .Values.workers.pools -}}
{{- if ne (toString $given.enabled) "false" -}}
{{- if not (hasKey $.Values.machineProfiles $given.machineProfile) -}}
{{- fail (printf "workers.pools.%s.machineProfile: %q is none of machineProfiles (%s); name one of them, or add it there." $pool $given.machineProfile (keys $.Values.machineProfiles | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $profile := index $.Values.machineProfiles $given.machineProfile -}}
{{- range $bundle := $given.bundles | default (list $.Values.workers.common.bundle) -}}
{{- $gpu := int (ternary $given.gpu $profile.gpu (hasKey $given "gpu")) -}}
{{- $name := printf "%s-worker-%s-%s" (include "sie.fullname" $) $pool $bundle -}}
{{- $set := dict
  "name" (include "sie.short" (dict "name" $name "most" 52))
  "pool" $pool
  "profile" $given.machineProfile
  "bundle" $bundle
  "gpu" $gpu
  "platform" ($.Values.workers.common.platform | default (ternary "cuda" "cpu" (gt $gpu 0)))
  "queuePool" ($given.queuePool | default "_default")
  "minReplicas" (int ($given.minReplicas | default 0))
  "maxReplicas" (int (ternary $given.maxReplicas 1 (hasKey $given "maxReplicas")))
  "resources" ($given.resources | default $profile.resources)
  "nodeSelector" ($given.nodeSelector | default $profile.nodeSelector)
  "tolerations" ($given.tolerations | default $profile.tolerations)
  "settings" (merge (dict) ($given.settings | default dict) $.Values.workers.common.settings) -}}
{{- $sets = append $sets $set -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $sets -}}
{{- end -}}

{{/* Machine profiles of the enabled pools, that of requests without one first, as a JSON list. */}}
{{- define "sie.profiles" -}}
{{- $found := list -}}
{{- with .Values.gateway.defaultMachineProfile -}}{{- $found = append $found . -}}{{- end -}}
{{- range include "sie.workerSets" . | fromJsonArray -}}{{- $found = append $found .profile -}}{{- end -}}
{{- uniq $found | toJson -}}
{{- end -}}

{{/* Queue pools of the enabled pools, as a JSON list. */}}
{{- define "sie.queuePools" -}}
{{- $found := list "_default" -}}
{{- range include "sie.workerSets" . | fromJsonArray -}}{{- $found = append $found .queuePool -}}{{- end -}}
{{- uniq $found | toJson -}}
{{- end -}}

{{/* The resources of a worker set's adapter process, its GPUs included, as JSON. */}}
{{- define "sie.gpuResources" -}}
{{- $resources := deepCopy .resources -}}
{{- if gt (int .gpu) 0 -}}
{{- $_ := set $resources "limits" (merge (dict "nvidia.com/gpu" (int .gpu)) $resources.limits) -}}
{{- end -}}
{{- toJson $resources -}}
{{- end -}}
