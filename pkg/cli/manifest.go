// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

// manifest is the relevant content of a file.
type manifest struct {
	file       string
	workspaces []*v1beta1.Workspace
	// configs are the ConfigMaps by namespace and name.
	configs map[string]map[string]string
}

// readManifest reads a file of one or more YAML documents. Its errors name file, document and field.
func readManifest(name string, stdin io.Reader) (*manifest, error) {
	data, err := readFile(name, stdin)
	if err != nil {
		return nil, usageError("-f: %w", err)
	}
	if name == "-" {
		name = "standard input"
	}
	m, err := parseManifest(name, data)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return m, nil
}

// parseManifest parses the documents of a file.
func parseManifest(file string, data []byte) (*manifest, error) {
	m := &manifest{file: file, configs: map[string]map[string]string{}}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		where := fmt.Sprintf("%s, document %d", file, number)
		if err != nil {
			return nil, fmt.Errorf("%s: cannot be read: %w", where, err)
		}
		object, err := decode(document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if err := m.add(where, object); err != nil {
			return nil, err
		}
	}
	if len(m.workspaces) == 0 {
		return nil, fmt.Errorf("%s: has no Workspace: write one with apiVersion %s and kind %s",
			file, v1beta1.GroupVersion(), v1beta1.WorkspaceKind)
	}
	return m, nil
}

// decode parses one document; nil if it has only comments.
func decode(document []byte) (map[string]any, error) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, fmt.Errorf("is not YAML (%s): correct it", yamlError(err))
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("is not YAML (%w): correct it", err)
	}
	if value == nil {
		return nil, nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("is not a Kubernetes object: write apiVersion, kind and the object's fields")
	}
	return object, nil
}

// yamlError returns a YAML parser's message without the parser's name.
func yamlError(err error) string {
	text := wording.OneLine(err.Error())
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// add adds an object if it is relevant. It also adds the relevant objects of a list.
func (m *manifest) add(where string, object map[string]any) error {
	kind, _ := object["kind"].(string)
	apiVersion, _ := object["apiVersion"].(string)
	group, err := schema.ParseGroupVersion(apiVersion)
	switch {
	case object == nil:
		return nil
	case kind == "":
		return fmt.Errorf("%s: kind is missing: write apiVersion %s and kind %s", where, v1beta1.GroupVersion(), v1beta1.WorkspaceKind)
	case err != nil:
		return fmt.Errorf("%s: apiVersion is %q: it must be %s", where, shorten(apiVersion), v1beta1.GroupVersion())
	case strings.HasSuffix(kind, "List"):
		return m.addList(where, object)
	case kind == "ConfigMap" && group.Group == "":
		return m.addConfig(where, object)
	case kind != v1beta1.WorkspaceKind || (group.Group != "" && group.Group != v1beta1.GroupVersion().Group):
		return nil
	}
	return m.addWorkspace(where, apiVersion, object)
}

func (m *manifest) addList(where string, object map[string]any) error {
	items, _ := object["items"].([]any)
	for i, item := range items {
		at := fmt.Sprintf("%s, items[%d]", where, i)
		entry, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is not a Kubernetes object", at)
		}
		if err := m.add(at, entry); err != nil {
			return err
		}
	}
	return nil
}

func (m *manifest) addWorkspace(where, apiVersion string, object map[string]any) error {
	// Both versions have the same fields.
	if apiVersion != v1beta1.GroupVersion().String() && apiVersion != v1beta1.GroupVersion().Group+"/v1alpha1" {
		return fmt.Errorf("%s: apiVersion is %q: it must be %s", where, shorten(apiVersion), v1beta1.GroupVersion())
	}
	delete(object, "status")
	ws := &v1beta1.Workspace{}
	if err := read(object, ws); err != nil {
		return fmt.Errorf("%s (%s): %w", where, named(v1beta1.WorkspaceKind, object), err)
	}
	if problem := outOfBounds(ws); problem != "" {
		return fmt.Errorf("%s (%s): %s", where, named(v1beta1.WorkspaceKind, object), problem)
	}
	for _, other := range m.workspaces {
		if key(other) == key(ws) {
			return fmt.Errorf("%s: Workspace %s appears twice: keep one", where, key(ws))
		}
	}
	m.workspaces = append(m.workspaces, ws)
	return nil
}

func (m *manifest) addConfig(where string, object map[string]any) error {
	config := &corev1.ConfigMap{}
	if err := read(object, config); err != nil {
		return fmt.Errorf("%s (%s): %w", where, named("ConfigMap", object), err)
	}
	m.configs[key(config)] = config.Data
	return nil
}

// read checks an object against a type and reads it.
func read(object map[string]any, into any) error {
	if problem := mistake(object, reflect.TypeOf(into), ""); problem != "" {
		return errors.New(problem)
	}
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, into); err != nil {
		return fmt.Errorf("cannot be read: %s", strings.TrimPrefix(wording.OneLine(err.Error()), "json: "))
	}
	return nil
}

// named returns an object's kind and name for a message.
func named(kind string, object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + shorten(name))
}

// key returns an object's namespace and name.
func key(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}
