// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"strings"

	"github.com/modelberth/modelberth/pkg/usd"
)

// planMessage returns the plan in one line, with its price if known.
func planMessage(accepted *revision) string {
	message := accepted.Plan.Summary()
	if price := accepted.Plan.HourlyPrice; price >= 0 {
		message += ", " + usd.PerHour(price)
	}
	if premium := accepted.Plan.Premium; premium != "" {
		message += ", " + premium
	}
	return strings.Join(append([]string{message}, accepted.Plan.Warnings...), "; warning: ")
}
