// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/wording"
)

// Source is a source of flags.
type Source struct {
	// Name of the source in messages.
	Name string
	// Flags in any spelling that the engine accepts, with or without leading dashes.
	Flags map[string]string
}

// ArgsField is the field with the user's flags.
const ArgsField = "inference.engine.args"

// ResolveUsers resolves the user's flags: those in the ConfigMap, and those in ArgsField, which take precedence.
func ResolveUsers(data catalog.Engine, config Config, args map[string]string) ([]Setting, []string, error) {
	return Resolve(data, config.Flags(data.Name), Source{Name: ArgsField, Flags: args})
}

// Resolve checks the flags of all sources against the engine's version. Later sources take precedence. It returns the
// flags by their names in the catalogue, sorted. It drops a flag with a warning if the version lacks it or users cannot
// set it, because manifests outlive versions. It returns an error if the catalogue refuses a flag, or if the engine
// would not start with a value.
func Resolve(data catalog.Engine, sources ...Source) ([]Setting, []string, error) {
	table := newTable(data)
	merged := map[string]string{}
	var warnings []string
	for _, source := range sources {
		flags, dropped, err := table.resolve(source)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, dropped...)
		maps.Copy(merged, flags)
	}
	settings := make([]Setting, 0, len(merged))
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		settings = append(settings, Setting{Name: name, Value: merged[name]})
	}
	return settings, warnings, nil
}

// table finds flags in any spelling.
type table struct {
	data      catalog.Engine
	spellings map[string]spelling
	reserved  map[string]catalog.Reservation
}

type spelling struct {
	name    string
	negated bool
}

func newTable(data catalog.Engine) table {
	t := table{data: data, spellings: map[string]spelling{}, reserved: map[string]catalog.Reservation{}}
	for name, flag := range data.Flags {
		t.spellings[name] = spelling{name: name}
		for _, alias := range flag.Aliases {
			t.spellings[alias] = spelling{name: name}
		}
		for _, negation := range flag.Negations {
			t.spellings[negation] = spelling{name: name, negated: true}
		}
	}
	for _, group := range data.Reserved {
		for _, name := range group.Flags {
			t.reserved[name] = group
		}
	}
	return t
}

// find finds a flag in the servers' spellings: with leading dashes, or with underscores for dashes.
func (t table) find(key string) (spelling, bool) {
	key = strings.TrimLeft(key, "-")
	if found, ok := t.spellings[key]; ok {
		return found, true
	}
	found, ok := t.spellings[strings.ReplaceAll(key, "_", "-")]
	return found, ok
}

func (t table) resolve(source Source) (map[string]string, []string, error) {
	flags, spelled := map[string]string{}, map[string]string{}
	var unknown []string
	var parts []part
	reserved := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(source.Flags)) {
		found, path, ok := t.findPart(key)
		if !ok {
			unknown = append(unknown, key)
			continue
		}
		if group, ok := t.reserved[found.name]; ok {
			if group.IsRefused {
				return nil, nil, fmt.Errorf("%s: %q is refused, because %s", source.Name, wording.Clip(key, maxName), group.Reason)
			}
			reserved[group.Reason] = append(reserved[group.Reason], key)
			continue
		}
		if path != nil {
			parts = append(parts, part{key: key, name: found.name, path: path, value: source.Flags[key]})
			continue
		}
		if other, ok := spelled[found.name]; ok {
			return nil, nil, fmt.Errorf("%s: %q and %q are the same flag: keep one", source.Name, other, key)
		}
		spelled[found.name] = key
		value, err := normalise(t.data.Flags[found.name], found.negated, source.Flags[key])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: flag %q of engine %s %w", source.Name, wording.Clip(key, maxName), t.data.Name, err)
		}
		flags[found.name] = value
	}
	if err := assemble(flags, parts); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", source.Name, err)
	}
	return flags, t.dropped(source.Name, unknown, reserved), nil
}

