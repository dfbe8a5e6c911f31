// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// tokensFlag is a number of tokens as people write it: 16384, 16k or 1M.
type tokensFlag struct{ into *int32 }

// String returns the number; empty if unset.
func (f tokensFlag) String() string {
	if f.into == nil || *f.into == 0 {
		return ""
	}
	return strconv.Itoa(int(*f.into))
}

// Type returns the name of the flag's type for the help.
func (f tokensFlag) Type() string { return "tokens" }

// Set parses the number.
func (f tokensFlag) Set(text string) error {
	number, unit := strings.TrimRight(text, "kKmM"), int64(1)
	switch strings.ToLower(strings.TrimPrefix(text, number)) {
	case "k":
		unit = 1 << 10
	case "m":
		unit = 1 << 20
	case "":
	default:
		return errors.New("give a number of tokens such as 16384 or 16k")
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 && unit > 1 || n*unit > math.MaxInt32 {
		return errors.New("give a number of tokens such as 16384 or 16k")
	}
	*f.into = int32(n * unit)
	return nil
}

// timeFlag is a duration in Go's format, such as 100ms. A number without a unit is in milliseconds.
type timeFlag struct{ into *time.Duration }

// String returns the duration; empty if unset.
func (f timeFlag) String() string {
	if f.into == nil || *f.into == 0 {
		return ""
	}
	return f.into.String()
}

// Type returns the name of the flag's type for the help.
func (f timeFlag) Type() string { return "duration" }

// Set parses the duration.
func (f timeFlag) Set(text string) error {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "ms"
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("give a time such as 100ms or 2s; a bare number is in milliseconds")
	}
	*f.into = value
	return nil
}
