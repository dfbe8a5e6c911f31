// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usd formats prices in US dollars for people, and reads amounts that people set.
//
// It decides how prices are rounded, so one price looks the same everywhere. It must not know the goods. Fields for
// programs, such as status.plan.hourlyPrice, have another format.
package usd

import (
	"math"
	"strconv"
	"strings"
)

// small is the price in USD below which cents are too coarse.
const small = 0.1

// Parse reads an amount above 0 in plain digits, such as 50 or 0.25. It returns false for any other text.
func Parse(text string) (amount float64, ok bool) {
	isNoDigit := func(r rune) bool { return r < '0' || r > '9' }
	whole, fraction, hasFraction := strings.Cut(text, ".")
	if whole == "" || strings.ContainsFunc(whole+fraction, isNoDigit) || hasFraction && fraction == "" {
		return 0, false
	}
	amount, err := strconv.ParseFloat(text, 64)
	return amount, err == nil && amount > 0 && !math.IsInf(amount, 0)
}

// PerHour formats a price per hour: $3.67/h.
func PerHour(price float64) string { return "$" + Number(price) + "/h" }

// Number formats a price without a unit, for tables with the unit in their header. It has cents, and up to four
// decimals if the price is below ten cents.
func Number(price float64) string {
	if price <= 0 || price >= small {
		return decimals(price, 2)
	}
	whole, fraction, _ := strings.Cut(decimals(price, 4), ".")
	return whole + "." + fraction[:2] + strings.TrimRight(fraction[2:], "0")
}

// Apart formats two prices per hour with enough decimals to distinguish them.
func Apart(a, b float64) (string, string) {
	for digits := 3; PerHour(a) == PerHour(b) && digits <= 6; digits++ {
		if first, second := decimals(a, digits), decimals(b, digits); first != second {
			return "$" + first + "/h", "$" + second + "/h"
		}
	}
	return PerHour(a), PerHour(b)
}

// Significant formats an amount with about three significant digits: $12.5.
func Significant(amount float64) string { return "$" + SignificantNumber(amount) }

// SignificantNumber is Significant without the unit.
func SignificantNumber(amount float64) string {
	switch {
	case amount >= 100:
		return decimals(amount, 0)
	case amount >= 10:
		return decimals(amount, 1)
	default:
		return decimals(amount, 2)
	}
}

func decimals(value float64, n int) string { return strconv.FormatFloat(value, 'f', n, 64) }
