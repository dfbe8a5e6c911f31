// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/wording"
)

// normaliseSize converts a size to a plain number: 32k becomes 32000, and 32K becomes 32768. A flag with the word auto
// also accepts -1 for it.
func normaliseSize(flag catalog.Flag, value string) (string, error) {
	if value == "-1" && slices.Contains(flag.Values, "auto") {
		return "auto", nil
	}
	digits, factor := value, int64(1)
	decimal := false
	if at := strings.IndexByte("kmgtKMGT", value[len(value)-1]); at >= 0 {
		digits, decimal = value[:len(value)-1], at < 4
		base := int64(1024)
		if decimal {
			base = 1000
		}
		for range at%4 + 1 {
			factor *= base
		}
	}
	if number, err := strconv.ParseUint(digits, 10, 63); err == nil && int64(number) <= math.MaxInt64/factor {
		return strconv.FormatInt(int64(number)*factor, 10), nil
	}
	// Powers of 1000 also take a fraction: 25.6k.
	whole, fraction, _ := strings.Cut(digits, ".")
	if decimal && isDigits(whole) && isDigits(fraction) && len(whole)+len(fraction) <= 15 {
		number, _ := strconv.ParseFloat(digits, 64)
		if size := math.Floor(number * float64(factor)); size < math.MaxInt64 {
			return strconv.FormatInt(int64(size), 10), nil
		}
	}
	return "", fmt.Errorf("needs a whole number, as in 32768, 32k or 32K%s, not %q", oneOf(flag.Values), wording.Clip(value, maxName))
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
