// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package args

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Parsed is a well-formed command line.
type Parsed struct {
	// Model is the path or name to serve; empty if none was given.
	Model    string
	hasModel bool
	values   map[string][]string
}

// Has reports whether the flag was given.
func (p *Parsed) Has(name string) bool { return p.values[name] != nil }

// List returns the values of a flag.
func (p *Parsed) List(name string) []string { return p.values[name] }

// Text returns the value of a flag, or other if it was not given.
func (p *Parsed) Text(name, other string) string {
	if values := p.values[name]; len(values) > 0 {
		return values[0]
	}
	return other
}

// On reports whether a bool is on; it is other if it was not given.
func (p *Parsed) On(name string, other bool) bool {
	return p.Text(name, strconv.FormatBool(other)) == "true"
}

// Int returns a number, also of a size, or other if it was not given. Parse saw to its form.
func (p *Parsed) Int(name string, other int64) int64 {
	number, err := ParseSize(p.Text(name, ""))
	if err != nil {
		return other
	}
	return number
}

// Float returns a number, or other if it was not given.
func (p *Parsed) Float(name string, other float64) float64 {
	number, err := strconv.ParseFloat(p.Text(name, ""), 64)
	if err != nil {
		return other
	}
	return number
}

// Shape returns the flags that all ranks of a group must share: all flags except a rank's identity and address.
func (p *Parsed) Shape() map[string]string {
	own := []string{"headless", "node-rank", "host", "port", "api-server-count", "api-key", "shutdown-timeout"}
	shape := map[string]string{"model_tag": p.Model}
	for name, values := range p.values {
		if !slices.Contains(own, name) {
			shape[name] = strings.Join(values, " ")
		}
	}
	return shape
}

// check refuses a value as argparse does.
func (f Flag) check(value string) error {
	var err error
	switch f.Kind {
	case Int:
		_, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	case Float:
		_, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
	case Size, Auto:
		err = f.checkSize(value)
	case JSON:
		if value == "" || value == "None" {
			return nil
		}
		if !json.Valid([]byte(value)) {
			return refuse("argument %s: Value %s cannot be converted to <function loads>.", f.title(), value)
		}
	case Text, String, Bool, Switch:
	default:
		return errors.New("flags.txt has an unknown kind: " + string(f.Kind))
	}
	var decimals *decimalsError
	switch {
	case errors.As(err, &decimals):
		return refuse("argument %s: %s", f.title(), decimals)
	case err != nil:
		return refuse("argument %s: invalid %s value: '%s'", f.title(), f.typeName(), value)
	case len(f.Values) > 0 && !slices.Contains(f.Values, value):
		return refuse("argument %s: invalid choice: '%s' (choose from %s)", f.title(), value, f.choices())
	}
	return nil
}

func (f Flag) checkSize(value string) error {
	if f.Kind == Auto && (strings.EqualFold(strings.TrimSpace(value), "auto") || strings.TrimSpace(value) == "-1") {
		return nil
	}
	_, err := ParseSize(value)
	return err
}

func (f Flag) typeName() string {
	switch f.Kind {
	case Size:
		return "human_readable_int"
	case Auto:
		return "human_readable_int_or_auto"
	}
	return string(f.Kind)
}

func (f Flag) choices() string {
	values := slices.Clone(f.Values)
	if f.Kind == Int {
		return strings.Join(values, ", ")
	}
	slices.Sort(values)
	for i := range values {
		values[i] = "'" + values[i] + "'"
	}
	return strings.Join(values, ", ")
}

// decimalsError is returned if a fraction has a suffix for powers of 1024.
type decimalsError struct{ number, suffix string }

func (e *decimalsError) Error() string {
	return "Decimals are not allowed with binary suffixes like " + e.suffix + ". Did you mean to use " +
		e.number + strings.ToLower(e.suffix) + " instead?"
}

// ParseSize reads a whole number with an optional suffix: k, m, g or t for powers of 1000, or K, M, G or T for powers of
// 1024. Before a lower-case suffix, the number may have a fraction.
func ParseSize(value string) (int64, error) {
	match := regexp.MustCompile(`^(\d+(?:\.\d+)?)([kKmMgGtT])$`).FindStringSubmatch(strings.TrimSpace(value))
	if match == nil {
		return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	}
	suffix := match[2][0]
	power := strings.IndexByte("kmgt", suffix|' ') + 1
	base := int64(1024)
	if suffix >= 'a' {
		base = 1000
	}
	factor := int64(1)
	for range power {
		factor *= base
	}
	if base == 1000 {
		number, err := strconv.ParseFloat(match[1], 64)
		return int64(number * float64(factor)), err
	}
	number, err := strconv.ParseInt(match[1], 10, 64)
	if err != nil {
		return 0, &decimalsError{number: match[1], suffix: match[2]}
	}
	return number * factor, nil
}
