// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Live are the settings that can change while the controller runs. A Live is never changed: a new one replaces it.
type Live struct {
	// Spending limits purchases.
	Spending Spending
	// LogLevel is the least severe level of log entries.
	LogLevel zapcore.Level
}

// Flags with rules of their own: controller-runtime declares the one for the log level, and the other is repeatable.
const (
	flagLogLevel     = "zap-log-level"
	flagInstanceType = "allow-instance-type"
)

// ParseLive returns the settings in a ConfigMap's data. Each key is the name of a flag without dashes, and an absent key
// has the flag's default. Repeatable flags have one value on each line. The error names every problem.
func ParseLive(data map[string]string) (*Live, error) {
	out := &Live{}
	flags := out.flags()
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(data)) {
		problems = append(problems, set(flags, name, data[name]))
	}
	problems = append(problems, out.Spending.validate()...)
	if err := errors.Join(problems...); err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return out, nil
}

// flags returns the flags of the settings.
func (l *Live) flags() *flag.FlagSet {
	out, ofLogger := flag.NewFlagSet("", flag.ContinueOnError), flag.NewFlagSet("", flag.ContinueOnError)
	l.Spending.bind(out)
	var logging zap.Options
	logging.BindFlags(ofLogger)
	out.Func(flagLogLevel, ofLogger.Lookup(flagLogLevel).Usage, func(text string) error {
		if err := ofLogger.Set(flagLogLevel, text); err != nil {
			return errors.New("it must be error, info, debug or a number above 0")
		}
		l.LogLevel = zapcore.LevelOf(logging.Level)
		return nil
	})
	return out
}

// set sets a flag to the lines of a text.
func set(flags *flag.FlagSet, name, text string) error {
	known := flags.Lookup(name)
	if known == nil {
		return fmt.Errorf("%s cannot change while the controller runs: remove the key, and set the chart's value or the flag; the keys are %s",
			name, strings.Join(namesOf(flags), ", "))
	}
	values := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	if name != flagInstanceType && strings.TrimSpace(text) == "" {
		return fmt.Errorf("%s is empty: set a value, or remove the key to use the default", name)
	}
	if name != flagInstanceType && len(values) != 1 {
		return fmt.Errorf("%s is %q: it must be one value on one line", name, text)
	}
	for _, value := range values {
		if err := flags.Set(name, strings.TrimSpace(value)); err != nil {
			_ = known.Value.Set(known.DefValue) // so that the default is not reported, too
			return fmt.Errorf("%s is %q: %w", name, strings.TrimSpace(value), validOf(known.Value, err))
		}
	}
	return nil
}

// validOf returns the valid values of a flag that Go's package flag declares: its own errors do not name them. Other
// flags have better errors.
func validOf(of flag.Value, err error) error {
	known, isKnown := of.(flag.Getter)
	if !isKnown {
		return err
	}
	switch known.Get().(type) {
	case float64:
		return errors.New("it must be a number in USD per hour, such as 98.5")
	case bool:
		return errors.New("it must be true or false")
	default:
		return err
	}
}

// Effective describes the value of each setting for a ConfigMap's data. It shows a value from the ConfigMap only if it is
// valid. The controller takes all values or none, so one mistake marks them all.
func Effective(data map[string]string) map[string]string {
	const hidden = "…"
	note := ""
	if _, err := ParseLive(data); err != nil {
		note = " (not in use: the ConfigMap has a mistake, and the controller keeps its former settings)"
	}
	out, defaults := map[string]string{}, new(Live).flags()
	for name := range data {
		out[name] = hidden + " (no setting)" + note
	}
	defaults.VisitAll(func(f *flag.Flag) {
		text, isSet := data[f.Name]
		switch _, err := ParseLive(map[string]string{f.Name: text}); {
		case !isSet:
			out[f.Name] = cmp.Or(f.DefValue, unset(f.Name)) + " (default)" + note
		case err != nil:
			out[f.Name] = hidden + " (invalid)" + note
		default:
			out[f.Name] = cmp.Or(strings.Join(strings.Fields(text), " "), unset(f.Name)) + note
		}
	})
	return out
}

// unset returns the default of a flag that declares none as text.
func unset(name string) string {
	if name == flagInstanceType {
		return "all"
	}
	return new(Live).LogLevel.String()
}

// LiveFlags returns the sorted names of the flags that a ConfigMap may set.
func LiveFlags() []string { return namesOf(new(Live).flags()) }

func namesOf(flags *flag.FlagSet) []string {
	var out []string
	flags.VisitAll(func(f *flag.Flag) { out = append(out, f.Name) })
	return out
}
