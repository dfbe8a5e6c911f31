// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"strings"

	"github.com/modelberth/modelberth/pkg/request"
)

// planMessage is the plan in one line, with its price where one is known.
func planMessage(accepted *revision) string {
	message := accepted.Plan.Summary()
	if usd := request.Price(accepted.Plan.HourlyPrice); usd != "" {
		message += fmt.Sprintf(", %s USD/h", usd)
	}
	return strings.Join(append([]string{message}, accepted.Plan.Warnings...), "; warning: ")
}
