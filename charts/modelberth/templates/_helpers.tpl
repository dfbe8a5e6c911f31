{{/*
Copyright The Modelberth Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{- define "modelberth.name" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains .Chart.Name .Release.Name }}
{{- .Release.Name }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "modelberth.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "modelberth.name" .) }}
{{- end }}

{{/* The labels that the Deployment's pods are selected by: they can never change. */}}
{{- define "modelberth.selectorLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "modelberth.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "modelberth.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- /* kubectl berth doctor finds the controller by its name, or by this label. */}}
{{- $renamed := ne (.Values.nameOverride | default .Chart.Name) .Chart.Name }}
{{- if $renamed }}
app.kubernetes.io/part-of: {{ .Chart.Name }}
{{- end }}
{{- with omit .Values.commonLabels ($renamed | ternary "app.kubernetes.io/part-of" "") }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The reference of an image: (list values root). A repository that names a registry itself, as Docker reads it, is complete. */}}
{{- define "modelberth.image" -}}
{{- $image := index . 0 }}
{{- $root := index . 1 }}
{{- $repository := $image.repository }}
{{- if and $root.Values.registry (not (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $repository)) }}
{{- $repository = printf "%s/%s" (trimSuffix "/" $root.Values.registry) $repository }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository ($image.tag | default $root.Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The security context of pods. With arbitraryUID, the cluster adds the user and the groups. */}}
{{- define "modelberth.podSecurityContext" -}}
{{- if .Values.arbitraryUID }}
{{- toYaml (omit .Values.podSecurityContext "runAsUser" "runAsGroup" "fsGroup") }}
{{- else }}
{{- toYaml .Values.podSecurityContext }}
{{- end }}
{{- end }}

{{/* Destinations of a NetworkPolicy from address ranges. Without ports, a range allows all ports and protocols. */}}
{{- define "modelberth.egressTo" -}}
{{- range . }}
- to:
  - ipBlock: {cidr: {{ .cidr | quote }}}
  {{- with .ports }}
  ports:
  {{- range . }}
  - {port: {{ . }}, protocol: TCP}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "modelberth.metricsPort" -}}
{{- .Values.metrics.insecure | ternary 8080 8443 }}
{{- end }}

{{/* The NodeClasses to buy with, one group/kind/name per line. */}}
{{- define "modelberth.nodeClasses" -}}
{{- $defaults := dict "azure" "karpenter.azure.com/AKSNodeClass/default" "aws" "karpenter.k8s.aws/EC2NodeClass/default" }}
{{- range .Values.nodeClasses }}
{{ .group }}/{{ .kind }}/{{ .name }}
{{- else }}
{{- with .Values.clouds }}
{{ index $defaults (first .) | default "" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Not empty if Karpenter reports in events why it makes no machine for a NodePool. */}}
{{- define "modelberth.watchesPools" -}}
{{- if and (eq .Values.capacity.backend "nodepool") (not .Values.capacity.staticNodePools) }}true{{ end }}
{{- end }}

{{/* The Lease for leader election. Each installation with watchNamespaces has its own, even if several share a namespace. */}}
{{- define "modelberth.leaseName" -}}
{{- .Values.watchNamespaces | empty | ternary "modelberth-controller" (printf "%s-controller" (include "modelberth.name" .)) }}
{{- end }}

