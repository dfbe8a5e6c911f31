// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package args

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const (
	usageServe = "usage: vllm serve [model_tag] [options]"
	usageMain  = "usage: vllm [-h] [-v] {chat,complete,serve,launch,bench,collect-env,run-batch} ..."
)

// UsageError is argparse's message before it ends the process with 2.
type UsageError struct{ Usage, Program, Message string }

// Error is the text on the error output.
func (e *UsageError) Error() string {
	return fmt.Sprintf("%s\n%s: error: %s", e.Usage, e.Program, e.Message)
}

func refuse(format string, a ...any) error {
	return &UsageError{Usage: usageServe, Program: "vllm serve", Message: fmt.Sprintf(format, a...)}
}

// ValueError is an exception of vLLM's own while it reads arguments: it ends the process with 1.
type ValueError struct{ Message string }

func (e *ValueError) Error() string { return e.Message }

// Parse reads the arguments after the word serve.
func Parse(arguments []string) (*Parsed, error) {
	table, err := Table()
	if err != nil {
		return nil, err
	}
	list, err := expand(arguments)
	if err != nil {
		return nil, err
	}
	p := parser{spellings: spellings(table), result: &Parsed{values: map[string][]string{}}}
	if err := p.run(list); err != nil {
		return nil, err
	}
	return p.result, nil
}

type parser struct {
	spellings map[string]spelling
	result    *Parsed
	unknown   []string
}

func (p *parser) run(list []string) error {
	for len(list) > 0 {
		head := list[0]
		list = list[1:]
		if head == "--" {
			p.positional(list)
			break
		}
		option, value, err := p.classify(head)
		switch {
		case err != nil:
			return err
		case option == nil && p.isOption(head):
			p.unknown = append(p.unknown, head)
		case option == nil:
			p.positional([]string{head})
		default:
			if list, err = p.option(*option, value, list); err != nil {
				return err
			}
		}
	}
	if len(p.unknown) > 0 {
		return &UsageError{Usage: usageMain, Program: "vllm", Message: "unrecognized arguments: " + strings.Join(p.unknown, " ")}
	}
	return nil
}

func (p *parser) positional(list []string) {
	for _, each := range list {
		if p.result.hasModel {
			p.unknown = append(p.unknown, each)
			continue
		}
		p.result.Model, p.result.hasModel = each, true
	}
}

// classify finds an argument's flag, also by an unambiguous beginning.
func (p *parser) classify(argument string) (option *spelling, value *string, err error) {
	if !strings.HasPrefix(argument, "-") || argument == "-" {
		return nil, nil, nil
	}
	if found, ok := p.spellings[argument]; ok {
		return &found, nil, nil
	}
	name, rest, hasValue := strings.Cut(argument, "=")
	if hasValue {
		value = &rest
	}
	if found, ok := p.spellings[name]; ok {
		return &found, value, nil
	}
	if !strings.HasPrefix(name, "--") {
		return nil, nil, nil
	}
	var matches []string
	for _, each := range slices.Sorted(maps.Keys(p.spellings)) {
		if strings.HasPrefix(each, name) {
			matches = append(matches, each)
		}
	}
	switch len(matches) {
	case 0:
		return nil, nil, nil
	case 1:
		found := p.spellings[matches[0]]
		return &found, value, nil
	}
	return nil, nil, refuse("ambiguous option: %s could match %s", argument, strings.Join(matches, ", "))
}

// isOption reports whether argparse takes an argument for an option, known or not: no apparent negative number, and
// nothing with a blank in it.
func (p *parser) isOption(argument string) bool {
	if !strings.HasPrefix(argument, "-") || argument == "-" {
		return false
	}
	if option, _, err := p.classify(argument); err != nil || option != nil {
		return true
	}
	return !regexp.MustCompile(`^-\d+$|^-\d*\.\d+$`).MatchString(argument) && !strings.Contains(argument, " ")
}

