// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/redact"
)

// hidden replaces secret values in a bundle.
const hidden = "…"

// secretive matches names of flags, keys and annotations that may have secret values.
var secretive = regexp.MustCompile(`(?i)(key|token|secret|password|passwd|credential|authorization)`)

// WriteBundle writes a tar.gz with the findings, the controllers' settings and the objects of a snapshot, one file for each
// kind. It leaves out Secrets, ConfigMaps, schemas and the values of environment variables.
func WriteBundle(w io.Writer, s *Snapshot, findings []Finding) error {
	files := map[string][]byte{}
	report, err := json.MarshalIndent(map[string]any{
		"version": s.Version, "time": s.Now, "unread": s.Unread, "findings": redacted(findings),
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the findings: %w", err)
	}
	files["report.json"] = report
	if len(s.Settings) > 0 {
		text, err := yaml.Marshal(s.Settings)
		if err != nil {
			return fmt.Errorf("writing the settings: %w", err)
		}
		files["settings.yaml"] = []byte(redact.Text(string(text)))
	}
	for i := range s.Objects {
		object := &s.Objects[i]
		if object.GetKind() == "Secret" || object.GetKind() == "ConfigMap" {
			continue
		}
		text, err := yaml.Marshal(safe(object))
		if err != nil {
			return fmt.Errorf("writing %s: %w", called(object), err)
		}
		name := strings.ToLower(object.GetKind()) + ".yaml"
		files[name] = append(append(files[name], "---\n"...), text...)
	}
	return writeArchive(w, s, files)
}

func writeArchive(w io.Writer, s *Snapshot, files map[string][]byte) error {
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: "modelberth-support/" + name, Mode: 0o600, Size: int64(len(files[name])), ModTime: s.Now}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if _, err := archive.Write(files[name]); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return packed.Close()
}

// redacted returns findings without secrets in URLs.
func redacted(findings []Finding) []Finding {
	out := slices.Clone(findings)
	for i := range out {
		out[i].Evidence = redact.Text(out[i].Evidence)
	}
	return out
}

// safe returns an object without its secrets.
func safe(object *unstructured.Unstructured) map[string]any {
	out := runtime.DeepCopyJSON(object.Object)
	unstructured.RemoveNestedField(out, "metadata", "managedFields")
	unstructured.RemoveNestedField(out, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
	clean(out)
	return out
}

// clean removes secrets from a value in place, and returns it.
func clean(value any) any {
	switch v := value.(type) {
	case string:
		return redact.Text(v)
	case []any:
		for i := range v {
			v[i] = clean(v[i])
		}
	case map[string]any:
		for key, below := range v {
			v[key] = cleanField(key, below)
		}
	}
	return value
}

// cleanField removes secrets from a field.
func cleanField(key string, value any) any {
	switch list, _ := value.([]any); {
	case key == "env":
		for _, each := range list {
			if variable, isMap := each.(map[string]any); isMap && variable["value"] != nil {
				variable["value"] = hidden
			}
		}
		return value
	case key == "args" || key == "command":
		return cleanArgs(list)
	case slices.Contains([]string{"data", "stringData", "binaryData", "caBundle", "openAPIV3Schema"}, key):
		return hidden
	}
	if _, isText := value.(string); isText && secretive.MatchString(key) && !strings.HasSuffix(key, "Name") && key != "key" {
		return hidden
	}
	return clean(value)
}

// cleanArgs hides the values of flags that may be secret: --api-key=x and --api-key x. It hides other arguments that
// mention a secret as a whole, such as a shell script.
func cleanArgs(args []any) any {
	hideNext := false
	for i, each := range args {
		text, _ := each.(string)
		name, _, hasValue := strings.Cut(text, "=")
		isFlag := strings.HasPrefix(text, "-")
		switch {
		case hideNext && !isFlag, !isFlag && secretive.MatchString(text):
			args[i] = hidden
		case isFlag && hasValue && secretive.MatchString(name):
			args[i] = name + "=" + hidden
		default:
			args[i] = redact.Text(text)
		}
		hideNext = isFlag && !hasValue && secretive.MatchString(text)
	}
	return args
}