{{/* The namespaces to which a policy of this release applies. */}}
{{- define "modelberth.namespaceSelector" -}}
{{- with .Values.watchNamespaces }}
namespaceSelector:
  matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: In
    values: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Fails with a list of all missing or contradictory values. */}}
{{- define "modelberth.validate" -}}
{{- $problems := list }}
{{- if not .Values.clouds }}
{{- $problems = append $problems "clouds is empty: name the cloud to buy machines from, for example --set clouds={azure}" }}
{{- else if and (not (include "modelberth.nodeClasses" . | trim)) (not (has .Values.capacity.backend (list "pods" "existing"))) }}
{{- $problems = append $problems (printf "nodeClasses is empty and cloud %s has no default: name the Karpenter NodeClass to buy with, by group, kind and name" (first .Values.clouds)) }}
{{- end }}
{{- if not .Values.image.repository }}
{{- $problems = append $problems "image.repository is empty: build the images with `make images`, push them to a registry that the cluster can pull from, and name the controller's here" }}
{{- end }}
{{- if not .Values.agentImage.repository }}
{{- $problems = append $problems "agentImage.repository is empty: push the agent's image, and name its repository here" }}
{{- end }}
{{- if and .Values.router.enabled (not .Values.router.image.repository) }}
{{- $problems = append $problems "router.image.repository is empty: push the image of modelberth-router, and name its repository here" }}
{{- end }}
{{- if and (eq .Values.capacity.backend "existing") .Values.watchNamespaces (not .Values.watchPodsOfNodes) }}
{{- $problems = append $problems "capacity.backend is existing, but with watchNamespaces no existing node can be used, because its free resources are unknown: set watchPodsOfNodes, or choose another back end" }}
{{- end }}
{{- with .Values.kvEvents.consumer }}
{{- if ne (empty .namespace) (empty .podLabels) }}
{{- $problems = append $problems "kvEvents.consumer is incomplete: set both namespace and podLabels, or neither" }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.insecure .Values.metrics.certificateSecret }}
{{- $problems = append $problems "metrics.certificateSecret has no effect with metrics.insecure: remove one of them" }}
{{- end }}
{{- with .Values.router }}
{{- if and .open .tokens.audience }}
{{- $problems = append $problems "router.tokens.audience has no effect with router.open: remove one of them" }}
{{- end }}
{{- if and (not .tokens.audience) (or .tokens.requestsPerMinute .tokens.tokensPerMinute) }}
{{- $problems = append $problems "router.tokens has limits but no audience: name one, or remove the limits" }}
{{- end }}
{{- end }}
{{- if and .Values.router.metrics.insecure .Values.router.metrics.certificateSecret }}
{{- $problems = append $problems "router.metrics.certificateSecret has no effect with router.metrics.insecure: remove one of them" }}
{{- end }}
{{- with .Values.router.gateway }}
{{- if and .enabled (not $.Values.router.enabled) }}
{{- $problems = append $problems "router.gateway needs router.enabled: the routers choose the replicas" }}
{{- end }}
{{- if and .enabled (not .namespace) (or .name (not .from)) }}
{{- $problems = append $problems "router.gateway.namespace is empty: name the namespace of the Gateway" }}
{{- end }}
{{- if and .insecure .certificateSecret }}
{{- $problems = append $problems "router.gateway.certificateSecret has no effect with router.gateway.insecure: remove one of them" }}
{{- end }}
{{- end }}
{{- with .Values.router.keda }}
{{- if and .enabled (not $.Values.router.enabled) }}
{{- $problems = append $problems "router.keda needs router.enabled: the routers count the requests" }}
{{- end }}
{{- if and .insecure (or .certificateSecret .verifyClients) }}
{{- $problems = append $problems "router.keda.certificateSecret and router.keda.verifyClients have no effect with router.keda.insecure: remove them, or router.keda.insecure" }}
{{- end }}
{{- if and .verifyClients (not .certificateSecret) }}
{{- $problems = append $problems "router.keda.verifyClients needs router.keda.certificateSecret, with ca.crt" }}
{{- end }}
{{- end }}
{{- with .Values.calibration }}
{{- if ne (empty .configMap) (empty .keys) }}
{{- $problems = append $problems "calibration needs both configMap and keys: name the ConfigMap with the files, and the public keys of their signers" }}
{{- end }}
{{- end }}
{{- with .Values.weights.oci }}
{{- if and .keyless.trustedRootConfigMap (not .keyless.image.repository) }}
{{- $problems = append $problems "weights.oci.keyless.image.repository is empty: build the image with `hack/images.sh verifier`, push it, and name its repository here" }}
{{- end }}
{{- if and .keyless.trustedRootConfigMap (not .registries) }}
{{- $problems = append $problems "weights.oci.keyless has no effect without weights.oci.registries: name the registries of the weights" }}
{{- end }}
{{- if and .requireVerify.publicKeys (not .registries) }}
{{- $problems = append $problems "weights.oci.requireVerify requires signatures, but weights.oci.registries is empty: name the registries of the weights" }}
{{- end }}
{{- end }}
{{- with .Values.allow }}
{{- $limits := or (not .templates) .engineImages (not .loadBalancer) .serviceAccounts .hostPaths }}
{{- if and $limits (not $.Values.policies.install) }}
{{- $problems = append $problems "the policies enforce allow, but policies.install is false: install the policies, or remove the limits in allow" }}
{{- end }}
{{- end }}
{{- if $problems }}
{{- fail (printf "\n  - %s" (join "\n  - " $problems)) }}
{{- end }}
{{- end }}