// option reads the values of a flag and returns the rest.
func (p *parser) option(s spelling, attached *string, list []string) ([]string, error) {
	flag := s.flag
	if flag.takesNone() {
		if attached != nil {
			return nil, refuse("argument %s: ignored explicit argument '%s'", flag.title(), *attached)
		}
		p.result.values[flag.Name] = []string{map[bool]string{false: "true", true: "false"}[s.off]}
		return list, nil
	}
	var values []string
	if attached != nil {
		values = []string{*attached}
	} else {
		n := slices.IndexFunc(list, func(a string) bool { return a == "--" || p.isOption(a) })
		if n < 0 {
			n = len(list)
		}
		if !flag.Many {
			n = min(n, 1)
		}
		values, list = list[:n:n], list[n:]
	}
	if len(values) == 0 && !flag.Maybe {
		return nil, refuse("argument %s: expected %s", flag.title(),
			map[bool]string{false: "one argument", true: "at least one argument"}[flag.Many])
	}
	for _, value := range values {
		if err := flag.check(value); err != nil {
			return nil, err
		}
	}
	if flag.Repeats {
		values = append(p.result.values[flag.Name], values...)
	}
	p.result.values[flag.Name] = values
	return list, nil
}

// expand does vLLM's own steps before argparse: --model, underscores, -O, and dotted keys.
func expand(arguments []string) ([]string, error) {
	list, err := modelFirst(arguments)
	if err != nil {
		return nil, err
	}
	list = dashed(list)
	var plain, keys []string
	dotted := map[string]map[string]any{}
	for i := 0; i < len(list); i++ {
		name, value, attached := strings.Cut(list[i], "=")
		if !strings.HasPrefix(name, "-") || !strings.Contains(name, ".") || regexp.MustCompile(`^-\d*\.\d+$`).MatchString(name) {
			plain = append(plain, list[i])
			continue
		}
		if !attached {
			i++
			if i == len(list) {
				return nil, &ValueError{Message: "IndexError: list index out of range"}
			}
			value = list[i]
		}
		path := strings.Split(strings.TrimSuffix(name, "+"), ".")
		if dotted[path[0]] == nil {
			dotted[path[0]] = map[string]any{}
			keys = append(keys, path[0])
		}
		put(dotted[path[0]], path[1:], decode(value, strings.HasSuffix(name, "+")))
	}
	for _, key := range keys {
		encoded, err := json.Marshal(dotted[key])
		if err != nil {
			return nil, fmt.Errorf("encoding the keys of %s: %w", key, err)
		}
		plain = append(plain, key, string(encoded))
	}
	return plain, nil
}

// modelFirst moves the value of --model to the model's place.
func modelFirst(arguments []string) ([]string, error) {
	for i, argument := range arguments {
		name, value, attached := strings.Cut(argument, "=")
		if name != "--model" {
			continue
		}
		rest := arguments[i+1:]
		if !attached {
			if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
				return nil, refuse("argument --model: expected one argument")
			}
			value, rest = rest[0], rest[1:]
		}
		return slices.Concat([]string{value}, arguments[:i], rest), nil
	}
	if len(arguments) > 0 && strings.HasPrefix(arguments[0], "-") && slices.ContainsFunc(arguments, isServedName) {
		return nil, &ValueError{Message: "ValueError: `model` should be provided as the first positional argument when using `vllm serve`. " +
			"i.e. `vllm serve <model> --<arg> <value>`."}
	}
	return arguments, nil
}

func isServedName(argument string) bool {
	name, _, _ := strings.Cut(strings.ReplaceAll(argument, "_", "-"), "=")
	return name == "--served-model-name"
}

func dashed(list []string) []string {
	out := make([]string, 0, len(list))
	for i, argument := range list {
		name, value, attached := strings.Cut(argument, "=")
		switch {
		case strings.HasPrefix(argument, "--"):
			key, path, dotted := strings.Cut(name, ".")
			argument = strings.ReplaceAll(key, "_", "-")
			if dotted {
				argument += "." + path
			}
			if attached {
				argument += "=" + value
			}
			out = append(out, argument)
		case argument == "-O" && i+1 < len(list):
			out = append(out, "--optimization-level")
		case strings.HasPrefix(argument, "-O") && len(argument) > 2:
			out = append(out, "--optimization-level", strings.TrimPrefix(argument[2:], "="))
		default:
			out = append(out, argument)
		}
	}
	return out
}

func decode(value string, list bool) any {
	if list {
		return strings.Split(value, ",")
	}
	var decoded any
	if json.Unmarshal([]byte(value), &decoded) == nil {
		return decoded
	}
	if number, err := ParseSize(value); err == nil {
		return number
	}
	return value
}

func put(tree map[string]any, path []string, value any) {
	for len(path) > 1 {
		next, ok := tree[path[0]].(map[string]any)
		if !ok {
			next = map[string]any{}
			tree[path[0]] = next
		}
		tree, path = next, path[1:]
	}
	if len(path) == 1 {
		tree[path[0]] = value
	}
}
