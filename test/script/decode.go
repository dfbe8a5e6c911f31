// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Load reads the script of a file. No file means no rules. The edition changes with each write of the file.
func Load(file string) (s Script, edition string, err error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Script{}, "", nil
	}
	if err != nil {
		return Script{}, "", fmt.Errorf("reading the script: %w", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return Script{}, "", fmt.Errorf("reading the script: %w", err)
	}
	if s, err = Parse(data); err != nil {
		return Script{}, "", fmt.Errorf("script %s: %w", file, err)
	}
	return s, info.ModTime().Format(time.RFC3339Nano), nil
}

// Parse reads a script in YAML or JSON. It refuses unknown fields and fields without effect, and names the rule, the
// field and the value.
func Parse(data []byte) (Script, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Script{}, fmt.Errorf("decoding the script: %w", err)
	}
	var document struct {
		Cloud Cloud             `json:"cloud"`
		Rules []json.RawMessage `json:"rules"`
	}
	if err := decode(asJSON, &document); err != nil {
		return Script{}, fmt.Errorf("decoding the script: %w", err)
	}
	if !slices.Contains(clouds(), document.Cloud) {
		return Script{}, fmt.Errorf("cloud: %q is unknown: use one of %s, or leave it out", document.Cloud, list(clouds()))
	}
	s := Script{Cloud: document.Cloud}
	for i, raw := range document.Rules {
		rule, err := parseRule(raw)
		if err == nil {
			err = rule.check(s.Cloud)
		}
		if err != nil {
			return Script{}, fmt.Errorf("rules[%d].%w", i, err)
		}
		s.Rules = append(s.Rules, rule)
	}
	return s, nil
}

// decode is strict about names, their case, and duplicates.
func decode(data []byte, into any) error {
	mistakes, err := kjson.UnmarshalStrict(data, into)
	return errors.Join(append(mistakes, err)...)
}

// parseRule reads a rule field by field, so an error names the place of a mistake.
func parseRule(raw json.RawMessage) (Rule, error) {
	var fields map[string]json.RawMessage
	if err := decode(raw, &fields); err != nil {
		return Rule{}, fmt.Errorf("%s is not a rule: %w", raw, err)
	}
	var rule Rule
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone, err := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if err == nil {
			err = decode(alone, &rule)
		}
		if err == nil {
			continue
		}
		if !slices.Contains(fieldNames(), name) {
			return Rule{}, fmt.Errorf("%s: %s: %w: use %s", name, fields[name], err, strings.Join(fieldNames(), ", "))
		}
		return Rule{}, fmt.Errorf("%s: %s: %w", name, fields[name], err)
	}
	return rule, nil
}

// fieldNames are the fields of a rule, sorted.
func fieldNames() []string {
	var names []string
	for field := range reflect.TypeFor[Rule]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func clouds() []Cloud { return []Cloud{Plain, Azure, AzureARM, AWS, GPUProvisioner} }

func outcomes() []Outcome {
	return []Outcome{
		Accept, NoCapacity, Quota, APIError, SlowCreate, Hang,
		Slow, NeverRegisters, NoGPUs, Dies, Evicted, NotReady, GPUFault, GPUsLost, Stuck,
	}
}

// list joins the names, without the empty one.
func list[T ~string](names []T) string {
	var out []string
	for _, name := range names {
		if name != "" {
			out = append(out, string(name))
		}
	}
	return strings.Join(out, ", ")
}

// wants returns an outcome's own fields, in addition to the common ones. An exclamation mark makes a field mandatory.
func (o Outcome) wants() []string {
	switch o {
	case NoCapacity, Quota, APIError:
		return []string{"cloud", "kind", "reason", "message", "delay"}
	case SlowCreate:
		return []string{"cloud", "delay!"}
	case Slow:
		return []string{"delay!"}
	case Stuck:
		return []string{"delay"}
	case NoGPUs:
		return []string{"gpus"}
	case Dies:
		return []string{"after!", "removeNode"}
	case Evicted:
		return []string{"cloud", "after!", "notice!", "removeNode"}
	case NotReady:
		return []string{"after!"}
	case GPUFault:
		return []string{"cloud", "after!", "condition"}
	case GPUsLost:
		return []string{"after!", "gpus"}
	case Accept, Hang, NeverRegisters:
	}
	return nil
}

// check refuses impossible values, and fields without meaning for the outcome. Its errors begin with the field.
func (r Rule) check(cloud Cloud) error {
	if !slices.Contains(outcomes(), r.Outcome) {
		return fmt.Errorf("outcome: %q is unknown: use one of %s", r.Outcome, list(outcomes()))
	}
	for _, pattern := range [][2]string{{"sku", r.SKU}, {"zone", r.Zone}, {"capacityType", r.CapacityType}} {
		if _, err := path.Match(pattern[1], ""); err != nil {
			return fmt.Errorf("%s: %q is not a pattern: %w", pattern[0], pattern[1], err)
		}
	}
	for name, n := range map[string]int{"skip": r.Skip, "times": r.Times, "gpus": r.GPUs} {
		if n < 0 {
			return fmt.Errorf("%s: %d is less than 0", name, n)
		}
	}
	if err := r.checkFields(); err != nil {
		return err
	}
	if !slices.Contains(clouds(), r.Cloud) {
		return fmt.Errorf("cloud: %q is unknown: use one of %s, or leave it out", r.Cloud, list(clouds()))
	}
	status := []metav1.ConditionStatus{"", metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}
	if !slices.Contains(status, r.Condition.Status) {
		return fmt.Errorf("condition.status: %q is unknown: use one of %s", r.Condition.Status, list(status))
	}
	return r.checkKind(cloud)
}

// checkFields compares the fields set with the outcome's own.
func (r Rule) checkFields() error {
	wants := r.Outcome.wants()
	value := reflect.ValueOf(r)
	for _, field := range reflect.VisibleFields(value.Type()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		of := value.FieldByIndex(field.Index)
		if slices.Contains([]string{"sku", "zone", "capacityType", "skip", "times", "outcome"}, name) {
			continue
		}
		shown := of.Interface()
		duration, isDuration := shown.(metav1.Duration)
		if isDuration {
			shown = duration.Duration
		}
		required, allowed := slices.Contains(wants, name+"!"), slices.Contains(wants, name)
		switch {
		case isDuration && duration.Duration < 0:
			return fmt.Errorf("%s: %v is less than 0", name, shown)
		case required && of.IsZero():
			return fmt.Errorf("%s: missing: outcome %q needs a time above zero, such as \"20s\"", name, r.Outcome)
		case !required && !allowed && !of.IsZero():
			return fmt.Errorf("%s: %v has no effect with outcome %q: leave it out", name, shown, r.Outcome)
		}
	}
	return nil
}