func (t table) dropped(source string, unknown []string, reserved map[string][]string) []string {
	var warnings []string
	if len(unknown) > 0 {
		warnings = append(warnings, Sentence("%s: %s ignored, because engine %s %s has no such flag",
			source, are(unknown), t.data.Name, t.data.Version))
	}
	for _, reason := range slices.Sorted(maps.Keys(reserved)) {
		warnings = append(warnings, Sentence("%s: %s ignored, because %s", source, are(reserved[reason]), reason))
	}
	return warnings
}

// normalise returns the value to render, or an error that continues a sentence about the flag.
func normalise(flag catalog.Flag, negated bool, value string) (string, error) {
	if len(value) > maxValue {
		return "", fmt.Errorf("has a value of %d bytes: at most %d are allowed", len(value), maxValue)
	}
	if strings.ContainsRune(value, 0) {
		return "", fmt.Errorf("has a zero byte in its value: remove it")
	}
	if flag.Kind == catalog.FlagBool {
		return normaliseBool(negated, value)
	}
	if value == "" {
		return "", fmt.Errorf("needs a value%s", examples(flag.Values))
	}
	if flag.Many {
		return normaliseMany(flag, value)
	}
	return normaliseOne(flag, value)
}

// normaliseMany accepts several values separated by spaces, or as a JSON list.
func normaliseMany(flag catalog.Flag, value string) (string, error) {
	values := strings.Fields(value)
	if strings.HasPrefix(value, "[") {
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(value), &list); err != nil {
			return "", fmt.Errorf("needs values separated by spaces, or a JSON list, not %q", wording.Clip(value, maxName))
		}
		values = values[:0]
		for _, raw := range list {
			var text string
			if json.Unmarshal(raw, &text) != nil {
				text = string(raw)
			}
			values = append(values, text)
		}
	}
	if len(values) == 0 {
		return "", fmt.Errorf("needs at least one value%s", examples(flag.Values))
	}
	for i, each := range values {
		one, err := normaliseOne(flag, each)
		switch {
		case err != nil:
			return "", err
		case len(strings.Fields(one)) != 1:
			return "", fmt.Errorf("takes values without spaces, not %q", wording.Clip(each, maxName))
		}
		values[i] = one
	}
	return strings.Join(values, " "), nil
}

func normaliseOne(flag catalog.Flag, value string) (string, error) {
	if slices.Contains(flag.Values, value) {
		return value, nil
	}
	if flag.Kind == catalog.FlagSize {
		return normaliseSize(flag, value)
	}
	return value, checkKind(flag, value)
}

func normaliseBool(negated bool, value string) (string, error) {
	on := true
	if value != "" {
		parsed, err := strconv.ParseBool(strings.ToLower(value))
		if err != nil {
			return "", fmt.Errorf("must be true or false, not %q", wording.Clip(value, maxName))
		}
		on = parsed
	}
	return strconv.FormatBool(on != negated), nil
}

func checkKind(flag catalog.Flag, value string) error {
	shown := wording.Clip(value, maxName)
	if flag.IsClosed() {
		return fmt.Errorf("must be one of %s, not %q", strings.Join(flag.Values, ", "), shown)
	}
	switch flag.Kind {
	case catalog.FlagInt:
		if _, err := strconv.ParseInt(value, 10, 32); err != nil {
			return fmt.Errorf("needs a whole number%s, not %q", oneOf(flag.Values), shown)
		}
	case catalog.FlagFloat:
		number, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
			return fmt.Errorf("needs a number, not %q", shown)
		}
	case catalog.FlagJSON:
		if !json.Valid([]byte(value)) {
			return fmt.Errorf("needs JSON, not %q", shown)
		}
	case catalog.FlagString:
	default:
		return fmt.Errorf("has the unknown kind %q in the catalogue", flag.Kind)
	}
	return nil
}

func examples(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return ", for example " + strings.Join(values, ", ")
}

func oneOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return " or one of " + strings.Join(values, ", ")
}
