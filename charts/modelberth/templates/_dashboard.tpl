{{/*
Copyright The Modelberth Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{/* Grafana's form of a dashboard of files/monitoring/dashboards: two panels in a row. */}}
{{- define "modelberth.dashboard" -}}
{{- $source := dict "type" "prometheus" "uid" "${datasource}" }}
title: {{ toJson .title }}
uid: {{ .uid }}
tags: [modelberth]
schemaVersion: 39
editable: true
refresh: 1m
time: {from: now-6h, to: now}
templating:
  list:
  - {name: datasource, type: datasource, query: prometheus, label: Data source}
  {{- with .variables }}
  {{- range $variable := list "namespace" "workspace" }}
  - name: {{ $variable }}
    type: query
    datasource: {{ toJson $source }}
    query: {{ printf "label_values(%s, %s)" $.variables.metric $variable | toJson }}
    includeAll: true
    allValue: ".*"
    multi: true
    refresh: 2
  {{- end }}
  {{- end }}
panels:
{{- range $i, $panel := .panels }}
- id: {{ add1 $i }}
  type: timeseries
  title: {{ toJson $panel.title }}
  datasource: {{ toJson $source }}
  gridPos: {h: 8, w: 12, x: {{ mul 12 (mod $i 2) }}, "y": {{ mul 8 (div $i 2) }}}
  fieldConfig: {defaults: {unit: {{ $panel.unit }}, min: 0}, overrides: []}
  targets:
  - {refId: A, expr: {{ toJson $panel.expr }}, legendFormat: {{ toJson $panel.legend }}}
{{- end }}
{{- end }}
