// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// fieldChange is a field with different values in two manifests; an empty value means that the field is absent.
type fieldChange struct {
	Field string `json:"field"`
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// changesOf returns the differing fields, sorted by name. The configs are the texts of the two ConfigMaps.
func changesOf(old, updated *v1beta1.Workspace, oldConfig, newConfig string) ([]fieldChange, error) {
	before, err := leaves(old, oldConfig)
	if err != nil {
		return nil, err
	}
	after, err := leaves(updated, newConfig)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	var out []fieldChange
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if before[field] != after[field] {
			out = append(out, fieldChange{Field: field, Old: before[field], New: after[field]})
		}
	}
	return out, nil
}

// configField is the name for a change within the ConfigMap.
const configField = "ConfigMap"

// leaves returns the values of a Workspace by field name.
func leaves(ws *v1beta1.Workspace, config string) (map[string]string, error) {
	text, err := json.Marshal(map[string]any{
		"resource": ws.Resource, "inference": ws.Inference, "tuning": ws.Tuning, "suspend": ws.Suspend,
		"metadata": map[string]any{"labels": ws.Labels, "annotations": ws.Annotations},
	})
	if err != nil {
		return nil, fmt.Errorf("comparing Workspace %s: %w", key(ws), err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("comparing Workspace %s: %w", key(ws), err)
	}
	out := map[string]string{}
	for name, value := range object {
		gather(out, name, value)
	}
	if config != "" {
		out[configField] = config
	}
	// The API server's default equals the unset field.
	for field, standard := range map[string]string{"resource.count": "1", "suspend": "false", "inference.preset.accessMode": "public"} {
		if out[field] == standard {
			delete(out, field)
		}
	}
	return out, nil
}

// gather collects the leaves of a value. A list of plain values is one leaf.
func gather(into map[string]string, at string, value any) {
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for name, entry := range v {
			gather(into, join(at, name), entry)
		}
	case []any:
		if len(v) == 0 {
			return
		}
		if isPlain(v) {
			into[at] = strings.Trim(fmt.Sprint(v), "[]")
			return
		}
		for i, entry := range v {
			gather(into, fmt.Sprintf("%s[%d]", at, i), entry)
		}
	case string:
		if v != "" {
			into[at] = v
		}
	default:
		into[at] = fmt.Sprint(v)
	}
}

func isPlain(list []any) bool {
	return !slices.ContainsFunc(list, func(entry any) bool {
		switch entry.(type) {
		case map[string]any, []any:
			return true
		default:
			return false
		}
	})
}

// isFixed reports whether a change needs a new object, because the field is immutable. Some fields are immutable only
// once they have a value.
func isFixed(change *fieldChange) bool {
	switch {
	case change.Field == "inference.preset.name", change.Field == "resource.count",
		under(change.Field, "resource.labelSelector"), under(change.Field, "resource.partition"):
		return true
	case change.Field == "resource.instanceType":
		return change.Old != "" && change.New != ""
	case change.Field == "inference.preset.presetOptions.modelAccessSecret":
		return change.Old != ""
	default:
		return false
	}
}

// under reports whether a field is the parent or lies within it.
func under(field, parent string) bool {
	rest, ok := strings.CutPrefix(field, parent)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// isRendered reports whether a change shows in the pods even if the plan stays the same.
func isRendered(change *fieldChange) bool {
	for _, planned := range []string{
		"inference.objectives", "inference.engine.allowedQuantizations", "inference.engine.allowedKVCacheTypes",
	} {
		if under(change.Field, planned) {
			return false
		}
	}
	return under(change.Field, "inference") || change.Field == configField ||
		change.Field == "metadata.labels."+v1beta1.LabelInferenceSet
}
